"""Runs where CI systems look: parallel output, folds, secrets, and the end of a process in a hurry."""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess

import pytest

from cli.shell import Shell, ended, wait_for_file
from towline.testing import clause

CHATTY = """
import threading
from towline import Options, Pipeline, SyncContext, module

together = threading.Barrier(4)

def talk(name):
    together.wait()
    for number in range(2000):
        print(f"{name} {number}")

@module
def a(ctx: SyncContext) -> None:
    talk("a")
    raise ValueError("a is broken")

@module
def b(ctx: SyncContext) -> None: talk("b")
@module
def c(ctx: SyncContext) -> None: talk("c")
@module
def d(ctx: SyncContext) -> None: talk("d")

pipeline = Pipeline("chatty", [a, b, c, d], options=Options(keep_going=True, parallelism=4))
"""


@clause("REP-10", "REP-11")
@pytest.mark.parametrize(
    ("variables", "fold"),
    [
        ({"CI": "true"}, "== "),
        ({"CI": "true", "GITHUB_ACTIONS": "true"}, "::group::"),
        ({"TF_BUILD": "True"}, "##[group]"),
    ],
)
def test_parallel_output_on_ci_is_readable_and_whole(shell: Shell, variables: dict[str, str], fold: str) -> None:
    """Interleaved lines are unreadable; buffered ones must not be lost when the run fails."""
    shell.write("chatty.py", CHATTY)

    result = shell.run("run", "chatty.py", code=1, **variables)

    lines = result.out.splitlines()
    said = [line for line in lines if re.fullmatch(r"[abcd] \d+", line)]
    for name in "bcd":
        assert [line for line in said if line.startswith(name)] == [f"{name} {number}" for number in range(2000)]
    assert len([line for line in lines if line.startswith(fold)]) >= 3, "the failed one is open"
    last = [index for index, line in enumerate(lines) if line.startswith("== a failed")][-1]
    assert lines[last + 1 : last + 2001] == [f"a {number}" for number in range(2000)], "last, whole, and open"
    assert not any(re.fullmatch(r"[bcd] \d+", line) for line in lines[last:])
    changes = sum(1 for one, other in itertools.pairwise(said) if one[0] != other[0])
    assert changes == 3, "lines of one task stand together, in one fold"
    assert "\x1b" not in result.out
    assert lines[-2].startswith("chatty r-")


@clause("SEC-08")
def test_the_mask_command_comes_before_anything_that_holds_the_value(shell: Shell) -> None:
    """The host masks what Towline never sees: raw output of a child that inherited the stream."""
    shell.write(
        "secret.py",
        """
import sys
from towline import Pipeline, SyncContext, module
@module
def use(ctx: SyncContext) -> None:
    token = ctx.secret("TOKEN")
    print("the token is", token.reveal())
    print("half " + token.reveal()[:6] + "\\n" + token.reveal()[6:])
    sys.stdout.buffer.write(b"raw " + token.reveal().encode() + b"\\n")
pipeline = Pipeline("secret", [use])
""",
    )
    result = shell.run("run", "secret.py", TOKEN="hunter2-hunter2", GITHUB_ACTIONS="true")

    assert "the token is ***" in result.out
    command = result.out.index("::add-mask::hunter2-hunter2\n")
    assert result.out.index("hunter2-hunter2") == command + len("::add-mask::")
    local = shell.run("run", "secret.py", TOKEN="hunter2-hunter2")
    assert "add-mask" not in local.out


@clause("REP-14")
def test_the_step_summary_is_written_once_per_run(shell: Shell) -> None:
    """GitHub shows it above the log: nobody has to open the log to see what failed."""
    shell.write("chatty.py", CHATTY)
    summary = shell.folder / "summary.md"

    shell.run("run", "chatty.py", code=1, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary))

    text = summary.read_text()
    assert text.startswith("### chatty: failed")
    assert "| a | **failed** |" in text
    assert text.count("###") == 1


@clause("REP-10")
def test_a_second_interrupt_leaves_at_once_and_still_shows_what_was_held(shell: Shell) -> None:
    """The output of the task that hangs is what its operator needs most."""
    shell.write(
        "stuck.py",
        """
import signal, time
from pathlib import Path
from towline import Options, Pipeline, SyncContext, module
@module
def hang(ctx: SyncContext) -> None:
    print("hanging at row 813")
    Path("hanging.txt").touch()
    while True:
        time.sleep(0.05)
pipeline = Pipeline("stuck", [hang], options=Options(cancel_grace_s=60))
""",
    )
    process = shell.start("run", "stuck.py", CI="true")
    wait_for_file(shell.folder / "hanging.txt")

    process.send_signal(2)
    wait_for_file(shell.folder / ".towline/stuck/runs")
    for _ in range(150):  # until it has seen the first one, a second is none
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
            break
        process.send_signal(2)
    result = ended(process)

    assert result.code == 130
    assert "hanging at row 813" in result.out
