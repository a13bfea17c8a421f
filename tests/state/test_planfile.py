"""The plan on disk: what a kill leaves, what a failed write does, who may write."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from pathlib import Path

import msgspec
import pytest

from state.envs import PLAN_ID, loaded_seqs, owned_plan, record, snapshot, started_plan
from state.scenarios import RECORDS, write_a_plan, write_a_plan_for_power
from towline.errors import OwnershipLostError, StateLostError, StateTooLargeError
from towline.state.directory import DirectoryStore
from towline.state.files import Buffer, SystemFiles
from towline.state.journal import read_journal
from towline.state.locks import HELD
from towline.state.memory import MemoryStore
from towline.state.planfile import GROUP_LIMIT, PlanFile
from towline.state.snapshot import Loaded
from towline.testing import clause
from towline.testing.killpoints import KillPoints, run_killed
from towline.testing.power_cut import PowerCutFiles
from towline.testing.store_contract import an_owner


def _load(root: Path) -> Loaded:
    async def main() -> Loaded:
        store = DirectoryStore(root)
        ownership = await store.acquire(an_owner("next"))  # nothing may keep the next run from starting
        plan = PlanFile(store, ownership)
        loaded = await plan.load()
        if loaded.head is not None:
            # ... nor from going on.
            after = snapshot(generation=loaded.head.generation + 1, applied_seq=loaded.last_seq)
            await plan.write_snapshot([after], generation=loaded.head.generation + 1, plan_id=PLAN_ID, owner_epoch=9)
            plan.append([record(loaded.last_seq + 1)])
            assert (await plan.load()).last_seq == loaded.last_seq + 1
        await plan.close()
        await store.close()
        return loaded

    return asyncio.run(main())


@clause("PLAN-17", "PLAN-20", "PLAN-24", "TEST-08")
@pytest.mark.parametrize("scenario", [write_a_plan, write_a_plan_for_power])
def test_a_kill_anywhere_leaves_the_plan_before_or_after_the_write(scenario, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Every write, fsync and rename, and inside writes: what was said to be durable is there, and at most one more."""
    points = 0
    for point in KillPoints():
        root = tmp_path / str(point.number)
        said: list[int] = []
        with point.watching():
            scenario(str(root), point.files, said)
        loaded = _load(root)
        if said:
            assert said[-1] <= loaded.last_seq <= said[-1] + 1, str(point)
        else:
            assert loaded.last_seq == 0, str(point)
        points += 1
    assert loaded.last_seq == 2 * RECORDS
    assert points > 60


@clause("PLAN-20", "STATE-16", "TEST-08")
def test_a_real_sigkill_leaves_the_same(tmp_path: Path) -> None:
    """The simulated kill could be kinder than the real one; a seeded sample of points tells."""
    codes = []
    for number in sorted(random.Random(7).sample(range(90), 5)):
        root = tmp_path / str(number)
        codes.append(run_killed("state.scenarios:write_a_plan_for_power", number, str(root)))
        assert _load(root).last_seq <= 2 * RECORDS
    assert set(codes) == {-9}


@clause("PLAN-25")
def test_a_power_cut_loses_nothing_that_was_said_to_be_durable(tmp_path: Path) -> None:
    """With ``power``, unsynced bytes and names may vanish in any combination, synced ones not."""
    chance = random.Random(11)
    for at in range(0, 90, 4):
        root = tmp_path / f"root-{at}"
        files = PowerCutFiles(str(root))
        said: list[int] = []
        _run_until(write_a_plan_for_power, root, files, said, at)
        for turn in range(3):
            left = tmp_path / f"left-{at}-{turn}"
            left.mkdir()
            files.cut(str(left), chance)
            loaded = _load(left)
            if said:
                assert said[-1] <= loaded.last_seq, f"after {at} operations"


def _run_until(scenario, root: Path, files: PowerCutFiles, said: list[int], limit: int) -> None:  # type: ignore[no-untyped-def]
    """Run a scenario and cut the power after some operations; before a cut nothing more happens."""

    class PowerOffError(BaseException):
        """Nothing holds it back."""

    left = limit

    def counted(work):  # type: ignore[no-untyped-def]
        def step(*args: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerOffError
            return work(*args)

        return step

    for name in ("write", "fsync", "rename", "remove", "sync_folder", "truncate"):
        setattr(files, name, counted(getattr(files, name)))
    try:
        scenario(str(root), files, said)
    except PowerOffError:
        return
    finally:
        for lock in list(HELD):
            lock.close()


@clause("PLAN-25")
def test_one_call_is_one_line_and_durable_at_once(tmp_path: Path) -> None:
    """The engine gathers a loop turn into one call; nothing waits for a timer or a thread."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path)
        assert plan.append([record(seq) for seq in range(1, 401)]) is None
        data = (tmp_path / "plan.journal").read_bytes()
        assert data.count(b"\n") == 2
        assert plan.records_since_snapshot == 400
        await plan.close()
        await store.close()

    asyncio.run(main())
    assert asyncio.run(loaded_seqs(tmp_path)) == list(range(1, 401))


@clause("PLAN-21", "PLAN-25")
def test_with_power_the_next_line_holds_what_came_during_the_fsync(tmp_path: Path) -> None:
    """One line is in flight; a slow disk makes longer lines, not a longer queue, up to 256 records each."""
    in_flight: list[bytes] = []

    class Watching(SystemFiles):
        def fsync(self, fd: int) -> None:
            in_flight.append((tmp_path / "plan.journal").read_bytes() if (tmp_path / "plan.journal").exists() else b"")
            super().fsync(fd)

    async def main() -> None:
        store, plan = await started_plan(tmp_path, durability="power", files=Watching())
        del in_flight[:]
        first = plan.append([record(1)])
        assert first is not None
        later = [plan.append([record(seq)]) for seq in range(2, 601)]
        await first
        assert not any(w.done() for w in later[GROUP_LIMIT:])  # type: ignore[union-attr, attr-defined]
        await later[-1]  # type: ignore[misc]
        assert all(w.done() for w in later)  # type: ignore[union-attr, attr-defined]
        await plan.close()
        await store.close()

    asyncio.run(main())
    lines = [data.count(b"\n") - 1 for data in in_flight]
    assert lines == [1, 2, 3], "each line is synced before the next is written"
    body = (tmp_path / "plan.journal").read_bytes().splitlines()[1:]
    assert [line.count(b'"seq"') for line in body] == [256, 256, 88]
    assert asyncio.run(loaded_seqs(tmp_path)) == list(range(1, 601))


class _Full(SystemFiles):
    """A disk that gets full: the next write ends after some bytes."""

    def __init__(self) -> None:
        self.room: int | None = None

    def write(self, fd: int, data: Buffer) -> None:
        if self.room is not None and len(bytes(data)) > self.room:
            os.write(fd, bytes(data)[: self.room])
            self.room = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(fd, data)


@clause("PLAN-18")
@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_failed_write_is_lost_state_and_the_last_write(tmp_path: Path, durability: str) -> None:
    """Going on undurably would show transitions that a resume knows nothing of."""
    files = _Full()

    async def appended(plan: PlanFile, seq: int) -> None:
        waiting = plan.append([record(seq)])
        if waiting is not None:
            await waiting

    async def main() -> None:
        store, plan = await started_plan(tmp_path, records=2, files=files, durability=durability)
        size = (tmp_path / "plan.journal").stat().st_size
        files.room = 30
        with pytest.raises(StateLostError, match="ENOSPC") as lost:
            await appended(plan, 3)
        assert "journal record 2" in str(lost.value)
        assert lost.value.exit_code == 4
        files.room = None
        assert (tmp_path / "plan.journal").stat().st_size == size, "no half line stays"
        for call in (
            lambda: appended(plan, 3),
            lambda: plan.write_snapshot([snapshot(2)], generation=2, plan_id=PLAN_ID, owner_epoch=1),
        ):
            with pytest.raises(StateLostError):
                await call()
        with pytest.raises(StateLostError):
            plan.results.append("a", b"1")
        await plan.close()
        await store.close()

    asyncio.run(main())
    assert asyncio.run(loaded_seqs(tmp_path)) == [1, 2]


@clause("PLAN-18", "PLAN-20")
def test_a_full_disk_while_the_plan_is_written_leaves_the_old_plan(tmp_path: Path) -> None:
    """No half ``plan.json``, no lost records, no leftover."""
    files = _Full()

    async def main() -> None:
        store, plan = await started_plan(tmp_path, records=2, files=files)
        files.room = 100
        with pytest.raises(StateLostError, match="writing the plan"):
            await plan.write_snapshot([snapshot(2, 2, padding=500)], generation=2, plan_id=PLAN_ID, owner_epoch=1)
        with pytest.raises(StateLostError):
            plan.append([record(3)])
        await plan.close()
        await store.close()

    asyncio.run(main())
    assert asyncio.run(loaded_seqs(tmp_path)) == [1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["owner.lock", "plan.journal", "plan.json"]


@clause("PLAN-19", "PLAN-23")
def test_records_of_a_moment_and_of_a_snapshot_in_progress_are_all_kept(tmp_path: Path) -> None:
    """Tasks end while the plan is compacted; their records go into the new journal, none is lost."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path, records=5)
        waiting = []

        def slices():  # type: ignore[no-untyped-def]
            text = snapshot(generation=2, applied_seq=5, padding=2_000_000)
            for start in range(0, len(text), 500_000):
                if start:
                    waiting.append(plan.append([record(5 + len(waiting) + 1)]))
                yield text[start : start + 500_000]

        await plan.write_snapshot(slices(), generation=2, plan_id=PLAN_ID, owner_epoch=1)
        assert len(waiting) == 4
        await asyncio.gather(*waiting)
        assert plan.append([record(10)]) is None
        assert plan.records_since_snapshot == 5
        await plan.close()
        await store.close()

    asyncio.run(main())
    assert asyncio.run(loaded_seqs(tmp_path)) == [6, 7, 8, 9, 10]


@clause("PLAN-23")
def test_other_code_runs_between_the_slices_of_a_large_plan(tmp_path: Path) -> None:
    """Heartbeats must go out while 100,000 tasks are written."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(other())
        text = snapshot(generation=2, padding=1_000)
        slices = [text[start : start + 100] for start in range(0, len(text), 100)]
        await plan.write_snapshot(slices, generation=2, plan_id=PLAN_ID, owner_epoch=1)
        ticking.cancel()
        assert turns >= len(slices) - 1
        await plan.close()
        await store.close()

    asyncio.run(main())


def test_trouble_in_the_chunks_leaves_the_old_plan_in_use(tmp_path: Path) -> None:
    """A bug in the encoder must not look like a lost disk, nor hang whoever appended meanwhile."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path)
        waiting = []

        def slices():  # type: ignore[no-untyped-def]
            yield b"{"
            waiting.append(plan.append([record(1)]))
            raise KeyError("bug")

        with pytest.raises(KeyError):
            await plan.write_snapshot(slices(), generation=2, plan_id=PLAN_ID, owner_epoch=1)
        await waiting[0]
        assert plan.append([record(2)]) is None
        await plan.close()
        await store.close()

    asyncio.run(main())
    assert asyncio.run(loaded_seqs(tmp_path)) == [1, 2]


@clause("PLAN-23")
def test_bytes_written_grow_with_the_number_of_transitions(tmp_path: Path) -> None:
    """n transitions cost O(n) bytes: no transition rewrites the plan."""
    written = 0

    class Counting(SystemFiles):
        def write(self, fd: int, data: Buffer) -> None:
            nonlocal written
            written += len(bytes(data))
            super().write(fd, data)

    async def cost(records: int) -> int:
        nonlocal written
        store, plan = await started_plan(tmp_path / str(records), files=Counting())
        written = 0
        for seq in range(1, records + 1):
            plan.append([record(seq)])
        await plan.close()
        await store.close()
        return written

    assert asyncio.run(cost(2_000)) < 2.1 * asyncio.run(cost(1_000))


@clause("PLAN-27", "STATE-03")
def test_only_the_owner_writes_the_plan(tmp_path: Path) -> None:
    """A view or worker that gets hold of a plan file cannot write it, nor can an owner that released."""

    async def main() -> None:
        store, ownership, plan = await owned_plan(tmp_path)
        await plan.write_snapshot([snapshot()], generation=1, plan_id=PLAN_ID, owner_epoch=1)
        plan.append([record(1)])
        reader = PlanFile(DirectoryStore(tmp_path))
        with pytest.raises(OwnershipLostError):
            reader.append([record(2)])
        with pytest.raises(OwnershipLostError):
            reader.results.append("a", b"1")
        await ownership.release()
        for call in (lambda: plan.append([record(2)]), lambda: plan.results.append("a", b"1")):
            with pytest.raises(OwnershipLostError):
                call()
        await plan.close()
        await store.close()

    asyncio.run(main())
    assert asyncio.run(loaded_seqs(tmp_path)) == [1]


@clause("STATE-03")
def test_a_frozen_owner_writes_into_a_file_that_nobody_reads(tmp_path: Path) -> None:
    """Even if its checks were fooled: the next owner's snapshot begins a new journal file."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path, records=2)
        former = os.open(tmp_path / "plan.journal", os.O_WRONLY | os.O_APPEND)
        await plan.write_snapshot([snapshot(2, 2)], generation=2, plan_id=PLAN_ID, owner_epoch=1)
        os.write(former, b"garbage\n")
        os.close(former)
        plan.append([record(3)])
        await plan.close()
        await store.close()

    asyncio.run(main())
    assert asyncio.run(loaded_seqs(tmp_path)) == [3]


@clause("STATE-06")
def test_a_journal_line_above_the_limit_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    """The task that caused it fails; the run goes on."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path)
        with pytest.raises(StateTooLargeError):
            plan.append([record(1, reason_text="x" * (64 * 1024 * 1024))])
        plan.append([record(1)])
        await plan.close()
        await store.close()

    asyncio.run(main())
    assert asyncio.run(loaded_seqs(tmp_path)) == [1]


def test_the_memory_store_keeps_a_plan_too() -> None:
    """Simulated runs resume as real ones do."""

    async def main() -> None:
        store = MemoryStore()
        plan = PlanFile(store, await store.acquire(an_owner()))
        assert (await plan.load()).snapshot is None
        await plan.write_snapshot([snapshot()[:10], snapshot()[10:]], generation=1, plan_id=PLAN_ID, owner_epoch=1)
        assert plan.append([record(1), record(2)]) is None
        loaded = await plan.load()
        assert loaded.snapshot == snapshot()
        assert loaded.last_seq == 2
        decoded = loaded.decoded(msgspec.json.Decoder(type(record(1))))
        assert [one.seq for one in decoded] == [1, 2]
        assert read_journal(await plan._medium.read_journal() or b"", "f").header is not None

    asyncio.run(main())
