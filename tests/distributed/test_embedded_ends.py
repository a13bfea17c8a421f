"""``--workers N`` when the run ends early: at once, with the reason alone (DIST-12, PLAN-18)."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from towline.testing import clause

if TYPE_CHECKING:
    from distributed.machine import Machine

MANY = """
from towline import Pipeline, SyncContext, module, result_of

@module
def numbers(ctx: SyncContext) -> list[int]:
    return list(range(60))

@module(each=result_of(numbers))
def big(ctx: SyncContext, item: int) -> str:
    return "y" * item

pipeline = Pipeline("many", [big])

if __name__ == "__main__":
    import os, sys
    from towline.state.files import SystemFiles

    left, write = int(os.environ["WRITES_LEFT"]), SystemFiles.write

    def fail_later(self, fd, data):
        global left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        write(self, fd, data)

    SystemFiles.write = fail_later  # of this process: the master's disk is full
    pipeline.main()
"""


@clause("PLAN-18", "COORD-H27")
@pytest.mark.parametrize("writes_left", [8, 20, 60])
def test_a_full_disk_ends_the_run_at_once(machine: Machine, writes_left: int) -> None:
    """An operator needs the one line that says what to repair, not half a minute of silence and what followed from it."""
    begun = time.monotonic()
    code, shown = machine.run(machine.write("many.py", MANY), "--workers", "2", WRITES_LEFT=str(writes_left))
    assert code == 4, shown
    assert "No space left on device" in shown.splitlines()[-1]
    assert "MasterLostError" not in shown
    assert "coordinator is closed" not in shown
    assert "died" not in shown
    assert time.monotonic() - begun < 20, "a lease was waited for"


SLEEPS = """
import time
from towline import Pipeline, SyncContext, module

@module
def fails(ctx: SyncContext) -> None:
    open("starts.txt", "a").write("fails 1\\n")
    time.sleep(0.2)
    raise ValueError("on purpose")

pipeline = Pipeline("sleeps", [fails])

if __name__ == "__main__":
    pipeline.main()
"""


@clause("DIST-12")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, None])
def test_workers_that_leave_late_are_not_spoken_of(machine: Machine, number: signal.Signals | None) -> None:
    """A worker that was still starting when the run ended has lost nothing: a warning of it would be false."""
    process = machine.start(machine.write("sleeps.py", SLEEPS), "--workers", "4", "--parallel", "1")
    machine.wait_for_start("fails")
    if number is not None:
        process.send_signal(number)
    code, shown = machine.end_of(process)
    assert code == (1 if number is None else 128 + number), shown
    assert "waited for" not in shown
    assert "MasterLostError" not in shown


POISON = """
import os
from towline import Pipeline, SyncContext, module

def say(text):
    open("starts.txt", "a").write(f"{text} {os.getpid()}\\n")

@module
def p1(ctx: SyncContext) -> None:
    say("p1")
    os.kill(os.getpid(), 9)

@module
def p2(ctx: SyncContext) -> None:
    say("p2")
    os.kill(os.getpid(), 9)

@module
def sound(ctx: SyncContext) -> int:
    say("sound")
    return 1

pipeline = Pipeline("poison", [p1, p2, sound])

if __name__ == "__main__":
    if os.environ.get("ONE_LIFE"):
        from towline.distributed.restarts import Restarts
        Restarts.pause_s = lambda self, worker_id, had_task=False: None
    pipeline.main()
"""


@clause("DIST-12", "COORD-C44")
def test_bodies_that_kill_their_process_fail_alone(machine: Machine) -> None:
    """A crash in a C extension must cost its own task, not the worker of all others, and never the master."""
    program = machine.write("poison.py", POISON)
    process = machine.start(program, "--workers", "1", "--parallel", "1", "--keep-going")
    code, shown = machine.end_of(process)
    assert code == 1, shown
    starts = [mark[0] for mark in machine.marks()]
    assert (starts.count("p1"), starts.count("p2"), starts.count("sound")) == (4, 4, 1)
    assert str(process.pid) not in {mark[1] for mark in machine.marks()}
    assert "no worker process is left" not in shown
    assert "embedded-worker" not in shown
    assert "no worker can run" not in shown, "while a restart is pending, nothing is missing"
    report = machine.report("poison")
    assert {task["id"]: task["attempts"] for task in report["tasks"]} == {"p1": 4, "p2": 4, "sound": 1}
    assert {failure["attempt"] for failure in report["failures"]} == {4}


@clause("DIST-12")
def test_a_task_that_a_worker_died_over_is_not_tried_in_the_master(machine: Machine) -> None:
    """The master's own process is the last one: what has ended a worker would end the run, and its record."""
    program = machine.write("poison.py", POISON)
    process = machine.start(
        program, "--workers", "1", "--parallel", "1", "--keep-going", "--module", "p1", ONE_LIFE="1"
    )
    code, shown = machine.end_of(process)
    assert code == 1, shown
    assert len(machine.marks()) == 1
    assert "p1 was running on instance-1 when that process died" in shown
