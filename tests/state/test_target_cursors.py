"""Cursors that lie in the target's own database: effect and place in one transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from state.envs import PLAN_ID, opened
from towline.errors import CursorCorruptError, StateUnsupportedError, TargetPlanError
from towline.errors.state import LeaseLostError
from towline.state import ANYTHING
from towline.state.cursors import CursorStore
from towline.state.keys import cursor_key
from towline.state.memory import MemoryStore
from towline.state.sql_cursor import SqlCursor
from towline.testing import clause

Connect = Callable[[], Any]


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
        cursor = await opened(store, store=SqlCursor(connection))
        async for batch in cursor.batches(range(6), size=2):
            connection.cursor().execute(f"INSERT INTO {table} VALUES ({batch[0]}), ({batch[1]})")
            await cursor.commit(batch)
            if batch[0] == 2:
                connection.rollback()  # what a crash before the commit leaves
                break
            connection.commit()
        connection.close()

        connection = connect()
        again = await opened(store, epoch=2, store=SqlCursor(connection))
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
        late = await opened(MemoryStore(), epoch=1, store=SqlCursor(first), scope="late")
        late.attach()
        (await opened(MemoryStore(), epoch=2, store=SqlCursor(second), scope="late")).attach()
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
        await (await opened(store)).commit(3)
        connection = _sqlite(tmp_path)()
        cursor = await opened(store, epoch=2, store=SqlCursor(connection))
        assert cursor.position == 3
        await cursor.commit(4)
        connection.commit()
        with pytest.raises(CursorCorruptError, match="SqlCursor"):
            await opened(store, epoch=3)
        assert (await opened(store, epoch=4, store=SqlCursor(connection))).position == 4
        connection.close()

    asyncio.run(main())


@clause("PLAN-34", "CUR-12")
def test_a_dropped_cursor_is_dropped_in_the_target_too(tmp_path: Path) -> None:
    """A resume drops the cursor of a changed task; the row that it cannot reach must not pass over every item."""

    async def main() -> None:
        store, connection = MemoryStore(), _sqlite(tmp_path)()
        await (await opened(store, store=SqlCursor(connection))).commit(7)
        connection.commit()
        await store.delete(cursor_key("t"), ANYTHING)
        again = await opened(store, epoch=2, store=SqlCursor(connection))
        assert again.position is None
        # Killed before its first commit: the row is still the old one, and still counts as none.
        killed = await opened(store, epoch=3, store=SqlCursor(connection))
        assert killed.position is None
        await killed.commit(2)
        connection.commit()
        assert (await opened(store, epoch=4, store=SqlCursor(connection))).position == 2
        connection.close()

    asyncio.run(main())


@clause("CUR-12")
def test_a_place_of_a_later_plan_says_how_to_go_on(tmp_path: Path) -> None:
    """Whoever deleted the state and kept the target must not be told of a lease that nobody has."""

    async def main() -> None:
        connection = _sqlite(tmp_path)()
        later = await opened(MemoryStore(), plan_id="00000009-00000000", store=SqlCursor(connection), scope="p")
        later.attach()
        late = await opened(MemoryStore(), plan_id="00000001-ffffffff", store=SqlCursor(connection), scope="p")
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
