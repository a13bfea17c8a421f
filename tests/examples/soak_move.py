"""Proof 8 of the flight log move: 1, 2 and 4 workers, SQLite and PostgreSQL, state in a folder and on Redis.

Run by ``make soak``, not with the tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.move_fleet import Fleet
from examples.sizes import LIMIT_S
from towline.testing.redis_server import RedisTestServer


@pytest.mark.parametrize("place", ["folder", "redis"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_same(
    workers: int,
    kind: str,
    place: str,
    tmp_path: Path,
    legacy_file: Path,
    redis: RedisTestServer,
    local_digest: str,
    postgres_url: str,
) -> None:
    """How many take part, where to, and where the plan lies, is a choice and not a difference."""
    redis.command("FLUSHALL")
    target = postgres_url if kind == "postgres" else None
    if target is not None:
        empty(target)
    fleet = Fleet(tmp_path, legacy_file, redis.url, target=target, state=redis.url if place == "redis" else None)
    try:
        processes = [*(fleet.worker() for _ in range(workers)), fleet.master()]
        said, _ = processes[-1].communicate(timeout=LIMIT_S)
        assert processes[-1].returncode == 0, said
        assert fleet.digest() == local_digest
        assert [one.wait(LIMIT_S) for one in processes] == [0] * (workers + 1)
    finally:
        fleet.close()


def empty(url: str) -> None:
    """Drop what an earlier test has left in a database."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("drop schema public cascade")
        connection.execute("create schema public")
