"""Cursors of bodies that are killed, cancelled, or overtaken by a newer claim."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.envs import PLAN_ID, opened
from state.scenarios import import_items
from towline.errors import CursorOrderError
from towline.errors.state import LeaseLostError
from towline.state.cursors import CursorStore
from towline.state.directory import DirectoryStore
from towline.state.memory import MemoryStore
from towline.testing import clause
from towline.testing.killpoints import KillPoints


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
        cursor = await opened(store)
        store.go_on = asyncio.Event()
        body = asyncio.ensure_future(cursor.commit("a"))
        for _ in range(3):
            await asyncio.sleep(0)
            body.cancel()
        store.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await body
        assert (await opened(store, epoch=2)).position == "a"

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
    cursor = await opened(store)
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
        cursor = await opened(store, check=check, check_ended=check_ended)
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
        assert (await opened(store, epoch=2)).position == "b"

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
            cursor = await opened(store, epoch=epoch, total=len(items))
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


@clause("CUR-05", "CUR-06")
def test_two_cursors_of_one_attempt_do_not_undo_each_other() -> None:
    """A body may open its cursor twice by mistake; the one that is behind is told."""

    async def main() -> None:
        store = MemoryStore()
        one, two = await opened(store), await opened(store)
        await one.commit("b")
        with pytest.raises(CursorOrderError, match="another cursor"):
            await two.commit("a")
        await two.commit("c")
        with pytest.raises(CursorOrderError):
            await one.commit("bb")
        assert (await opened(store, epoch=2)).position == "c"

    asyncio.run(main())


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
                cursor = await opened(store, epoch=epoch)
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
