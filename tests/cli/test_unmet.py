"""What a machine cannot do, and what cannot be ended: said before a run, and beside its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.testing import clause

if TYPE_CHECKING:
    from cli.shell import Shell

NEEDS_A_GPU = """
from towline import Pipeline, SyncContext, cap, module, result_of

@module(requires=cap("gpu"))
def train(ctx: SyncContext) -> int:
    return 1

@module
def publish(ctx: SyncContext, model: int = result_of(train)) -> None: ...

pipeline = Pipeline("models", [publish])
"""


@clause("RUN-15")
def test_a_run_that_could_do_nothing_says_so(shell: Shell) -> None:
    """It has succeeded, by the rule for one machine, and nobody may take that for work done."""
    shell.write("models.py", NEEDS_A_GPU)
    ended = shell.run("run", "models.py")
    assert "1 task was skipped, and 1 that needs it, for want of what it requires: train needs gpu" in ended.out
    assert "--capability" in ended.out
    assert "for want of" not in shell.run("run", "models.py", "--capability", "gpu").out


@clause("RUN-15", "CLI-11")
def test_check_knows_what_this_machine_cannot_do(shell: Shell) -> None:
    """Before the run, with what a run with workers would make of it: a failure."""
    shell.write("models.py", NEEDS_A_GPU)
    checked = shell.run("check", "models.py")
    assert "warning: train needs gpu; this machine has" in checked.err
    assert "skips it, and what needs it" in checked.err
    assert "a run with workers fails" in checked.err
    assert shell.run("check", "models.py", "--capability", "gpu").err == ""


@clause("PLAN-11", "DIST-28")
def test_a_plan_for_workers_leaves_the_requirement_to_them(shell: Shell) -> None:
    """Tasks go to whoever meets their requirement: this machine need not, and the plan does not guess."""
    shell.write("models.py", NEEDS_A_GPU)
    assert "needs gpu" in shell.run("plan", "models.py").out
    assert "(2 run)" in shell.run("plan", "models.py", TOWLINE_COORDINATOR="redis://127.0.0.1:1", TOWLINE_STATE="s").out


@clause("DIST-11")
def test_a_process_that_runs_alone_is_its_own_master(shell: Shell) -> None:
    """What asks for the master runs in the same program with workers and without."""
    text = NEEDS_A_GPU.replace('cap("gpu")', '"master"')
    shell.write("models.py", text)
    assert "2 succeeded" in shell.run("run", "models.py").out
    assert "(2 run)" in shell.run("plan", "models.py").out
    assert shell.run("check", "models.py").err == ""


LIMITED = """
from towline import Pipeline, SyncContext, module

@module(timeout=60)
def load(ctx: SyncContext) -> None: ...

@module(timeout=60, isolation="process")
def killable(ctx: SyncContext) -> None: ...

@module
def plain(ctx: SyncContext) -> None: ...

pipeline = Pipeline("limited", [load, killable, plain])
"""


@clause("RUN-22")
def test_a_run_says_which_limits_it_cannot_enforce(shell: Shell) -> None:
    """Nobody calls check each night: the run says it, in one line, before the body that would go on."""
    shell.write("limited.py", LIMITED)
    out = shell.run("run", "limited.py").out
    said = [line for line in out.splitlines() if "cannot be killed" in line]
    assert len(said) == 1
    assert "load" in said[0]
    assert "killable" not in said[0]
    assert 'isolation="process"' in said[0]
    assert out.index(said[0]) < out.index("running")
