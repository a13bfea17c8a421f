"""What is refused leaves the earlier plan as it was."""

from __future__ import annotations

import pytest

from cli.shell import Shell
from towline.testing import clause

HALF_WAY = """
from towline import Pipeline, SyncContext, module, result_of

@module
def first(ctx: SyncContext) -> int:
    return 1

@module
def second(ctx: SyncContext, one: int = result_of(first)) -> None:
    raise ValueError("not yet")

pipeline = Pipeline("half", [second])
"""


def plan_of(shell: Shell) -> bytes:
    return (shell.folder / ".towline" / "half" / "plan.json").read_bytes()


@clause("CLI-02", "DIST-03")
@pytest.mark.parametrize("coordinator", ["hub://localhost:1", "carrier-pigeon://coop"])
def test_a_coordinator_that_cannot_be_used_is_refused_before_the_plan_is_touched(
    shell: Shell, coordinator: str
) -> None:
    """A typing mistake must not cost the work of yesterday."""
    shell.write("half.py", HALF_WAY)
    shell.run("run", "half.py", code=1)
    before = plan_of(shell)

    refused = shell.run("run", "half.py", "--coordinator", coordinator, code=2)

    assert coordinator.partition(":")[0] in refused.err
    assert plan_of(shell) == before


def test_a_run_id_is_used_once_also_when_other_runs_came_after_it(shell: Shell) -> None:
    """A CI that starts a job again under its old id would mix the logs and reports of two runs."""
    shell.write("half.py", HALF_WAY)
    shell.run("run", "half.py", "--run-id", "monday", code=1)
    shell.run("run", "half.py", "--run-id", "tuesday", code=1)
    before = plan_of(shell)

    for flag in ("--fresh", "--resume"):
        refused = shell.run("run", "half.py", flag, "--run-id", "monday", code=2)
        assert "monday" in refused.err

    assert plan_of(shell) == before


def test_a_state_that_is_not_known_is_answered_with_those_that_are(shell: Shell) -> None:
    """Redis is one of them: whoever is told of folders alone looks no further."""
    shell.write("half.py", HALF_WAY)

    refused = shell.run("run", "half.py", "--state", "ftp://box/x", code=2)

    for known in ("ftp:", "folder", "memory:", "redis://"):
        assert known in refused.err
    assert "box" not in refused.err
