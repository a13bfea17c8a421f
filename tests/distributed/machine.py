"""A machine whose runs start worker processes of their own (``--workers``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from distributed.fleet import BYTE_CODE, HERE, LIMIT_S, PROGRAMS

if TYPE_CHECKING:
    from pathlib import Path


class Machine:
    """Runs of one program in a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith("TOWLINE_")} | {
            "SPREAD_MARKS": str(folder),
            "PYTHONPATH": str(HERE.parents[1] / "src"),
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(BYTE_CODE),
        }
        self.started: list[subprocess.Popen[str]] = []

    def start(
        self, program: str, *arguments: str, verb: tuple[str, ...] = ("run", "--plain"), **environ: str
    ) -> subprocess.Popen[str]:
        """Start a run as its operator does."""
        process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / program), *verb, *arguments],
            env=self.environ | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def write(self, name: str, text: str) -> str:
        """Make a program of the test's own; returns its path."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def run(self, program: str, *arguments: str, **environ: str) -> tuple[int, str]:
        """Run to the end; returns exit code and what was shown."""
        return self.end_of(self.start(program, *arguments, **environ))

    def end_of(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        shown, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, shown

    def marks(self) -> list[list[str]]:
        """What bodies have left, in order: name, process, and more."""
        path = self.folder / "starts.txt"
        return [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def wait_for_start(self, name: str, count: int = 1) -> int:
        """Wait until a body has started so often; returns the process of the last start."""
        deadline = time.monotonic() + LIMIT_S
        while len(found := [mark for mark in self.marks() if mark[0].startswith(name)]) < count:
            assert time.monotonic() < deadline, f"{name} has not started: {self.marks()}"
            assert self.started[-1].poll() is None, self.started[-1].communicate()
            time.sleep(0.02)
        return int(found[-1][1])

    def report(self, pipeline: str) -> dict[str, Any]:
        """The report of the latest run."""
        latest = max(
            (self.folder / ".towline" / pipeline / "runs").glob("*/report.json"), key=lambda one: one.stat().st_mtime
        )
        found: dict[str, Any] = json.loads(latest.read_text(encoding="utf-8"))
        return found

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
