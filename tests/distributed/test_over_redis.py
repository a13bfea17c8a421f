"""Master and workers as processes over a real Redis; they are really killed and stopped."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from distributed.fleet import Fleet
from towline.testing import clause
from towline.testing.redis_server import RedisTestServer

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = {"seeds", *(f"grow-{seed}" for seed in range(6)), "harvest"}


@clause("DIST-02", "DIST-05", "DIST-06", "DIST-26")
def test_two_workers_do_the_work_of_a_master_without_slots(fleet: Fleet) -> None:
    """The main road: everything runs elsewhere, each body once, everybody leaves with 0."""
    fleet.given["worker_timeout_s"] = 5.0
    workers = [fleet.worker("w-1"), fleet.worker("w-2")]
    master = fleet.start("master", minimum_workers=2)

    result = fleet.result(master)

    assert result["status"] == "succeeded"
    assert sorted(name for name, _ in fleet.starts()) == sorted(EXPECTED)
    assert len({pid for _, pid in fleet.starts()}) == 2
    assert {task[1] for name, task in result["tasks"].items() if name != "grow"} <= {"w-1", "w-2"}
    assert [fleet.ended(worker)[0] for worker in workers] == [0, 0]


@clause("COORD-C41", "DIST-33")
def test_the_work_of_a_killed_worker_is_done_by_another(fleet: Fleet) -> None:
    """kill -9 in a body: the task runs again after the lease, and the run succeeds."""
    fleet.worker("w-1", parallelism=1)
    fleet.worker("w-2", parallelism=1)
    master = fleet.start("master", minimum_workers=2)
    victim = fleet.wait_for_start("grow")

    os.kill(victim, signal.SIGKILL)

    result = fleet.result(master)
    assert result["status"] == "succeeded"
    again = [name for name, _ in fleet.starts()]
    assert set(again) == EXPECTED
    assert len(again) == len(EXPECTED) + 1


@clause("COORD-C43", "DIST-22")
def test_a_stopped_worker_that_wakes_changes_nothing(fleet: Fleet) -> None:
    """SIGSTOP longer than the lease: the task goes to another; the sleeper drops its own and works on."""
    fleet.worker("w-1", parallelism=1)
    fleet.worker("w-2", parallelism=1)
    fleet.environ["SPREAD_SLEEP"] = "0.8"
    master = fleet.start("master", minimum_workers=2)
    sleeper = fleet.wait_for_start("grow")
    task = next(name for name, pid in fleet.starts() if pid == sleeper and name.startswith("grow"))
    os.kill(sleeper, signal.SIGSTOP)
    fleet.wait_for_start(task, 2)

    os.kill(sleeper, signal.SIGCONT)

    result = fleet.result(master)
    assert result["status"] == "succeeded"
    assert sum(1 for name, _ in fleet.starts() if name == task) == 2


@clause("DIST-24", "COORD-C49")
def test_a_worker_that_is_told_to_leave_hands_over(fleet: Fleet) -> None:
    """SIGTERM: no new claim, the running task is given back at once, not after its lease; exit code 143."""
    fleet.environ["SPREAD_SLEEP"] = "1.5"
    fleet.given |= {"worker_timeout_s": 60.0, "master_timeout_s": 120.0}
    leaving = fleet.worker("w-1", parallelism=1)
    master = fleet.start("master", minimum_workers=1)
    fleet.wait_for_start("grow")
    fleet.environ["SPREAD_SLEEP"] = "0.05"

    leaving.send_signal(signal.SIGTERM)

    assert fleet.ended(leaving)[0] == 143
    fleet.worker("w-2")
    assert fleet.result(master)["status"] == "succeeded"


@clause("DIST-50", "DIST-51", "DIST-52", "DIST-54")
def test_a_restarted_master_goes_on(fleet: Fleet) -> None:
    """kill -9 of the master: a new one with the same run id adopts what is done and what runs."""
    fleet.given["worker_timeout_s"] = 5.0
    fleet.worker("w-1", parallelism=2)
    first = fleet.start("master", minimum_workers=1)
    fleet.wait_for_start("grow", 3)
    first.kill()
    first.wait()

    second = fleet.start("master")

    result = fleet.result(second)
    assert result["status"] == "succeeded"
    assert sorted(name for name, _ in fleet.starts()) == sorted(EXPECTED)


@clause("DIST-51")
def test_a_master_that_works_itself_is_restarted_at_once(fleet: Fleet) -> None:
    """Its own pool is a worker too, whose lease has not run out yet: an operator must not have to wait for that."""
    fleet.given |= {"worker_timeout_s": 4.0, "master_parallelism": 2}
    first = fleet.start("master")
    fleet.wait_for_start("grow")
    first.kill()
    first.wait()

    result = fleet.result(fleet.start("master"))

    assert result["status"] == "succeeded"
    assert {task[0] for task in result["tasks"].values()} == {"succeeded"}


@clause("DIST-34", "DIST-35", "CUR-05")
def test_another_worker_goes_on_at_the_cursor(server: RedisTestServer, tmp_path: Path) -> None:
    """A migration of a million rows is not begun anew because one machine died: at most one item is done twice."""
    fleet = Fleet(tmp_path, server.url, f"run-{tmp_path.name}", program="moving.py")
    try:
        fleet.worker("w-1", parallelism=1)
        fleet.worker("w-2", parallelism=1)
        master = fleet.start("master", minimum_workers=2)
        victim = fleet.wait_for_start("item-", 20)
        os.kill(victim, signal.SIGKILL)

        assert fleet.result(master)["status"] == "succeeded"

        items = [int(name.partition("-")[2]) for name, _ in fleet.starts()]
        assert len(items) <= 61
        assert sorted(set(items)) == list(range(1, 61))
        assert len({pid for _, pid in fleet.starts()}) == 2
    finally:
        fleet.close()


@clause("DIST-25", "COORD-C85")
def test_a_worker_whose_master_is_gone_leaves(fleet: Fleet) -> None:
    """It waits for the master timeout, cancels what it runs, and says so with exit code 4."""
    fleet.given |= {"worker_timeout_s": 1.0, "master_timeout_s": 2.0}
    fleet.environ["SPREAD_SLEEP"] = "60"
    worker = fleet.worker("w-1")
    master = fleet.start("master", minimum_workers=1)
    fleet.wait_for_start("grow")
    master.kill()

    code, error = fleet.ended(worker)

    assert code != 0
    assert "MasterLostError" in error
    assert "Start it again with the same run id" in error


def _outage(tmp_path: Path, *, keep_data: bool) -> dict[str, Any]:
    """Stop the server in the middle of a run for a moment; returns what the master reported."""
    with RedisTestServer(persistent=True) as own:
        fleet = Fleet(tmp_path, own.url, "run-1", sleep_s=0.6, worker_timeout_s=4.0)
        try:
            worker = fleet.worker("w-1", parallelism=2)
            master = fleet.start("master", minimum_workers=1)
            fleet.wait_for_start("grow")
            own.stop(kill=True)
            if not keep_data:
                own.clear()
            time.sleep(1.0)  # the outage itself: real processes, a real server
            own.start()
            result = fleet.result(master)
            assert fleet.ended(worker)[0] == 0
            return result
        finally:
            fleet.close()


@clause("COORD-R17", "COORD-R18", "COORD-R20")
def test_a_run_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    """Stopped and started with its data: everybody reconnects and the run goes on."""
    assert _outage(tmp_path, keep_data=True)["status"] == "succeeded"


@clause("COORD-R16", "COORD-R19")
def test_a_run_survives_the_loss_of_all_data(tmp_path: Path) -> None:
    """Started empty: the master opens the run anew from its plan and says so."""
    result = _outage(tmp_path, keep_data=False)
    assert result["status"] == "succeeded"
    assert any("has lost the run's data" in warning for warning in result["warnings"])
