"""Calling the installed program as a user does: a process in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

TOWLINE = Path(sys.executable).with_name("towline")
SEEN_BY_HOSTS = ("TOWLINE_", "CI", "GITHUB_", "GITLAB_", "TF_BUILD", "TEAMCITY_", "BUILDKITE", "TRAVIS", "FORCE_COLOR")
LIMIT_S = 60


class Ended(NamedTuple):
    """How a call ended. ``out`` is for programs, ``err`` for people."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Shell:
    """A folder with programs in it, and calls from there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def start(self, *arguments: str | bytes, stdout: Any = subprocess.PIPE, **environ: str) -> subprocess.Popen[bytes]:
        """Start ``towline``; when the first argument ends in ``.py``, ``python file.py``."""
        base = {name: value for name, value in os.environ.items() if not name.startswith(SEEN_BY_HOSTS)}
        first = [sys.executable] if str(arguments[0]).endswith(".py") else [str(TOWLINE)]
        return subprocess.Popen(
            [*first, *arguments],
            cwd=self.folder,
            env=base | environ,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )

    def call(self, *arguments: str | bytes, **environ: str) -> Ended:
        """Call and wait for the end."""
        return ended(self.start(*arguments, **environ))

    def run(self, *arguments: str, code: int = 0, **environ: str) -> Ended:
        """Call, and expect this exit code."""
        result = self.call(*arguments, **environ)
        assert result.code == code, f"exit {result.code}\n{result.out}\n{result.err}"
        return result

    def said(self, *lines: str) -> None:
        """What bodies left in ``said.txt``, one line for each that ran."""
        file = self.folder / "said.txt"
        assert (file.read_text().splitlines() if file.exists() else []) == list(lines)

    def report(self) -> dict[str, Any]:
        """The report of the latest run."""
        result: dict[str, Any] = self.run("show", "--json").json()
        return result


def ended(process: subprocess.Popen[bytes]) -> Ended:
    """Wait for a process within a bound."""
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Ended(process.returncode, (out or b"").decode("utf-8", "replace"), (err or b"").decode("utf-8", "replace"))


def wait_for_file(file: Path) -> None:
    """Wait until a body left a mark."""
    deadline = time.monotonic() + LIMIT_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.01)


def wait_for_text(file: Path, text: str) -> None:
    """Wait until a process has written something."""
    deadline = time.monotonic() + LIMIT_S
    while text not in file.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline, f"{text!r} never came"
        time.sleep(0.01)


def interrupt(process: subprocess.Popen[bytes], number: int = signal.SIGINT) -> Ended:
    """Send a signal and wait for the end."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
    return ended(process)


SMALL = """
from towline import Pipeline, SyncContext, module, result_of

def say(text):
    with open("said.txt", "a") as file:
        file.write(text + "\\n")

@module(category="make", phase="first")
def read(ctx: SyncContext) -> int:
    say("read")
    return 2

@module(matrix={"n": [1, 2]}, phase="second", tags={"t"})
def test(ctx: SyncContext, count: int = result_of(read)) -> int:
    say(f"test {ctx.matrix['n']}")
    return count

@module(category="extra", phase="second")
def lint(ctx: SyncContext) -> None:
    say("lint")

pipeline = Pipeline("small", [test, lint], phases=("first", "second"))

if __name__ == "__main__":
    pipeline.main()
"""
"""Four tasks in two phases; each says that it ran."""
