"""The flight log move over workers: killed, frozen, thawed, without a master; always the same target."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.move_fleet import MONTH, Fleet
from examples.runs import tasks_of
from examples.sizes import LIMIT_S
from towline.testing.redis_server import RedisTestServer


@pytest.fixture
def fleet(tmp_path: Path, legacy_file: Path, redis: RedisTestServer) -> Iterator[Fleet]:
    """A fleet of nobody."""
    made = Fleet(tmp_path, legacy_file, redis.url)
    yield made
    made.close()


def test_workers_die_freeze_and_wake_the_master_too_and_the_target_is_the_same(fleet: Fleet, local_digest: str) -> None:
    """Machines go in the middle of a month; others go on at its cursor, and whoever comes back too late writes nothing."""
    workers = [fleet.worker() for _ in range(4)]
    master = fleet.master()

    frozen = fleet.importer(master)
    fleet.wait_until(lambda: fleet.written() >= 3_000)
    fleet.freeze(frozen)
    left_at = fleet.written()

    killed = fleet.importer(master, frozen)
    fleet.wait_until(lambda: fleet.written() >= left_at + 2_000)
    killed.kill()

    fleet.importer(master, frozen, killed)
    frozen.send_signal(signal.SIGCONT)
    fleet.wait_until(lambda: fleet.written() >= left_at + 6_000)
    master.kill()
    again = fleet.master()

    said, _ = again.communicate(timeout=LIMIT_S)
    assert again.returncode == 0, said
    assert fleet.digest() == local_digest
    tasks = tasks_of(fleet.folder)
    assert {task["state"] for task in tasks.values()} == {"succeeded"}
    assert tasks[MONTH]["epoch"] >= 3  # more when this machine is so busy that a living worker misses its lease
    assert tasks[MONTH]["worker"].split("-")[-2] != str(killed.pid)
    assert {task["attempts"] for name, task in tasks.items() if name.startswith(("capture", "analyse"))} == {1}
    assert [one.wait(LIMIT_S) for one in workers if one is not killed] == [0, 0, 0]
