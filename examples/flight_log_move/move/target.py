"""The target database, SQLite or PostgreSQL: tables, writes that may be repeated, and a digest of all it holds."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any

Row = Sequence[object]

TABLES = {
    "carriers": "code text primary key, name text not null",
    "airports": "code text primary key, name text not null, latitude double precision, longitude double precision,"
    " zone text, ident text",
    "planes": "tail text primary key, year integer, kind text, manufacturer text, model text, engines integer,"
    " seats integer, placeholder integer not null",
    "sheets": "key text primary key, sha256 text not null, row_count integer not null, content bytea",
    "flights": "legacy_key text primary key, date text not null, origin text not null references airports,"
    " dest text not null references airports, carrier text not null references carriers, number integer not null,"
    " tail text not null references planes, scheduled_departure integer not null, departure integer,"
    " departure_delay integer, scheduled_arrival integer not null, arrival integer, arrival_delay integer,"
    " air_time integer, distance integer not null, sheet text references sheets",
    "skipped": "legacy_key text primary key, code text not null",
    "links": "flight text primary key references flights, next_flight text not null references flights",
}
"""Table -> columns; the first column is what a repeated write finds its row by. A referenced table comes first."""


class Target:
    """One connection to the target. Nothing is committed but by :meth:`commit`."""

    def __init__(self, url: str) -> None:
        self.is_postgres = url.startswith(("postgresql://", "postgres://"))
        self.connection = _postgres(url) if self.is_postgres else _sqlite(url)

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *exc: object) -> None:
        self.connection.close()

    def create_tables(self) -> None:
        """Create what is missing."""
        for table, columns in TABLES.items():
            kept = columns if self.is_postgres else columns.replace("bytea", "blob")
            self._run(f"create table if not exists {table} ({kept})")
        self._run("create index if not exists flights_of_plane on flights (tail, legacy_key)")
        self.commit()

    def commit(self) -> None:
        """Make all writes since the last commit durable, as one."""
        self.connection.commit()

    def write(self, table: str, rows: Iterable[Row]) -> None:
        """Insert rows, or set those that are there already: doing it twice changes nothing (CUR-04)."""
        names = [column.split()[0] for column in TABLES[table].split(", ")]
        kept = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
        marks = ", ".join(["?"] * len(names))
        query = (
            f"insert into {table} ({', '.join(names)}) values ({marks}) on conflict ({names[0]}) do update set {kept}"
        )
        with contextlib.closing(self.connection.cursor()) as cursor:
            cursor.executemany(self._dialect(query), [tuple(row) for row in rows])

    def set_content(self, key: str, content: bytes) -> None:
        """Store the bytes of a sheet that has its row."""
        self._run("update sheets set content = ? where key = ?", content, key)

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        return int(next(self.query(f"select count(*) from {table}"))[0])

    def query(self, text: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query written with ``?`` marks."""
        with contextlib.closing(self.connection.cursor()) as cursor:
            cursor.execute(self._dialect(text), values)
            while rows := cursor.fetchmany(5_000):
                yield from rows

    def digest(self) -> str:
        """Return the SHA-256 of every row of every table in the order of its key: the same for the same content."""
        sha = sha256()
        for table, columns in TABLES.items():
            sha.update(f"-- {table}\n".encode())
            # Text sorts by the language of a PostgreSQL database unless told otherwise.
            order = columns.split()[0] + (' collate "C"' if self.is_postgres else "")
            for row in self.query(f"select * from {table} order by {order}"):
                plain = [sha256(cell).hexdigest() if isinstance(cell, bytes) else cell for cell in row]
                sha.update(json.dumps(plain, ensure_ascii=False).encode() + b"\n")
        return sha.hexdigest()

    def _run(self, query: str, *values: object) -> None:
        with contextlib.closing(self.connection.cursor()) as cursor:
            cursor.execute(self._dialect(query), values)

    def _dialect(self, query: str) -> str:
        return query.replace("?", "%s") if self.is_postgres else query


def _sqlite(file: str) -> Any:
    # Twelve months may write: whoever finds the file locked waits its turn.
    connection = sqlite3.connect(file, timeout=60, check_same_thread=False)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    return connection


def _postgres(url: str) -> Any:
    import psycopg

    return psycopg.connect(url)
