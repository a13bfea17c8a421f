"""Machines that share a Redis and nothing else: each process in a folder of its own."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from distributed.fleet import PROGRAMS, Fleet
from towline.testing import clause
from towline.testing.redis_server import RedisTestServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOTAL = 40


@pytest.fixture
def server() -> Iterator[RedisTestServer]:
    with RedisTestServer(persistent=True) as running:
        yield running


@pytest.fixture
def fleet(server: RedisTestServer, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, server.url, "run-1", program="keeping.py", state=None, worker_timeout_s=2.0)
    yield made
    made.close()


@clause("DIST-34", "ART-15")
def test_values_artifacts_and_cursors_meet_on_the_server(fleet: Fleet) -> None:
    """No shared folder, no --state: the coordinator's server has it all, large values and files included."""
    fleet.worker("w-1", parallelism=1, apart=True)
    fleet.worker("w-2", parallelism=1, apart=True)
    master = fleet.start("master", minimum_workers=2, apart=True)

    result = fleet.result(master)

    assert result["status"] == "succeeded", result
    assert {task[0] for task in result["tasks"].values()} == {"succeeded"}
    assert not list(fleet.folder.rglob("plan.json"))
    (report,) = fleet.folder.rglob("report.json")
    assert report.parts[-5:-1] == (".towline", "keeping", "runs", "run-1")[-4:]
    assert (report.parent / "events.jsonl").is_file()


@clause("DIST-34", "DIST-50", "DIST-51", "STATE-08")
def test_a_master_killed_on_one_machine_goes_on_on_another(fleet: Fleet) -> None:
    """kill -9: another machine takes over once the dead owner's lease has run out; done work is not done again."""
    fleet.environ["SPREAD_SLEEP"] = "0.1"
    fleet.worker("w-1", parallelism=1, apart=True)
    fleet.worker("w-2", parallelism=1, apart=True)
    first = fleet.start("master", minimum_workers=2, apart=True)
    fleet.wait_for_start("item-", 5)
    first.kill()

    second = fleet.start("master", apart=True)

    result = fleet.result(second)
    assert result["status"] == "succeeded", result
    names = [name for name, _ in fleet.starts()]
    assert names.count("write_book") == 1
    items = [name for name in names if name.startswith("item-")]
    assert len(set(items)) == TOTAL
    assert len(items) == TOTAL


@clause("DIST-30", "DIST-52")
def test_what_the_dead_master_itself_held_is_free_when_another_takes_over(fleet: Fleet) -> None:
    """Its own slots died with it, as its lease on the state has shown: nobody waits a second time for that."""
    lease_s = 5.0
    fleet.environ["SPREAD_SLEEP"] = "0.1"
    fleet.given |= {"worker_timeout_s": lease_s, "master_timeout_s": 2 * lease_s, "heartbeat_s": 0.5}
    first = fleet.start("master", master_parallelism=2, apart=True)
    fleet.wait_for_start("item-", 5)
    fleet.worker("w-1", parallelism=1, apart=True)
    first.kill()
    first.wait()
    killed_at, done = time.monotonic(), len(fleet.starts())

    second = fleet.start("master", master_parallelism=1, apart=True)

    fleet.wait_for_start("", done + 1)
    assert time.monotonic() - killed_at < 2 * lease_s - 0.5
    result = fleet.result(second)
    assert result["status"] == "succeeded", result
    items = [name for name, _ in fleet.starts() if name.startswith("item-")]
    assert len(set(items)) == TOTAL
    assert len(items) <= TOTAL + 1


@clause("CUR-05", "DIST-35")
def test_a_worker_killed_in_a_cursor_is_followed_on_another_machine(fleet: Fleet) -> None:
    """At most one item is done twice."""
    fleet.worker("w-1", parallelism=1, apart=True)
    fleet.worker("w-2", parallelism=1, apart=True)
    master = fleet.start("master", minimum_workers=2, apart=True)
    os.kill(fleet.wait_for_start("item-", 10), signal.SIGKILL)

    assert fleet.result(master)["status"] == "succeeded"

    items = [name for name, _ in fleet.starts() if name.startswith("item-")]
    assert len(set(items)) == TOTAL
    assert len(items) <= TOTAL + 1


@clause("STATE-07", "COORD-R17")
def test_a_restart_of_the_server_with_its_data_is_survived(fleet: Fleet, server: RedisTestServer) -> None:
    """State, coordinator and artifacts go away together and come back together."""
    fleet.environ["SPREAD_SLEEP"] = "0.1"
    fleet.given |= {"worker_timeout_s": 6.0, "heartbeat_s": 1.0, "master_timeout_s": 20.0}
    fleet.worker("w-1", parallelism=2, apart=True)
    master = fleet.start("master", minimum_workers=1, apart=True)
    fleet.wait_for_start("item-", 5)

    server.stop(kill=True)
    server.start()

    assert fleet.result(master)["status"] == "succeeded"
    items = [name for name, _ in fleet.starts() if name.startswith("item-")]
    assert len(set(items)) == TOTAL


@clause("COORD-C08")
def test_a_worker_of_another_program_hears_that(fleet: Fleet) -> None:
    """Not that its state is another one: that is so as well, and no --state would help."""
    fleet.start("master", minimum_workers=2, apart=True)
    fleet.program = PROGRAMS / "spread.py"

    code, error = fleet.ended(fleet.worker("w-1", apart=True))

    assert code != 0
    assert "ProgramMismatchError" in error
    assert "has program 'spread/spread', the run has 'keeping/keeping'" in error


@clause("STATE-23")
def test_a_server_that_comes_back_empty_ends_the_run(fleet: Fleet, server: RedisTestServer) -> None:
    """The plan is gone: the master says so, and never makes it up from memory."""
    fleet.environ["SPREAD_SLEEP"] = "0.1"
    fleet.given |= {"worker_timeout_s": 4.0, "heartbeat_s": 1.0}
    fleet.worker("w-1", parallelism=2, apart=True)
    master = fleet.start("master", minimum_workers=1, apart=True)
    fleet.wait_for_start("item-", 5)

    server.stop(kill=True)
    server.clear()
    server.start()

    code, error = fleet.ended(master)
    assert code != 0
    assert "StateLostError" in error or "OwnershipLostError" in error
    assert server.command("EXISTS towline:{keeping}:plan.json") == b":0"
