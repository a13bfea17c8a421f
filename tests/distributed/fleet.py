"""Processes of one run over a real server, started and killed by a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
LIMIT_S = 40.0
BYTE_CODE = Path(tempfile.gettempdir()) / "towline-tests-byte-code"
"""Byte code of all test sessions; Python itself sees when a source has changed."""


class Fleet:
    """Master and workers of one run in a folder of the test's own."""

    def __init__(
        self, folder: Path, url: str, run_id: str, *, sleep_s: float = 0.05, program: str = "spread.py", **given: Any
    ) -> None:
        self.folder, self.run_id = folder, run_id
        self.program = PROGRAMS / program
        self.given = {"coordinator": url, "run_id": run_id, "state": str(folder / "state"), **given}
        self.environ = {
            **os.environ,
            "SPREAD_MARKS": str(folder),
            "SPREAD_SLEEP": str(sleep_s),
            "PYTHONPATH": str(HERE.parents[1] / "src"),
            # A test starts up to ten processes: each would compile the library anew where byte code is not kept.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(BYTE_CODE),
        }
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, role: str, **more: Any) -> subprocess.Popen[str]:
        """Start a process of the run; ``apart``: in a folder of its own, with nothing shared but the servers."""
        folder = self.folder
        if more.pop("apart", False):
            folder = self.folder / f"machine-{len(self.processes)}"
            folder.mkdir()
        arguments = [sys.executable, str(HERE / "node.py"), role, str(self.program), json.dumps({**self.given, **more})]
        process = subprocess.Popen(
            arguments, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
        )
        self.processes.append(process)
        return process

    def worker(self, name: str, **more: Any) -> subprocess.Popen[str]:
        """Start a worker."""
        return self.start("worker", worker_id=name, **more)

    def result(self, master: subprocess.Popen[str]) -> dict[str, Any]:
        """Wait for the master and return what it reported."""
        out, error = self.finished(master)
        assert out.strip(), error
        result: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return result

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for a process; returns exit code and stderr."""
        _, error = self.finished(process)
        return process.returncode, error

    def finished(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        """Wait for a process; one that hangs says where before it is killed."""
        try:
            return process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)
            time.sleep(1.0)
            process.kill()
            _, error = process.communicate()
            raise AssertionError(f"{process.args} hangs:\n{error}") from None

    def starts(self) -> list[tuple[str, int]]:
        """Which bodies have started, and in which process, in order."""
        path = self.folder / "starts.txt"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [(name, int(pid)) for name, pid, _ in (line.split() for line in lines)]

    def wait_for_start(self, name: str, count: int = 1, *, tolerate_ends: bool = False) -> int:
        """Wait until a body has started so often; returns the process of the last start."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            found = [pid for body, pid in self.starts() if body.startswith(name)]
            if len(found) >= count:
                return found[-1]
            for process in self.processes:
                if process.poll() not in (None, 0, -signal.SIGKILL) and not tolerate_ends:
                    raise AssertionError(f"a process ended early: {process.stderr.read() if process.stderr else ''}")
            assert time.monotonic() < deadline, f"{name} has not started: {self.starts()}"
            time.sleep(0.02)

    def close(self) -> None:
        """Leave no process behind."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
