"""Every state store keeps the contract; what a folder adds to it."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from state.envs import DirectoryStoreEnv, MemoryStoreEnv, open_files, owned_plan, record, snapshot, started_plan
from towline.errors import OwnershipLostError, PlanOwnedError, StateLostError, StateUnsupportedError
from towline.identity import segment
from towline.state import ABSENT, ANYTHING, Fence, open_store
from towline.state.directory import DirectoryStore
from towline.state.files import SystemFiles
from towline.state.keys import lock_name, step_key
from towline.state.locks import FileLock
from towline.state.memory import MemoryStore
from towline.state.owner_file import SLOT_BYTES
from towline.state.planfile import PlanFile
from towline.testing import VirtualLoop, clause
from towline.testing.cases import Case
from towline.testing.store_contract import StoreEnv, an_owner, store_cases


@clause("TEST-10")
@pytest.mark.parametrize("case", store_cases(), ids=str)
@pytest.mark.parametrize("kind", ["memory", "process", "power"])
def test_store_keeps_the_contract(case: Case[StoreEnv], kind: str, tmp_path: Path) -> None:
    """The engine is written against the contract, not against a store."""
    env: StoreEnv = MemoryStoreEnv() if kind == "memory" else DirectoryStoreEnv(tmp_path / "s", kind)  # type: ignore[arg-type]
    asyncio.run(case.run(env))


@clause("STATE-05")
@pytest.mark.parametrize(
    "name", ["a/b", "..", ".hidden", "end.", "con", "x" * 5000, "\u202eabc", "a b", "a\nb", "ü[1]"]
)
def test_any_name_is_one_safe_segment(name: str) -> None:
    """Task and step names come from users; a file name must not lead anywhere else."""
    one = segment(name)
    assert "/" not in one
    assert one.isascii()
    assert not one.startswith(".")
    assert not one.endswith(".")
    assert len(one) <= 150
    assert one != segment(name + "2")
    assert lock_name(step_key(name, "s")) == one


def test_urls_open_the_store_they_name(tmp_path: Path) -> None:
    """One option chooses the store; an unknown scheme is refused before anything runs."""
    assert isinstance(open_store(str(tmp_path / "s")), DirectoryStore)
    assert isinstance(open_store("memory:"), MemoryStore)
    made = MemoryStore()
    assert open_store("s3://bucket/x", others={"s3": lambda url: made}) is made
    with pytest.raises(StateUnsupportedError, match="redis"):
        open_store("redis://:secret@host/0")


# ---------------------------------------------------------------------- trouble


class _Troubled(SystemFiles):
    """Fails some renames, before or after they happened."""

    def __init__(self, failures: list[tuple[int, bool]]) -> None:
        self.failures = failures

    def rename(self, source: str, target: str) -> None:
        if not self.failures:
            super().rename(source, target)
            return
        number, happened = self.failures.pop(0)
        if happened:
            super().rename(source, target)
        raise OSError(number, os.strerror(number), target)


@clause("STATE-07")
def test_transient_trouble_is_retried_and_a_lost_answer_read_back(tmp_path: Path) -> None:
    """A network file system hiccups; a write that happened must not be reported as a conflict."""

    async def main() -> None:
        files = _Troubled([(errno.ESTALE, False), (errno.EBUSY, True)])
        store = DirectoryStore(tmp_path, files=files)
        await store.write("cursors/a.json", b"1", ABSENT)
        entry = await store.read("cursors/a.json")
        assert entry is not None
        assert entry.data == b"1"
        assert files.failures == []

    asyncio.run(main())


@clause("STATE-07")
def test_lasting_trouble_is_lost_state_after_half_a_minute(tmp_path: Path) -> None:
    """A run must end with a clear word, not hang for ever on a dead mount."""
    loop = VirtualLoop()
    try:
        store = DirectoryStore(tmp_path, files=_Troubled([(errno.ESTALE, False)] * 10_000))
        with pytest.raises(StateLostError, match="ESTALE"):
            loop.run_until_complete(store.write("cursors/a.json", b"1", ABSENT))
        assert 29 < loop.time() < 31
    finally:
        loop.close()


@clause("STATE-07")
def test_a_full_disk_is_reported_at_once_and_leaves_no_half_file(tmp_path: Path) -> None:
    """Nobody waits half a minute for space; the old document stays."""

    async def main() -> None:
        await DirectoryStore(tmp_path).write("cursors/a.json", b"old", ABSENT)
        store = DirectoryStore(tmp_path, files=_Troubled([(errno.ENOSPC, False)]))
        with pytest.raises(StateLostError, match="ENOSPC"):
            await store.write("cursors/a.json", b"new", ANYTHING)
        entry = await store.read("cursors/a.json")
        assert entry is not None
        assert entry.data == b"old"
        assert os.listdir(tmp_path / "cursors") == ["a.json"]

    asyncio.run(main())


# ---------------------------------------------------------------------- the folder


@clause("STATE-13")
def test_the_owner_removes_leftover_temp_files(tmp_path: Path) -> None:
    """Killed writers must not fill the disk over the years."""

    async def main() -> None:
        store = DirectoryStore(tmp_path)
        await store.write("steps/a/b.json", b"1", ABSENT)
        leftovers = [tmp_path / ".plan.json.77-1.tmp", tmp_path / "steps" / "a" / ".b.json.77-2.tmp"]
        for path in leftovers:
            path.write_bytes(b"half")
        assert [key async for key in store.list("")] == ["steps/a/b.json"]

        await store.acquire(an_owner())

        assert not any(path.exists() for path in leftovers)
        assert [key async for key in store.list("")] == ["steps/a/b.json"]
        await store.close()

    asyncio.run(main())


@clause("STATE-13")
def test_a_write_whose_temp_file_was_taken_for_a_leftover_succeeds(tmp_path: Path) -> None:
    """A new owner cleans up while workers of the old run still write their cursors."""

    class Taken(SystemFiles):
        taken = 0

        def rename(self, source: str, target: str) -> None:
            if self.taken == 0:
                self.taken = 1
                os.unlink(source)
            super().rename(source, target)

    async def main() -> None:
        store = DirectoryStore(tmp_path, files=Taken())
        await store.write("cursors/a.json", b"1", ABSENT)
        entry = await store.read("cursors/a.json")
        assert entry is not None
        assert entry.data == b"1"

    asyncio.run(main())


@clause("STATE-14")
def test_ownership_ends_with_its_process(tmp_path: Path) -> None:
    """After kill -9 the next run must start at once, without anyone removing a lock file."""
    code = (
        "import asyncio, os, signal, sys\n"
        "from towline.state import Owner, open_store\n"
        "async def main():\n"
        "    store = open_store(sys.argv[1])\n"
        "    await store.acquire(Owner(id='m-1', host='h', pid=os.getpid(), run_id='r-1', since='now'))\n"
        "    print('owned', flush=True)\n"
        "    sys.stdin.read()\n"
        "asyncio.run(main())\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        assert child.stdout.readline() == b"owned\n"

        async def main() -> int:
            store = DirectoryStore(tmp_path)
            with pytest.raises(PlanOwnedError) as refused:
                await store.acquire(an_owner("m-2"))
            assert refused.value.pid == child.pid
            child.kill()
            child.wait(30)
            ownership = await store.acquire(an_owner("m-2"))
            await store.close()
            return ownership.epoch

        assert asyncio.run(main()) == 2


@clause("STATE-14")
@pytest.mark.parametrize("end", ["released", "killed"])
def test_a_forked_child_does_not_keep_the_ownership(tmp_path: Path, end: str) -> None:
    """User code may fork; a child that outlives the run must not block the next one."""
    lock = FileLock(str(tmp_path / "owner.lock"), SystemFiles())
    assert lock.try_take()
    ready, go_on = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(go_on[0], 1)
        os._exit(0)
    try:
        assert os.read(ready[0], 1) == b"x"
        assert not FileLock(lock.path, SystemFiles()).try_take(), "the child must not unlock it either"
        if end == "released":
            lock.free()
        else:
            lock.close()  # what the end of the process does
        again = FileLock(lock.path, SystemFiles())
        assert again.try_take()
        again.free()
    finally:
        os.write(go_on[1], b"x")
        os.waitpid(child, 0)
        for fd in (*ready, *go_on):
            os.close(fd)


@clause("STATE-14")
def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without locks two runs would write one plan."""
    from towline.state import locks

    def no_locks(fd: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    def void_locks(fd: int) -> None:
        """Say yes to everybody."""

    for lock in (no_locks, void_locks):
        monkeypatch.setattr(locks, "_lock", lock)
        with pytest.raises(StateUnsupportedError):
            asyncio.run(DirectoryStore(tmp_path).acquire(an_owner()))


def go_on_writing(plan: PlanFile) -> None:
    """Append until it is refused: the owner looks for its lock at most once in a millisecond, some dozen lines later."""
    for number in range(2, 1_000_000):
        plan.append([record(number)])


@clause("STATE-14")
def test_a_removed_lock_file_ends_the_ownership(tmp_path: Path) -> None:
    """Someone removed the state folder under a run: it must stop, not write beside its successor."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path)
        shutil.rmtree(tmp_path)

        with pytest.raises(Exception, match="no longer owns"):
            go_on_writing(plan)
        await plan.close()
        await store.close()

    asyncio.run(main())


@clause("STATE-09")
def test_epochs_survive_damage_of_the_lock_file(tmp_path: Path) -> None:
    """A fence that starts again at 1 would let everything old write over everything new."""

    async def acquire() -> int:
        store = DirectoryStore(tmp_path)
        epoch = (await store.acquire(an_owner())).epoch
        await store.close()
        return epoch

    lock = tmp_path / "owner.lock"
    assert [asyncio.run(acquire()) for _ in range(3)] == [1, 2, 3]
    data = lock.read_bytes()
    lock.write_bytes(data[: SLOT_BYTES // 2] + b"?" + data[SLOT_BYTES // 2 + 1 :])  # one line torn
    assert asyncio.run(acquire()) in (3, 4)
    (tmp_path / "plan.json").write_bytes(snapshot(plan_id="00000041-be27d441")[:-9])  # damaged, but says 41
    lock.write_bytes(b"")
    assert asyncio.run(acquire()) == 42
    (tmp_path / "plan.json").unlink()
    assert asyncio.run(acquire()) == 43


@clause("STATE-15")
def test_a_busy_lock_is_waited_for(tmp_path: Path) -> None:
    """Another process may be in the middle of its write; it ends or dies, and its lock with it."""

    async def main() -> None:
        store = DirectoryStore(tmp_path)
        await store.write("cursors/a.json", b"1", ABSENT)
        lock = FileLock(str(tmp_path / "locks" / "a.lock"), SystemFiles())
        assert lock.try_take()
        writing = asyncio.ensure_future(store.write("cursors/a.json", b"2", ANYTHING))
        other = await store.write("cursors/b.json", b"2", ABSENT)
        assert other
        await asyncio.sleep(0)
        assert not writing.done()
        lock.free()
        await writing
        entry = await store.read("cursors/a.json")
        assert entry is not None
        assert entry.data == b"2"

    asyncio.run(main())


@clause("STATE-17")
def test_a_copy_of_a_root_is_resumed_elsewhere(tmp_path: Path) -> None:
    """A laptop's half-done migration goes on on a server."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path / "here", records=3)
        place = plan.results.append("a", b"[1]")
        await store.write("cursors/a.json", b'{"epoch":1}', ABSENT)
        await plan.close()
        await store.close()
        shutil.copytree(tmp_path / "here", tmp_path / "there")
        shutil.rmtree(tmp_path / "here")
        store, ownership, plan = await owned_plan(tmp_path / "there")
        assert ownership.epoch == 2
        assert (await plan.load()).last_seq == 3
        assert await plan.results.read("a", place) == b"[1]"
        assert await store.read("cursors/a.json") is not None
        await plan.close()
        await store.close()
        for path in (tmp_path / "there").rglob("*"):
            assert not path.is_file() or str(tmp_path).encode() not in path.read_bytes()

    asyncio.run(main())


@clause("STATE-18")
def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    """Results can hold anything that a body returned."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path / "deep" / "root", records=1)
        plan.results.append("a", b"[1]")
        plan.results.append("b", b"1" * 20_000)
        await store.write("steps/a/b.json", b"1", ABSENT)
        await store.append("cursors/a.skips.jsonl", b"{}\n", Fence(1, "a"))
        await plan.close()
        await store.close()

    old = os.umask(0)
    try:
        asyncio.run(main())
    finally:
        os.umask(old)
    paths = [tmp_path / "deep", *(tmp_path / "deep").rglob("*")]
    assert len(paths) > 10
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@clause("STATE-18")
def test_links_inside_the_root_lead_no_write_elsewhere(tmp_path: Path) -> None:
    """Who can place a link in the root must not make the run overwrite other files."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (outside / "victim").write_bytes(b"kept")
    (outside / ".b.json.1-1.tmp").write_bytes(b"kept")
    (root / "cursors").symlink_to(outside)
    (root / "plan.json").symlink_to(outside / "victim")
    (root / "results.jsonl").symlink_to(outside / "victim")

    async def main() -> None:
        store = DirectoryStore(root)
        for call in (
            store.write("cursors/victim", b"x", ANYTHING),
            store.delete("cursors/victim", ANYTHING),
            store.append("cursors/victim", b"x\n", Fence(1, "a")),
        ):
            with pytest.raises(StateUnsupportedError, match="symbolic link"):
                await call
        store, plan = await started_plan(root)
        with pytest.raises(StateLostError, match="ELOOP"):
            plan.results.append("a", b"[1]")
        await plan.close()
        await store.delete("results.jsonl", ANYTHING)
        await store.close()

    asyncio.run(main())
    assert sorted(path.name for path in outside.iterdir()) == [".b.json.1-1.tmp", "victim"]
    assert (outside / "victim").read_bytes() == b"kept"
    assert not (root / "plan.json").is_symlink()


@clause("PLAN-18")
@pytest.mark.parametrize("is_owner", [True, False])
def test_nothing_is_written_where_the_folder_was_removed(is_owner: bool, tmp_path: Path) -> None:
    """A cursor and a log without a plan look like a damaged state, and the next run would be refused for it."""
    root = tmp_path / "state"

    async def main() -> None:
        owner, plan = await started_plan(root, records=1)
        store = owner if is_owner else DirectoryStore(root)
        await store.write("cursors/a.json", b"1", ABSENT)
        shutil.rmtree(root)
        with pytest.raises(StateLostError, match="gone"):
            await store.write("cursors/b.json", b"1", ANYTHING)
        with pytest.raises(StateLostError, match="gone"):
            await store.append("runs/r/events.jsonl", b"{}\n", Fence(1))
        for _ in range(2):
            with pytest.raises(OwnershipLostError, match=r"no longer owns.*gone"):
                go_on_writing(plan)
        await plan.close()
        await store.close()
        await owner.close()

    asyncio.run(main())
    assert not root.exists()


@clause("STATE-11")
def test_a_closed_store_holds_no_file_lock_or_thread(tmp_path: Path) -> None:
    """Tests and long-lived services open thousands of stores in one process."""

    async def main() -> None:
        before = open_files()
        store, plan = await started_plan(tmp_path, records=2, durability="power")
        plan.results.append("a", b"[1]")
        await store.write("cursors/a.json", b"1", ABSENT)
        await plan.close()
        await plan.close()
        await store.close()
        await store.close()
        assert open_files() == before
        again = await DirectoryStore(tmp_path).acquire(an_owner("m-2"))
        await again.release()

    asyncio.run(main())


def test_a_reader_needs_no_ownership(tmp_path: Path) -> None:
    """``towline watch`` looks at the root of a living run."""

    async def main() -> None:
        store, plan = await started_plan(tmp_path, records=2)
        reader = PlanFile(DirectoryStore(tmp_path))
        assert (await reader.load()).last_seq == 2
        await plan.close()
        await store.close()

    asyncio.run(main())
