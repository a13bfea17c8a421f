"""The smallest example, in both ways that its readers start it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples.runs import EXAMPLES, environment, run, tasks_of

HELLO = str(EXAMPLES / "hello.py")


def test_hello_runs_by_the_command(tmp_path: Path) -> None:
    """What a newcomer tries first must say what it does."""
    assert "greeting" in run(tmp_path, "plan", HELLO)
    assert not (tmp_path / ".towline" / "hello" / "plan.json").exists()
    assert "2 succeeded" in run(tmp_path, "run", HELLO)
    assert {task["state"] for task in tasks_of(tmp_path).values()} == {"succeeded"}
    assert "shout is succeeded" in run(tmp_path, "why", "shout")


def test_hello_runs_as_a_program(tmp_path: Path) -> None:
    """The same file is a program; both ways share one plan and one verdict."""
    done = subprocess.run(
        [sys.executable, HELLO], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True, timeout=60
    )
    assert "2 succeeded" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "target",
    [
        "hello.py",
        "gazetteer/gazetteer.py",
        "flight_log_move/flight_log_move.py",
        "flight_log_move/flight_log_move.py:small",
    ],
)
def test_examples_pass_the_check_before_running(target: str, tmp_path: Path) -> None:
    """What can be refused before running is found by ``towline check``; an example must have none of it."""
    run(tmp_path, "check", str(EXAMPLES / target))
