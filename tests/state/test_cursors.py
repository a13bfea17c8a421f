"""Cursors: the contract over every place where they lie, and what only some of them have."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.envs import PLAN_ID, DirectoryStoreEnv, MemoryStoreEnv, SqlCursorEnv, StoreCursorEnv
from state.scenarios import import_items
from towline.errors import CursorCorruptError, CursorOrderError, StateUnsupportedError, TargetPlanError
from towline.errors.state import LeaseLostError, SchemaTooNewError
from towline.state import ABSENT, ANYTHING, Fence
from towline.state.cursor import CursorProgress
from towline.state.cursors import Batch, CursorStore, SyncCursor
from towline.state.directory import DirectoryStore
from towline.state.keys import cursor_key
from towline.state.memory import MemoryStore
from towline.state.sql_cursor import SqlCursor
from towline.testing import TestClock, clause
from towline.testing.cases import Case
from towline.testing.cursor_contract import CursorEnv, cursor_cases, worked
from towline.testing.killpoints import KillPoints

Connect = Callable[[], Any]


@clause("TEST-10")
@pytest.mark.parametrize("case", cursor_cases(), ids=str)
@pytest.mark.parametrize("kind", ["memory", "directory", "sqlite", "postgres"])
def test_cursors_keep_the_contract(case: Case[CursorEnv], kind: str, tmp_path: Path, request: Any) -> None:
    """A migration goes on at its item, wherever its cursor lies."""
    env: CursorEnv
    if kind == "memory":
        env = StoreCursorEnv(MemoryStoreEnv())
    elif kind == "directory":
        env = StoreCursorEnv(DirectoryStoreEnv(tmp_path / "s"))
    elif kind == "sqlite":
        env = SqlCursorEnv(MemoryStoreEnv(), lambda: sqlite3.connect(tmp_path / "t.sqlite"), "p")
    else:
        env = SqlCursorEnv(MemoryStoreEnv(), request.getfixturevalue("postgres"), str(tmp_path))
    asyncio.run(case.run(env))


async def _open(state: Any, epoch: int = 1, **options: Any) -> Any:
    options.setdefault("key", lambda item: item)
    cursors = CursorStore(state, clock=options.pop("clock", None), scope=options.pop("scope", ""))
    return await cursors.open("t", epoch, options.pop("plan_id", PLAN_ID), **options)


# ---------------------------------------------------------------------- durability


@clause("CUR-03", "CUR-10", "TEST-08")
def test_a_kill_anywhere_repeats_at_most_one_batch_and_loses_no_item(tmp_path: Path) -> None:
    """The whole promise of a resumed migration, at every write of a real folder."""
    for point in KillPoints():
        root, done = tmp_path / str(point.number), []
        with point.watching():
            import_items(str(root), point.files, done)

        async def resume(root: Path, done: list[int]) -> Any:
            store = DirectoryStore(root)
            cursor = await CursorStore(store).open("import", 2, PLAN_ID, key=int, total=12)
            async for batch in cursor.batches(range(12), size=3):
                done.extend(batch)
                for item in batch:
                    if item % 4 == 1:
                        await cursor.skip(item, "ODD")
                await cursor.commit(batch)
            await cursor.close()
            return cursor.state.document, await CursorStore(store).skips("import")

        document, skips = asyncio.run(resume(root, done))
        assert sorted(set(done)) == list(range(12)), str(point)
        assert len(done) <= 12 + 3, str(point)
        assert (document.totals.done, document.totals.skipped, document.at_end) == (12, {"ODD": 3}, True), str(point)
        assert sorted(skips) == [1, 5, 9]


@clause("CUR-08")
def test_the_write_after_an_effect_is_shielded_from_cancellation() -> None:
    """The effect is in the target already; losing the cursor's write would repeat it for nothing."""

    class Slow(MemoryStore):
        go_on: asyncio.Event

        async def write(self, key: str, *args: Any, **options: Any) -> str:
            if key == "cursors/t.json" and hasattr(self, "go_on"):
                await self.go_on.wait()
            return await super().write(key, *args, **options)

    async def main() -> None:
        store = Slow()
        cursor = await _open(store)
        store.go_on = asyncio.Event()
        body = asyncio.ensure_future(cursor.commit("a"))
        for _ in range(3):
            await asyncio.sleep(0)
            body.cancel()
        store.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await body
        assert (await _open(store, epoch=2)).position == "a"

    asyncio.run(main())


@clause("CUR-08")
@pytest.mark.virtual_time
async def test_the_shield_ends_after_ten_seconds() -> None:
    """A dead store must not hold a cancelled body for ever."""

    class Dead(MemoryStore):
        dead = False

        async def write(self, key: str, *args: Any, **options: Any) -> str:
            if self.dead:
                await asyncio.get_running_loop().create_future()
            return await super().write(key, *args, **options)

    store = Dead()
    cursor = await _open(store)
    store.dead = True
    loop = asyncio.get_running_loop()
    body = asyncio.ensure_future(cursor.commit("a"))
    loop.call_later(1, body.cancel)
    loop.call_later(5, body.cancel)
    with pytest.raises(asyncio.CancelledError):
        await body
    assert loop.time() == pytest.approx(11)


@clause("CUR-08", "CUR-09")
def test_a_cancelled_body_stores_what_it_has_just_done_and_is_told_then() -> None:
    """Cancelled: the last effect counts. Ended: nothing may be written any more."""
    cancelled, ended = False, False

    def check() -> None:
        if cancelled:
            raise asyncio.CancelledError

    def check_ended() -> None:
        if ended:
            raise RuntimeError("the attempt is over")

    async def main() -> None:
        nonlocal cancelled, ended
        store = MemoryStore()
        cursor = await _open(store, check=check, check_ended=check_ended)
        await cursor.commit("a")
        cancelled = True
        with pytest.raises(asyncio.CancelledError):
            await cursor.commit("b")
        with pytest.raises(asyncio.CancelledError):
            await anext(aiter(cursor.items(["c"])))
        ended = True
        for call in (cursor.commit("c"), cursor.stage("c", "done"), cursor.skip("c", "ODD")):
            with pytest.raises(RuntimeError):
                await call
        assert (await _open(store, epoch=2)).position == "b"

    asyncio.run(main())


@clause("CUR-09", "CUR-11")
def test_an_interval_gathers_commits_and_the_end_writes_the_last() -> None:
    """A fast loop need not pay a durable write per batch; views show when the next one comes."""

    class Counting(MemoryStore):
        writes = 0

        async def write(self, *args: Any, **options: Any) -> str:
            self.writes += 1
            return await super().write(*args, **options)

    async def main() -> None:
        clock, store, told = TestClock(), Counting(), []
        cursor = await _open(store, checkpoint_interval_s=5, clock=clock, notify=told.append)
        opening = store.writes
        for item in range(20):
            clock.advance(1)
            await cursor.commit(item)
        assert store.writes - opening == 4
        assert (await CursorStore(store).read("t")).position == 19 - 20 % 5  # type: ignore[union-attr]
        await cursor.commit(20)
        before = store.writes
        await cursor.close()
        await cursor.close()
        assert store.writes == before + 1
        assert (await CursorStore(store).read("t")).position == 20  # type: ignore[union-attr]
        assert [one.done for one in told] == list(range(1, 22))
        last: CursorProgress = told[-1]
        assert last.total is None, "without a total views show the count alone"
        assert last.last_checkpoint_at == pytest.approx(clock.now())
        assert last.next_checkpoint_at == pytest.approx(clock.now() + 5)
        assert told[0].last_checkpoint_at is None

    asyncio.run(main())


@clause("PLAN-41")
def test_a_recorded_total_is_reused_and_never_exceeded(caplog: pytest.LogCaptureFixture) -> None:
    """Counting a large source again costs minutes; 110 % would be a lie."""

    async def main() -> None:
        store, told = MemoryStore(), []
        await (await _open(store, total=3)).commit(1)
        cursor = await _open(store, epoch=2, notify=told.append)
        for item in (2, 3, 4, 5):
            await cursor.commit(item)
        assert [(one.done, one.total) for one in told] == [(1, 3), (2, 3), (3, 3), (4, None), (5, None)]

    asyncio.run(main())
    assert len([line for line in caplog.messages if "announced" in line]) == 1


@clause("CUR-13")
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"task":"t","plan_id":"x","epoch":"1"}'])
def test_a_damaged_cursor_fails_the_task_and_is_kept(data: bytes) -> None:
    """Starting at the first item by guess could import everything twice."""

    async def main() -> None:
        store = MemoryStore()
        await store.write("cursors/t.json", data, ABSENT)
        with pytest.raises(CursorCorruptError, match=r"cursors/t\.json"):
            await _open(store)
        with pytest.raises(CursorCorruptError):
            await store.append("cursors/t.skips.jsonl", b"{}\n", Fence(1, "t", PLAN_ID))
        entry = await store.read("cursors/t.json")
        assert entry is not None
        assert entry.data == data

    asyncio.run(main())


@clause("CUR-13")
def test_a_flipped_bit_in_a_cursor_is_seen() -> None:
    """A place that is wrong by one digit passes over a thousand items, and nobody ever notices."""

    async def main() -> None:
        store = MemoryStore()
        cursor = await _open(store)
        async for batch in cursor.batches(range(1_000, 1_006), size=2):
            await cursor.commit(batch)
        await cursor.close()
        whole = bytes(store.documents["cursors/t.json"])
        seen = 0
        for place in range(len(whole)):
            changed = bytearray(whole)
            changed[place] ^= 1
            store.documents["cursors/t.json"] = changed
            try:
                again = await _open(store, epoch=2)
            except (CursorCorruptError, SchemaTooNewError, LeaseLostError):
                seen += 1
            else:
                assert again.position == 1_005, changed  # what was hit is the name of the checksum itself
        assert seen > len(whole) - 10

    asyncio.run(main())


@clause("CUR-13")
def test_a_cursor_without_a_checksum_is_taken() -> None:
    """An older Towline wrote none, and an operator may move a place by hand."""

    async def main() -> None:
        store = MemoryStore()
        document = {"schema": 1, "task": "t", "plan_id": PLAN_ID, "epoch": 1, "key": 4}
        await store.write("cursors/t.json", msgspec.json.encode(document), ABSENT)
        assert (await _open(store, epoch=2)).position == 4

    asyncio.run(main())


@clause("CUR-10")
def test_a_torn_skip_record_is_dropped_before_the_next(tmp_path: Path) -> None:
    """A kill inside the append must not make the file unreadable."""

    async def main() -> None:
        store = DirectoryStore(tmp_path)
        cursor = await _open(store)
        await cursor.skip("a", "ODD")
        path = tmp_path / "cursors" / "t.skips.jsonl"
        path.write_bytes(path.read_bytes() + b'{"key":"b","co')
        assert list(await CursorStore(store).skips("t")) == ["a"]
        await cursor.skip("b", "ODD")
        assert list(await CursorStore(store).skips("t")) == ["a", "b"]

    asyncio.run(main())


@clause("CUR-05", "CUR-06")
def test_two_cursors_of_one_attempt_do_not_undo_each_other() -> None:
    """A body may open its cursor twice by mistake; the one that is behind is told."""

    async def main() -> None:
        store = MemoryStore()
        one, two = await _open(store), await _open(store)
        await one.commit("b")
        with pytest.raises(CursorOrderError, match="another cursor"):
            await two.commit("a")
        await two.commit("c")
        with pytest.raises(CursorOrderError):
            await one.commit("bb")
        assert (await _open(store, epoch=2)).position == "c"

    asyncio.run(main())


@clause("CUR-01", "CUR-03")
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_any_interruption_processes_each_item_and_repeats_only_the_last_batch(data: st.DataObject) -> None:
    """Random sources, batch sizes and deaths: nothing is lost, little is repeated."""
    items = sorted(data.draw(st.sets(st.integers(-50, 50), max_size=25)))
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    deaths = data.draw(st.lists(st.integers(0, 6), max_size=5))

    async def main() -> None:
        store, done, repeats = MemoryStore(), [], 0
        for epoch in range(1, len(deaths) + 2):  # one more than it dies
            size = sizes[epoch % len(sizes)]
            cursor = await _open(store, epoch=epoch, total=len(items))
            left = deaths[epoch - 1] if epoch <= len(deaths) else None
            async for batch in cursor.batches(items, size=size):
                repeats += len(set(batch) & set(done))
                done.extend(batch)
                if left is not None and left <= 0:
                    break
                left = None if left is None else left - 1
                await cursor.commit(batch)
        assert sorted(set(done)) == items
        assert repeats <= sum(max(sizes) for _ in deaths)
        document = await CursorStore(store).read("t")
        assert document is not None
        assert document.totals.done == len(items)
        assert document.at_end

    asyncio.run(main())


def test_async_sources_are_walked_too() -> None:
    """Rows often come over the network."""

    async def rows() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    async def main() -> None:
        cursor = await _open(MemoryStore())
        assert [list(batch) async for batch in cursor.batches(rows(), size=2)] == [[0, 1], [2]]

    asyncio.run(main())


@pytest.mark.parametrize(
    "options",
    [{"stages": ()}, {"stages": ("a", "a")}, {"checkpoint_interval_s": -1}, {"checkpoint_interval_s": float("nan")}],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    """Before anything is read or written."""
    with pytest.raises(ValueError, match=r"stages|checkpoint"):
        asyncio.run(_open(MemoryStore(), **options))


# ---------------------------------------------------------------------- sync bodies


def test_a_sync_body_walks_in_its_thread_and_stores_over_the_loop(tmp_path: Path) -> None:
    """Its source and its database connection belong to its thread, the state store to the loop."""

    async def main() -> None:
        loop, store = asyncio.get_running_loop(), DirectoryStore(tmp_path)
        used: list[str] = []

        def blocking(call: Callable[[], Any]) -> Any:
            assert threading.current_thread().name.startswith("body")
            return asyncio.run_coroutine_threadsafe(call(), loop).result(30)

        def body(epoch: int, stop_at: int) -> None:
            with sqlite3.connect(tmp_path / "t.sqlite") as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY)")
                opened = blocking(lambda: _open(store, epoch=epoch, store=SqlCursor(connection)))
                cursor: SyncCursor[int, int] = SyncCursor(opened, blocking)
                used.append(f"from {cursor.position}")
                for batch in cursor.batches(range(7), size=2):
                    if batch[0] >= stop_at:
                        break
                    connection.executemany("INSERT INTO rows VALUES (?)", [(item,) for item in batch])
                    cursor.commit(batch)
                    connection.commit()
                blocking(opened.close)
            connection.close()

        with ThreadPoolExecutor(1, "body") as bodies:
            for epoch, stop_at in ((1, 4), (2, 99)):
                await loop.run_in_executor(bodies, body, epoch, stop_at)
        assert used == ["from None", "from 3"]
        with sqlite3.connect(tmp_path / "t.sqlite") as connection:
            assert connection.execute("SELECT count(*) FROM rows").fetchone() == (7,)
        connection.close()
        copy = await CursorStore(store).read("t")
        assert copy is not None
        assert copy.in_target
        assert (copy.position, copy.totals.done, copy.at_end) == (6, 7, True)

    asyncio.run(main())


def test_a_sync_cursor_stages_and_skips() -> None:
    """The same names as the async one."""
    loop = asyncio.new_event_loop()
    try:
        store = MemoryStore()

        def blocking(call: Callable[[], Any]) -> Any:
            return loop.run_until_complete(call())

        cursor: SyncCursor[Any, Any] = SyncCursor(blocking(lambda: _open(store, stages=("row", "done"))), blocking)
        for item in cursor.items(["a", "b", "c"]):
            if item == "b":
                cursor.skip(item, "ODD", "no tail")
                continue
            if cursor.needs(item, "row"):
                cursor.stage(item, "row")
            cursor.commit(item)
        document = blocking(lambda: CursorStore(store).read("t"))
        assert (document.position, document.at_end, document.totals.done) == ("c", True, 3)
        assert list(blocking(lambda: CursorStore(store).skips("t"))) == ["b"]
    finally:
        loop.close()


# ---------------------------------------------------------------------- the cursor in the target


def _sqlite(path: Path) -> Connect:
    return lambda: sqlite3.connect(path / "t.sqlite")


@clause("CUR-12")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_effect_and_cursor_are_one_transaction(kind: str, tmp_path: Path, request: Any) -> None:
    """Rolled back together, committed together: exactly once, where a file gives at least once."""
    connect = _sqlite(tmp_path) if kind == "sqlite" else request.getfixturevalue("postgres")

    async def main() -> None:
        store, table = MemoryStore(), "effect_one"
        connection = connect()
        connection.cursor().execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)")
        connection.commit()
        cursor = await _open(store, store=SqlCursor(connection))
        async for batch in cursor.batches(range(6), size=2):
            connection.cursor().execute(f"INSERT INTO {table} VALUES ({batch[0]}), ({batch[1]})")
            await cursor.commit(batch)
            if batch[0] == 2:
                connection.rollback()  # what a crash before the commit leaves
                break
            connection.commit()
        connection.close()

        connection = connect()
        again = await _open(store, epoch=2, store=SqlCursor(connection))
        assert again.position == 1
        async for batch in again.batches(range(6), size=2):
            connection.cursor().execute(f"INSERT INTO {table} VALUES ({batch[0]}), ({batch[1]})")
            await again.commit(batch)
            connection.commit()
        rows = connection.cursor()
        rows.execute(f"SELECT count(*) FROM {table}")
        assert rows.fetchone()[0] == 6
        connection.close()

    asyncio.run(main())


@clause("CUR-05", "CUR-12")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_refused_save_raises_before_the_commit(kind: str, tmp_path: Path, request: Any) -> None:
    """A worker that lost its lease has written rows in an open transaction; they must not come in."""
    connect = _sqlite(tmp_path) if kind == "sqlite" else request.getfixturevalue("postgres")

    async def main() -> None:
        table = "effect_two"
        first, second = connect(), connect()
        first.cursor().execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)")
        first.commit()
        late = await _open(MemoryStore(), epoch=1, store=SqlCursor(first), scope="late")
        late.attach()
        (await _open(MemoryStore(), epoch=2, store=SqlCursor(second), scope="late")).attach()
        first.cursor().execute(f"INSERT INTO {table} VALUES (1)")
        with pytest.raises(LeaseLostError):
            await late.commit(1)
        first.rollback()
        rows = second.cursor()
        rows.execute(f"SELECT count(*) FROM {table}")
        assert rows.fetchone()[0] == 0
        first.close()
        second.close()

    asyncio.run(main())


@clause("CUR-12")
def test_programs_share_a_target_without_meeting(tmp_path: Path) -> None:
    """Two pipelines with a task of one name import into one database."""

    async def main() -> None:
        for scope in ("one/p", "two/p"):
            connection = _sqlite(tmp_path)()
            cursors = CursorStore(MemoryStore(), scope=scope)
            cursor = await cursors.open("t", 1, PLAN_ID, key=int, store=SqlCursor(connection))
            assert cursor.position is None
            await cursor.commit(5)
            connection.commit()
            connection.close()

    asyncio.run(main())


@clause("CUR-12")
def test_moving_between_file_and_target_never_restarts_by_guess(tmp_path: Path) -> None:
    """A file's place is taken over by a target; a target's is not left by forgetting ``store=``."""

    async def main() -> None:
        store = MemoryStore()
        await (await _open(store)).commit(3)
        connection = _sqlite(tmp_path)()
        cursor = await _open(store, epoch=2, store=SqlCursor(connection))
        assert cursor.position == 3
        await cursor.commit(4)
        connection.commit()
        with pytest.raises(CursorCorruptError, match="SqlCursor"):
            await _open(store, epoch=3)
        assert (await _open(store, epoch=4, store=SqlCursor(connection))).position == 4
        connection.close()

    asyncio.run(main())


@clause("PLAN-34", "CUR-12")
def test_a_dropped_cursor_is_dropped_in_the_target_too(tmp_path: Path) -> None:
    """A resume drops the cursor of a changed task; the row that it cannot reach must not pass over every item."""

    async def main() -> None:
        store, connection = MemoryStore(), _sqlite(tmp_path)()
        await (await _open(store, store=SqlCursor(connection))).commit(7)
        connection.commit()
        await store.delete(cursor_key("t"), ANYTHING)
        again = await _open(store, epoch=2, store=SqlCursor(connection))
        assert again.position is None
        # Killed before its first commit: the row is still the old one, and still counts as none.
        killed = await _open(store, epoch=3, store=SqlCursor(connection))
        assert killed.position is None
        await killed.commit(2)
        connection.commit()
        assert (await _open(store, epoch=4, store=SqlCursor(connection))).position == 2
        connection.close()

    asyncio.run(main())


@clause("CUR-12")
def test_a_place_of_a_later_plan_says_how_to_go_on(tmp_path: Path) -> None:
    """Whoever deleted the state and kept the target must not be told of a lease that nobody has."""

    async def main() -> None:
        connection = _sqlite(tmp_path)()
        later = await _open(MemoryStore(), plan_id="00000009-00000000", store=SqlCursor(connection), scope="p")
        later.attach()
        late = await _open(MemoryStore(), plan_id="00000001-ffffffff", store=SqlCursor(connection), scope="p")
        with pytest.raises(TargetPlanError, match="DELETE FROM towline_cursor WHERE scope = 'p'"):
            late.attach()
        connection.close()

    asyncio.run(main())


def test_an_unknown_driver_is_refused() -> None:
    """Guessing a placeholder would fail in the middle of a transaction."""

    class Connection:
        def cursor(self) -> Any:
            raise AssertionError

        def commit(self) -> None: ...

        def rollback(self) -> None: ...

    with pytest.raises(StateUnsupportedError, match="paramstyle"):
        SqlCursor(Connection())
    SqlCursor(Connection(), paramstyle="numeric")


@clause("CUR-05")
def test_no_interleaving_of_an_old_and_a_new_claim_loses_the_newer_place() -> None:
    """Both work on; at every await the other may come first."""

    async def main(seed: int) -> None:
        from random import Random

        chance = Random(seed)

        class Yielding(MemoryStore):
            async def read(self, key: str) -> Any:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                return await super().read(key)

            async def write(self, *args: Any, **options: Any) -> str:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                return await super().write(*args, **options)

        store = Yielding()
        places: dict[int, list[int]] = {1: [], 2: []}

        async def claim(epoch: int) -> None:
            try:
                cursor = await _open(store, epoch=epoch)
                async for item in cursor.items(range(8)):
                    await cursor.commit(item)
                    places[epoch].append(item)
            except LeaseLostError:
                assert epoch == 1

        await asyncio.gather(claim(1), claim(2))
        document = await CursorStore(store).read("t")
        assert document is not None
        assert (document.epoch, document.key, document.totals.done) == (2, 7, 8)
        start = places[2][0]
        assert places[2] == list(range(start, 8))
        assert set(range(start)) <= set(places[1]), "nobody skipped an item that the other had not done"

    for seed in range(40):
        asyncio.run(main(seed))


def test_batches_are_tuples_of_items() -> None:
    """``commit`` tells a batch from an item that is a tuple itself."""

    async def main() -> None:
        store = MemoryStore()
        cursor = await _open(store, key=lambda item: item[0])
        await cursor.commit(("a", 1))
        await cursor.commit(Batch([("b", 1), ("c", 2)]))
        await cursor.commit(Batch([]))
        assert cursor.position == "c"
        assert await worked(StoreCursorEnv(MemoryStoreEnv()), await _open(store, epoch=2), ["c", "d"]) == ["d"]
        await store.delete("cursors/t.json", ANYTHING)

    asyncio.run(main())
