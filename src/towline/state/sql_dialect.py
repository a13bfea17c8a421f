"""Talk to a DB-API connection whose placeholders are not known beforehand."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from towline.errors.state import StateUnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?\Z")
_MARK = re.compile(r"\?")


class DbConnection(Protocol):
    """A DB-API connection, as far as cursors and id maps need it."""

    def cursor(self) -> Any: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Sql:
    """Run statements written with ``?`` in the paramstyle of the connection's driver.

    SQLite from 3.24 and PostgreSQL are tested; the statements need ``ON CONFLICT DO NOTHING``.

    Raises:
        StateUnsupportedError: The driver names no paramstyle that is known here.
    """

    def __init__(self, connection: DbConnection, paramstyle: str | None = None) -> None:
        self.connection = connection
        self._style = paramstyle or _paramstyle_of(connection)
        if self._style not in ("qmark", "format", "pyformat", "numeric"):
            raise StateUnsupportedError(type(connection).__name__, f"its paramstyle is {self._style!r}")

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        """Run a statement; returns how many rows it changed."""
        with self._cursor(statement, values) as cursor:
            return int(cursor.rowcount)

    def run_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        cursor = self.connection.cursor()
        try:
            cursor.executemany(self._spelled(statement), rows)
        finally:
            cursor.close()

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._cursor(statement, values) as cursor:
            return [tuple(row) for row in cursor.fetchall()]

    @contextmanager
    def _cursor(self, statement: str, values: Sequence[object]) -> Iterator[Any]:
        cursor = self.connection.cursor()
        try:
            cursor.execute(self._spelled(statement), tuple(values))
            yield cursor
        finally:
            cursor.close()

    def _spelled(self, statement: str) -> str:
        if self._style == "qmark":
            return statement
        if self._style == "numeric":
            parts = _MARK.split(statement)
            return parts[0] + "".join(f":{number}{part}" for number, part in enumerate(parts[1:], 1))
        return _MARK.sub("%s", statement)


def checked_table(name: str) -> str:
    """Return a table name that can stand in a statement. Raises ``ValueError``."""
    if _NAME.match(name) is None:
        raise ValueError(f"{name!r} is no table name: letters, digits and _, at most one dot for the schema")
    return name


def _paramstyle_of(connection: DbConnection) -> str:
    """Ask the driver's module; it is loaded, since it made the connection."""
    for kind in type(connection).__mro__:
        parts = kind.__module__.split(".")
        for length in range(len(parts), 0, -1):
            style = getattr(sys.modules.get(".".join(parts[:length])), "paramstyle", None)
            if isinstance(style, str):
                return style
    return "unknown"
