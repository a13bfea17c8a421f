"""Commands that look: at a state that may not be written, at a target that is none, at an interrupt before a run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli.shell import LIMIT_S, Shell
from towline.testing import clause

READ_ONLY = """
import errno, os, sys
from towline.cli.main import main
from towline.state.files import SystemFiles

allowed, opened = {allowed}, os.open

def refuse(self, path):
    raise OSError(errno.{name}, os.strerror(errno.{name}))

def open_read(path, flags, *more, **named):
    if str(path).endswith("owner.lock") and not allowed:
        raise PermissionError(errno.EACCES, "Permission denied")
    return opened(path, flags, *more, **named)

SystemFiles.open_update, os.open = refuse, open_read
main(sys.argv[1:])
"""
"""The commands where the state cannot be written, for the superuser of a test as well."""


def look(shell: Shell, *arguments: str, name: str = "EROFS", allowed: bool = True) -> subprocess.CompletedProcess[str]:
    shell.write("looks.py", READ_ONLY.format(name=name, allowed=allowed))
    return subprocess.run(
        [sys.executable, "looks.py", *arguments], cwd=shell.folder, capture_output=True, text=True, timeout=LIMIT_S
    )


@clause("PLAN-27")
@pytest.mark.parametrize("name", ["EROFS", "EACCES"])
@pytest.mark.parametrize("command", [["runs"], ["show"], ["show", "latest", "--json"], ["why", "read"]])
def test_looking_asks_for_no_right_to_write(small: Shell, name: str, command: list[str]) -> None:
    """The state of a colleague, or one on a mounted backup, is looked at by people who must not change it."""
    small.run("run", "small.py")
    for report in small.folder.glob(".towline/small/runs/*/report.json"):
        report.unlink()  # a run without one is told from its plan and its lock
    seen = look(small, *command, name=name)
    assert seen.returncode == 0, seen.stderr
    assert "read" in seen.stdout or "small" in seen.stdout


@clause("CTL-28")
def test_a_lock_that_cannot_be_read_is_named(small: Shell) -> None:
    """Whether somebody works there cannot be told: say so, rather than guess."""
    small.run("run", "small.py")
    refused = look(small, "cancel", ".towline/small", name="EACCES", allowed=False)
    assert refused.returncode == 4
    assert "owner.lock" in refused.stderr
    assert "Permission denied" in refused.stderr
    assert "Traceback" not in refused.stderr


@clause("MOD-24")
@pytest.mark.parametrize(("name", "kind"), [("Other", "the class Other"), ("count", "of type int")])
def test_a_target_that_is_no_pipeline_is_refused(small: Shell, name: str, kind: str) -> None:
    """A name that was mistyped for another one of the file is the caller's mistake, not a bug of Towline."""
    file = small.folder / "small.py"
    file.write_text(file.read_text() + "\nclass Other:\n    pass\n\ncount = 3\n")
    refused = small.run("plan", f"small.py:{name}", code=2)
    assert f"it is {kind}, not a Pipeline. It has pipeline." in refused.err
    assert "Traceback" not in refused.err
    assert "not a Pipeline" in small.run("check", "json:dumps", code=2).err


INTERRUPTED = """
import sys

class Interrupts:
    def find_spec(self, name, *more):
        if name == {at!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
from towline.cli import main
main(["run", "small.py"])
"""


@clause("CLI-06")
@pytest.mark.parametrize("at", ["click", "towline.cli.commands", "small", "towline.pipeline.opening"])
def test_an_interrupt_during_the_imports_is_one_line(small: Shell, at: str) -> None:
    """Ctrl-C right after Enter is no crash: a traceback through somebody's imports says nothing."""
    small.write("early.py", INTERRUPTED.format(at=at))
    ended = subprocess.run(
        [sys.executable, "early.py"], cwd=small.folder, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert ended.returncode == 130
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.split("\n")) <= 3, "click ends the line first"
    assert "interrupted" in ended.stderr
    small.said()
