"""``--workers N``: real worker processes of one machine, which are really killed (DIST-10 to 13, CLI-13)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distributed.processes import wait_until_gone, workers_of
from towline import Options, Pipeline, SyncContext, module
from towline.distributed.restarts import Restarts
from towline.errors import ConfigurationError, DeclarationError, TargetLoadError
from towline.execution.options import default_parallelism, node_cores
from towline.pipeline.embedded_session import _slots_of_each
from towline.testing import clause

if TYPE_CHECKING:
    from distributed.machine import Machine


@module
def nothing(ctx: SyncContext) -> None:
    pass


EXPECTED = {"seeds", *(f"grow-{seed}" for seed in range(6)), "harvest"}


@clause("DIST-10", "CLI-13")
def test_three_workers_do_the_work(machine: Machine) -> None:
    """One flag: other processes do all of it, each body once, and leave with the run."""
    process = machine.start("spread.py", "--workers", "3", "--parallel", "1", SPREAD_SLEEP="0.3")
    machine.wait_for_start("grow")
    workers = workers_of(process.pid)
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in workers]

    code, shown = machine.end_of(process)

    assert code == 0, shown
    assert sorted(mark[0] for mark in machine.marks()) == sorted(EXPECTED)
    assert {int(mark[1]) for mark in machine.marks()} <= set(workers)
    assert len(workers) == 3
    assert all(b"token" not in line.lower() for line in lines)
    assert "growing 3" in shown, "what workers log is seen at the master"
    tasks = {task["id"]: task.get("worker_id") for task in machine.report("spread")["tasks"]}
    assert {tasks[name] for name in ("seeds", "harvest")} <= {"instance-1", "instance-2", "instance-3"}
    wait_until_gone(*workers)


@clause("DIST-10", "DIST-11", "DIST-08")
def test_workers_share_folder_parameters_and_secrets(machine: Machine) -> None:
    """State and artifacts by folder; what asks for the master stays there; no body sees the run's token or input."""
    process = machine.start("embedded.py", "--workers", "2", "--param", "region=us", TOWLINE_PARAM_KEY="hunter2222")
    code, shown = machine.end_of(process)

    assert code == 0, shown
    marks = {mark[0]: mark[1:] for mark in machine.marks()}
    assert marks["here"][1:] == ["us", "hunter2222", "False", "True"]
    assert int(marks["at_home"][0]) == process.pid
    assert int(marks["here"][0]) != process.pid
    assert "written past Python" in shown
    assert "hunter2222" not in shown
    assert {task["id"]: task["state"] for task in machine.report("embedded")["tasks"]}["reads"] == "succeeded"


@clause("DIST-11")
def test_the_slots_of_the_machine_are_shared() -> None:
    """Three workers with the slots of a whole machine each would run three times as much as it bears."""
    whole = default_parallelism(node_cores())
    assert _slots_of_each(Options(), 3) == max(1, whole // 3)
    assert _slots_of_each(Options(), 1_000) == 1
    assert _slots_of_each(Options(parallelism=5), 3) == 5


@clause("DIST-11")
def test_the_first_tasks_are_spread(machine: Machine) -> None:
    """Slots for all of them in the worker that is ready first would leave the others idle."""
    code, shown = machine.run("spread.py", "--workers", "3", "--parallel", "6", SPREAD_SLEEP="0.5")
    assert code == 0, shown
    assert len({mark[1] for mark in machine.marks() if mark[0].startswith("grow")}) == 3


@clause("DIST-12")
def test_a_killed_worker_is_replaced(machine: Machine) -> None:
    """Its task goes to another at once, not after its lease of 30 s, and a new process takes its place."""
    process = machine.start("spread.py", "--workers", "2", "--parallel", "1", SPREAD_SLEEP="1.0")
    os.kill(machine.wait_for_start("grow", 2), signal.SIGKILL)

    code, shown = machine.end_of(process)

    assert code == 0, shown
    assert "SIGKILL; it is started again in 0.5 s" in shown
    again = [mark[0] for mark in machine.marks()]
    assert set(again) == EXPECTED
    assert len(again) == len(EXPECTED) + 1
    assert len({mark[1] for mark in machine.marks()}) == 3


@clause("DIST-12")
def test_the_master_takes_over_when_no_worker_is_left(machine: Machine) -> None:
    """Workers that cannot live here, for want of memory for one, do not keep the run from its end."""
    process = machine.start("embedded.py", "--workers", "2", EMBEDDED_DIES="at_start")
    code, shown = machine.end_of(process)

    assert code == 0, shown
    assert {int(mark[1]) for mark in machine.marks() if mark[0] != "apart"} == {process.pid}
    assert shown.count("started again in") >= 6
    assert shown.count("it is not started again") >= 2
    assert "the rest of the run is done in the master's process" in shown


@clause("DIST-12", "CLI-13", "COORD-H27")
def test_workers_end_with_a_killed_master_and_a_later_run_goes_on(machine: Machine) -> None:
    """kill -9 of the master: nobody works on for a run without a head; done work stays done."""
    process = machine.start("spread.py", "--workers", "2", "--parallel", "1", SPREAD_SLEEP="0.4")
    machine.wait_for_start("grow", 4)
    workers = workers_of(process.pid)
    process.kill()
    process.wait()

    wait_until_gone(*workers)

    before = [mark[0] for mark in machine.marks()]
    code, shown = machine.run("spread.py", "--resume", "--workers", "2", "--parallel", "1", SPREAD_SLEEP="0.05")
    assert code == 0, shown
    again = [mark[0] for mark in machine.marks()[len(before) :]]
    assert "seeds" not in again
    assert not {"grow-0", "grow-1"} & set(again)
    assert {*before, *again} == EXPECTED
    attempts = [task.get("attempts") for task in machine.report("spread")["tasks"]]
    assert 2 in attempts, "what ran was known to the plan"


@clause("DIST-50")
def test_the_same_run_goes_on_under_its_id(machine: Machine) -> None:
    """A master that is given the id of the run that was killed continues it, with workers of its own."""
    arguments = ("--workers", "2", "--parallel", "1", "--run-id", "mine")
    process = machine.start("spread.py", *arguments, SPREAD_SLEEP="0.4")
    machine.wait_for_start("grow", 4)
    process.kill()
    process.wait()
    before = len(machine.marks())

    code, shown = machine.run("spread.py", *arguments, SPREAD_SLEEP="0.05")

    assert code == 0, shown
    assert "seeds" not in [mark[0] for mark in machine.marks()[before:]]
    assert machine.report("spread")["run_id"] == "mine"


def test_an_interrupt_ends_master_and_workers(machine: Machine) -> None:
    """Ctrl-C: bodies are cancelled, everybody leaves, and the code says that it was interrupted."""
    process = machine.start("spread.py", "--workers", "2", SPREAD_SLEEP="20")
    machine.wait_for_start("grow", 6)
    workers = workers_of(process.pid)
    process.send_signal(signal.SIGINT)

    code, shown = machine.end_of(process)

    assert code == 130, shown
    assert "started again" not in shown
    wait_until_gone(*workers)


def test_a_failure_ends_the_run_as_alone(machine: Machine) -> None:
    """Exit code 1, the error of the worker's body at the master, and clean-up tasks run."""
    code, shown = machine.run("embedded.py", "--workers", "2", EMBEDDED_BREAKS="1")
    assert code == 1, shown
    assert "broken on purpose" in shown
    assert "tidy" in {mark[0] for mark in machine.marks()}


@clause("DIST-13", "CLI-05")
@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (("--workers", "2", "--coordinator", "redis://127.0.0.1:1"), {}),
        (("--workers", "2", "--instance", "0/2"), {}),
        (("--coordinator", "redis://127.0.0.1:1"), {"TOWLINE_WORKERS": "2"}),
        (("--instance", "1/2"), {"TOWLINE_WORKERS": "2"}),
        (("--workers", "2", "--state", "memory:"), {}),
        (("--workers", "2", "--dry-run"), {}),
        (("--workers", "-1"), {}),
        ((), {"TOWLINE_WORKERS": "many"}),
    ],
)
def test_what_contradicts_workers_is_refused(
    machine: Machine, arguments: tuple[str, ...], environ: dict[str, str]
) -> None:
    """Nothing runs, and both sides of the contradiction are named."""
    code, shown = machine.run("spread.py", *arguments, **environ)
    assert code == 2, shown
    assert "workers" in shown.lower()
    assert machine.marks() == []


@clause("CLI-09")
def test_workers_are_a_setting_like_others(machine: Machine) -> None:
    """By variable; and 0 on the command line wins over it."""
    code, shown = machine.run("spread.py", TOWLINE_WORKERS="1", TOWLINE_PARALLEL="2")
    assert code == 0, shown
    assert {task.get("worker_id") for task in machine.report("spread")["tasks"]} >= {"instance-1"}
    process = machine.start("spread.py", "--workers", "0", TOWLINE_WORKERS="1")
    code, shown = machine.end_of(process)
    assert code == 0, shown
    assert int(machine.marks()[-1][1]) == process.pid


IN_CODE = """
import os
from dataclasses import dataclass
from towline import Options, Pipeline, Secret, SyncContext, module

@dataclass
class Keys:
    key: Secret = Secret("unset")

@module
def who(ctx: SyncContext) -> None:
    if ctx.params(Keys).key.reveal() != "hunter2222" or any("hunter2222" in value for value in os.environ.values()):
        raise ValueError("the secret is not where it belongs")

pipeline = Pipeline("in_code", [who], params=Keys, options=Options(workers=1))

if __name__ == "__main__":
    import sys

    if sys.argv[1] == "check":
        pipeline.main()
    report = pipeline.run_sync(Keys(Secret('hunter2222')))
    print(report.status, [task.worker_id for task in report.tasks])
"""


@clause("DIST-10")
def test_workers_can_be_asked_for_in_code(machine: Machine) -> None:
    """A program without a command line starts them too; a secret in code reaches them, and no command of theirs."""
    process = machine.start(machine.write("in_code.py", IN_CODE))
    code, shown = machine.end_of(process)
    assert code == 0, shown
    assert shown.splitlines()[-1] == "succeeded ['instance-1']"


@clause("MOD-27")
def test_a_program_without_a_file_has_no_workers() -> None:
    """What lives in a notebook or a function cannot be loaded by another process; nothing has run."""
    here = Pipeline("here", [nothing], options=Options(workers=2, state="memory:"))
    with pytest.raises(TargetLoadError, match="--workers"):
        asyncio.run(here.run())


@clause("CLI-11", "SER-02")
def test_check_finds_what_workers_would_be_refused_for(machine: Machine) -> None:
    """A result that cannot travel is fine in one process; with workers it must be found before the run."""
    program = machine.write("in_code.py", IN_CODE.replace("-> None:", "-> object:"))
    done = machine.start(program, verb=("check",))
    code, shown = machine.end_of(done)
    assert code == 2, shown
    assert "who" in shown


@clause("DIST-13", "DIST-07")
def test_options_contradict_each_other() -> None:
    """Refused where they are written, before any run."""
    with pytest.raises(ConfigurationError, match="not both"):
        Options(workers=2, coordinator="redis://127.0.0.1:1")
    for wrong in (-1, True, 1.5):
        with pytest.raises(DeclarationError, match="workers"):
            Options(workers=wrong)  # type: ignore[arg-type]


@clause("DIST-12")
def test_a_worker_is_started_again_three_times() -> None:
    """A process that dies of what it does would die for ever; one that was killed by chance comes back."""
    restarts = Restarts()
    assert [restarts.pause_s("instance-1") for _ in range(5)] == [0.5, 1.0, 2.0, None, None]
    assert restarts.pause_s("instance-2") == 0.5
    assert restarts.pause_s("instance-1", had_task=True) == 0.5, "that death is the task's"
    many = Restarts(limit=6)
    assert [many.pause_s("w") for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
