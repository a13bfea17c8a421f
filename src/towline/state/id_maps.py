"""Which record of the target came from which of the source (CUR-20..22). The user's: no flag removes them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from towline.errors.cursors import IdMapConflictError
from towline.state.files import FILE_MODE
from towline.state.sql_dialect import DbConnection, Sql, checked_table

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

_TABLE: Final = "id_map"
_PART: Final = 500
"""Sources looked up by one statement: SQLite of old allows 999 placeholders."""


class _Statements:
    """The work of an id map on one table; nothing here commits."""

    def __init__(self, sql: Sql, table: str) -> None:
        self._sql, self._table = sql, table

    def make_table(self) -> None:
        self._sql.run(
            f"CREATE TABLE IF NOT EXISTS {self._table} (source VARCHAR(500) PRIMARY KEY, target TEXT, skipped TEXT)"
        )

    def get(self, source: str) -> str | None:
        rows = self._sql.rows(f"SELECT target FROM {self._table} WHERE source = ?", (source,))
        return rows[0][0] if rows else None

    def put_many(self, pairs: list[tuple[str, str]]) -> None:
        wanted: dict[str, str] = {}
        for source, target in pairs:
            if wanted.setdefault(source, target) != target:
                raise IdMapConflictError(source, wanted[source], target)
        stored = self._stored(list(wanted))
        for source, target in wanted.items():
            known = stored.get(source)
            if known is not None and known != target:
                raise IdMapConflictError(source, known, target)
        new = [(source, target) for source, target in wanted.items() if source not in stored]
        once_skipped = [(target, source) for source, target in wanted.items() if stored.get(source, "") is None]
        if new:
            self._sql.run_many(f"INSERT INTO {self._table} (source, target) VALUES (?, ?)", new)
        if once_skipped:
            self._sql.run_many(f"UPDATE {self._table} SET target = ?, skipped = NULL WHERE source = ?", once_skipped)

    def skip(self, source: str, why: str) -> None:
        known = self._stored([source])
        if known.get(source) is not None:
            raise IdMapConflictError(source, known[source], None)
        if source in known:
            self._sql.run(f"UPDATE {self._table} SET skipped = ? WHERE source = ?", (why, source))
        else:
            self._sql.run(f"INSERT INTO {self._table} (source, skipped) VALUES (?, ?)", (source, why))

    def seed(self, pairs: list[tuple[str, str]]) -> None:
        self._sql.run_many(f"INSERT INTO {self._table} (source, target) VALUES (?, ?) ON CONFLICT DO NOTHING", pairs)

    def items(self) -> Iterator[tuple[str, str]]:
        rows = self._sql.rows(f"SELECT source, target FROM {self._table} WHERE target IS NOT NULL ORDER BY source")
        yield from ((source, target) for source, target in rows)

    def _stored(self, sources: list[str]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for start in range(0, len(sources), _PART):
            part = sources[start : start + _PART]
            marks = ", ".join("?" * len(part))
            found.update(self._sql.rows(f"SELECT source, target FROM {self._table} WHERE source IN ({marks})", part))
        return found


class IdMap:
    """An id map in an SQLite file of its own, each call durable when it returns (WAL, full sync).

    Threads may share it. Order per item: effect with provenance in the target, then ``put``, then the
    cursor; after a crash ``seed`` it from the provenance (CUR-21).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._statements: _Statements | None = None

    def get(self, source: str) -> str | None:
        """Return the target of a source; ``None`` when it has none or was skipped."""
        with self._lock:
            return self._opened().get(source)

    def put(self, source: str, target: str) -> None:
        """Record a pair; the same pair again does nothing. Raises ``IdMapConflictError`` for a second target."""
        self.put_many([(source, target)])

    def put_many(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Record pairs, all or none. Raises ``IdMapConflictError``."""
        self._change(lambda statements: statements.put_many(list(pairs)))

    def skip(self, source: str, why: str) -> None:
        """Record that a source has no target. Raises ``IdMapConflictError`` when it has one."""
        self._change(lambda statements: statements.skip(source, why))

    def seed(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Record the pairs whose source is not there yet; what is there stays."""
        self._change(lambda statements: statements.seed(list(pairs)))

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs by source, without the skipped ones."""
        with self._lock:
            pairs = list(self._opened().items())
        yield from pairs

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        with self._lock:
            connection, self._connection, self._statements = self._connection, None, None
            if connection is not None:
                connection.close()

    def __enter__(self) -> IdMap:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _opened(self) -> _Statements:
        if self._statements is None:
            import sqlite3

            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, FILE_MODE))  # SQLite itself would make it with 0644
            connection = sqlite3.connect(self.path, check_same_thread=False, timeout=30.0)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            statements = _Statements(Sql(connection), _TABLE)
            statements.make_table()
            connection.commit()
            self._connection, self._statements = connection, statements
        return self._statements

    def _change(self, work: Callable[[_Statements], None]) -> None:
        with self._lock:
            statements = self._opened()
            connection = self._connection
            assert connection is not None
            try:
                connection.execute("BEGIN IMMEDIATE")  # a check and its write belong together, also across processes
                work(statements)
                connection.commit()
            except BaseException:
                connection.rollback()
                raise


class SqlIdMap:
    """An id map in a table of the target, changed in the caller's transaction; nothing here commits.

    The table is made, in that transaction, when the first call finds none.
    """

    def __init__(self, connection: DbConnection, table: str, *, paramstyle: str | None = None) -> None:
        self._statements = _Statements(Sql(connection, paramstyle), checked_table(table))

    def get(self, source: str) -> str | None:
        """Return the target of a source; ``None`` when it has none or was skipped."""
        return self._ready().get(source)

    def put(self, source: str, target: str) -> None:
        """Record a pair; the same pair again does nothing. Raises ``IdMapConflictError`` for a second target."""
        self.put_many([(source, target)])

    def put_many(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Record pairs. Raises ``IdMapConflictError`` before it changed anything."""
        self._ready().put_many(list(pairs))

    def skip(self, source: str, why: str) -> None:
        """Record that a source has no target. Raises ``IdMapConflictError`` when it has one."""
        self._ready().skip(source, why)

    def seed(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Record the pairs whose source is not there yet; what is there stays."""
        self._ready().seed(list(pairs))

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs by source, without the skipped ones."""
        yield from self._ready().items()

    def _ready(self) -> _Statements:
        # Made at each first use, not remembered over a rollback: IF NOT EXISTS costs next to nothing.
        self._statements.make_table()
        return self._statements
