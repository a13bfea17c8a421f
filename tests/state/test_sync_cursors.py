"""Cursors of sync bodies, which walk in a thread of their own."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from state.envs import opened
from towline.state.cursors import CursorStore, SyncCursor
from towline.state.directory import DirectoryStore
from towline.state.memory import MemoryStore
from towline.state.sql_cursor import SqlCursor


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
                home = blocking(lambda: opened(store, epoch=epoch, store=SqlCursor(connection)))
                cursor: SyncCursor[int, int] = SyncCursor(home, blocking)
                used.append(f"from {cursor.position}")
                for batch in cursor.batches(range(7), size=2):
                    if batch[0] >= stop_at:
                        break
                    connection.executemany("INSERT INTO rows VALUES (?)", [(item,) for item in batch])
                    cursor.commit(batch)
                    connection.commit()
                blocking(home.close)
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

        cursor: SyncCursor[Any, Any] = SyncCursor(blocking(lambda: opened(store, stages=("row", "done"))), blocking)
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
