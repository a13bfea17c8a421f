"""Cursors: the contract over every place where they lie, and how a body walks with one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from state.envs import DirectoryStoreEnv, MemoryStoreEnv, SqlCursorEnv, StoreCursorEnv, opened
from towline.state import ANYTHING
from towline.state.cursor import CursorProgress
from towline.state.cursors import Batch, CursorStore
from towline.state.memory import MemoryStore
from towline.testing import TestClock, clause
from towline.testing.cases import Case
from towline.testing.cursor_contract import CursorEnv, cursor_cases, worked


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
        cursor = await opened(store, checkpoint_interval_s=5, clock=clock, notify=told.append)
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
        await (await opened(store, total=3)).commit(1)
        cursor = await opened(store, epoch=2, notify=told.append)
        for item in (2, 3, 4, 5):
            await cursor.commit(item)
        assert [(one.done, one.total) for one in told] == [(1, 3), (2, 3), (3, 3), (4, None), (5, None)]

    asyncio.run(main())
    assert len([line for line in caplog.messages if "announced" in line]) == 1


def test_async_sources_are_walked_too() -> None:
    """Rows often come over the network."""

    async def rows() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    async def main() -> None:
        cursor = await opened(MemoryStore())
        assert [list(batch) async for batch in cursor.batches(rows(), size=2)] == [[0, 1], [2]]

    asyncio.run(main())


@pytest.mark.parametrize(
    "options",
    [{"stages": ()}, {"stages": ("a", "a")}, {"checkpoint_interval_s": -1}, {"checkpoint_interval_s": float("nan")}],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    """Before anything is read or written."""
    with pytest.raises(ValueError, match=r"stages|checkpoint"):
        asyncio.run(opened(MemoryStore(), **options))


def test_batches_are_tuples_of_items() -> None:
    """``commit`` tells a batch from an item that is a tuple itself."""

    async def main() -> None:
        store = MemoryStore()
        cursor = await opened(store, key=lambda item: item[0])
        await cursor.commit(("a", 1))
        await cursor.commit(Batch([("b", 1), ("c", 2)]))
        await cursor.commit(Batch([]))
        assert cursor.position == "c"
        assert await worked(StoreCursorEnv(MemoryStoreEnv()), await opened(store, epoch=2), ["c", "d"]) == ["d"]
        await store.delete("cursors/t.json", ANYTHING)

    asyncio.run(main())
