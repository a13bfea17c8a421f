"""What the operator hears of workers that die, of waits for them, and of tasks that no worker can do."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from distributed.fleet import Fleet
from distributed.together import run_together
from towline import Context, module
from towline.coordination.records import FeedEntry, WorkerStatus
from towline.distributed.watching import WorkerWatch
from towline.testing import clause, run_virtual
from towline.testing.contract_cases.scene import registration_of

if TYPE_CHECKING:
    pass

SCENE: Any = SimpleNamespace(run_id="r")


def watch_of(*workers: str) -> WorkerWatch:
    watch = WorkerWatch(timeout_s=30, heartbeat_s=5)
    watch.see([registration_of(SCENE, worker, host="forge", pid=7) for worker in workers])
    return watch


def status(worker_id: str, silent_s: float) -> WorkerStatus:
    return WorkerStatus(worker_id=worker_id, session="s", silent_ms=round(silent_s * 1000))


def entry(kind: Any, worker_id: str, task_id: str | None = None, why: str | None = None) -> FeedEntry:
    return FeedEntry(seq=1, kind=kind, worker_id=worker_id, task_id=task_id, epoch=1, why=why)


@clause("DIST-33")
def test_a_death_is_one_line_with_the_tasks_that_go_back() -> None:
    """``queued`` and ``running`` again tell nobody that a machine is gone, nor which."""
    watch, holders = watch_of("w-1", "w-2", "w-3"), {"w-2": ["a", "b"]}
    gone = entry("worker_gone", "w-2", why="silent")
    lost = [entry("requeued", "w-2", "a"), entry("requeued", "w-2", "b")]
    line = "worker w-2 (forge, process 7) has not been heard of for 30 s: a, b go back to the queue"
    assert watch.losses([*lost, gone], holders) == [line]
    later = watch_of("w-2")
    assert [later.losses([gone], holders), later.losses(lost, holders)] == [[], [line]]
    assert watch.losses([entry("worker_gone", "w-1", why="final")], {}) == []
    assert watch.losses([entry("requeued", "w-3", "c"), entry("worker_gone", "w-3", why="expelled")], {}) == []


@clause("DIST-33")
def test_a_silent_holder_is_named_once_and_when_it_is_heard_again() -> None:
    """Who looks at a run that stands still sees for whom it waits, and how long; not with each heartbeat anew."""
    watch, holders = watch_of("w-1"), {"w-1": ["a"]}
    assert watch.silences([status("w-1", 4)], holders) == []
    [line] = watch.silences([status("w-1", 12)], holders)
    assert line == (
        "worker w-1 (forge, process 7) was last heard of 12 s ago; a waits until its lease has run out, in about 18 s"
    )
    assert watch.silences([status("w-1", 17)], holders) == []
    assert watch.silences([status("w-1", 1)], holders) == ["worker w-1 (forge, process 7) is heard of again"]


@clause("DIST-33", "DIST-52")
def test_a_holder_that_a_new_master_never_saw_is_named_too() -> None:
    """All workers died before the resume: what they held waits for the lease, and the operator for a word of it."""
    [line] = watch_of().silences([], {"w-9": ["a"]})
    assert line == "worker w-9 is not there; a waits until its lease has run out, within 30 s"


@module(requires="gpu")
async def needs_gpu(ctx: Context) -> int:
    return 1


@clause("DIST-28")
def test_a_task_without_a_worker_is_spoken_of_long_before_it_fails() -> None:
    """Five minutes without a word look like a hang; what is missing can be started meanwhile."""
    run = run_virtual(run_together([needs_gpu], workers={"w": ()}, registration_timeout_s=60.0))
    assert run.report.status == "failed"
    [told] = [warning for warning in run.report.warnings if "none has come yet" in warning]
    assert told.startswith("needs_gpu waits for a worker with gpu; none has come yet. Workers seen: ")
    assert "Workers seen: w (" in told
    assert told.endswith("Without one for 60 s a task fails")


ONE = """
import os, time
from pathlib import Path
from towline import Pipeline, SyncContext, module

@module
def one(ctx: SyncContext) -> int:
    with (Path(os.environ["SPREAD_MARKS"]) / "starts.txt").open("a") as file:
        file.write(f"one {os.getpid()} {ctx.epoch}\\n")
    time.sleep(1)
    return 1

pipeline = Pipeline("one", [one])
"""
"""A program whose body ends when it is known who is idle."""


@clause("DIST-33", "COORD-C41")
def test_a_killed_worker_is_named_by_its_master(fleet: Fleet) -> None:
    """kill -9 in a body: the master says which process it was and what it held, and the task's own log has it too."""
    fleet.worker("w-1", parallelism=1)
    fleet.worker("w-2", parallelism=1)
    master = fleet.start("master", minimum_workers=2)
    victim = fleet.wait_for_start("grow")
    os.kill(victim, signal.SIGKILL)
    result = fleet.result(master)
    lost = [one for one in result["warnings"] if f"process {victim}) has not been heard of for 1 s: grow[" in one]
    assert len(lost) == 1, result["warnings"]
    logs = [path.read_text("utf-8") for path in (fleet.folder / "state").rglob("log/grow*.txt")]
    assert sum("was lost with it (epoch 1): it is queued again" in log for log in logs) == 1


@clause("DIST-43", "DIST-70")
def test_a_dead_worker_without_work_holds_up_the_end_for_a_heartbeat_only(fleet: Fleet) -> None:
    """It owes its counts alone: nobody waits for its lease, which is a minute here, nor until the last reports are due."""
    fleet.given |= {"worker_timeout_s": 60.0, "master_timeout_s": 120.0, "parallelism": 1}
    fleet.program = fleet.folder / "one.py"
    fleet.program.write_text(ONE, encoding="utf-8")
    workers = [fleet.worker("w-1"), fleet.worker("w-2")]
    master = fleet.start("master", minimum_workers=2)
    busy = fleet.wait_for_start("one")
    [idle] = [worker for worker in workers if worker.pid != busy]
    idle.kill()
    began = time.monotonic()
    result = fleet.result(master)
    assert result["status"] == "succeeded"
    [told] = [text for text in result["warnings"] if text.startswith("no final status came from")]
    assert f"process {idle.pid}), last heard of" in told
    assert time.monotonic() - began < 5.0  # the body takes 1 s, and last reports are waited for 5 s here


@clause("COORD-C03", "COORD-C04")
def test_a_worker_that_is_started_again_waits_for_its_own_place(fleet: Fleet) -> None:
    """A supervisor starts a killed instance at once: its former self, on this machine, is gone for certain."""
    fleet.given |= {"worker_timeout_s": 3.0, "parallelism": 1}
    first = fleet.worker("w-1")
    master = fleet.start("master", minimum_workers=1)
    fleet.wait_for_start("grow")
    first.kill()
    first.wait()
    second = fleet.worker("w-1")
    assert fleet.result(master)["status"] == "succeeded"
    code, said = fleet.ended(second)
    assert code == 0, said
    assert f"belongs to process {first.pid} of this machine, which is gone" in said


@clause("COORD-C03")
def test_a_worker_whose_name_a_living_process_has_is_refused_at_once(fleet: Fleet) -> None:
    """The call is wrong, and no waiting makes it right; the text says when it would be free."""
    fleet.given |= {"worker_timeout_s": 60.0, "master_timeout_s": 120.0}
    first = fleet.worker("w-1", parallelism=1)
    fleet.start("master", minimum_workers=1)
    fleet.wait_for_start("grow")
    code, said = fleet.ended(fleet.worker("w-1"))
    assert code != 0
    assert f"belongs to process {first.pid}" in said
    assert "its id is free once it has been silent" in said
