"""Programs that tests run as users do: a file in a folder of its own, started as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.runs import environment, tasks_of
from structure.repository import ROOT

HEAD = """\
import asyncio, os, sys, time
from pathlib import Path
from towline import *
"""
TAIL = """
if __name__ == "__main__":
    pipeline.main()
"""


class Program:
    """One program file and what its runs leave behind."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        self.file = folder / "program.py"
        self.file.write_text(HEAD + text + TAIL, encoding="utf-8")

    def start(self, *arguments: str, by: str = "main", **variables: str) -> subprocess.Popen[str]:
        """Start it: ``python program.py``, or with ``by="towline"`` the installed command."""
        towline = str(Path(sys.executable).with_name("towline"))
        command = [sys.executable, str(self.file)] if by == "main" else [towline, "run", str(self.file)]
        return subprocess.Popen(
            [*command, "--plain", *arguments],
            cwd=self.folder,
            env=environment() | {"PYTHONPATH": str(ROOT / "src")} | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, by: str = "main", timeout_s: float = 60, **variables: str) -> tuple[int, str]:
        """Run it to its end; returns exit code and output."""
        process = self.start(*arguments, by=by, **variables)
        with killed_at_the_end(process):
            output, _ = process.communicate(timeout=timeout_s)
            return process.returncode, output

    def tasks(self) -> dict[str, dict[str, Any]]:
        """The plan on disk, by task."""
        return tasks_of(self.folder)

    def states(self) -> dict[str, str]:
        """State and reason of each task on disk."""
        return {
            name: f"{task['state']}/{task['reason']}" if task.get("reason") else task["state"]
            for name, task in self.tasks().items()
        }

    def report(self) -> dict[str, Any]:
        """The report of the newest run."""
        newest = max(self.folder.glob(".towline/*/runs/*/report.json"), key=lambda path: path.stat().st_mtime_ns)
        found: dict[str, Any] = json.loads(newest.read_bytes())
        return found

    def path(self, name: str) -> Path:
        """A file in its folder."""
        return self.folder / name


@contextmanager
def killed_at_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    """A failing test must leave nothing behind: its whole session is killed."""
    try:
        yield
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait(timeout=10)
        if process.stdout is not None:
            process.stdout.close()


def wait_until(reached: Callable[[], bool], *, timeout_s: float = 30) -> None:
    """Wait for another process to come somewhere; fails when it does not."""
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline, "never reached"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
