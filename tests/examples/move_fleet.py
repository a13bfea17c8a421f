"""A master and workers of the flight log move, as processes over a real Redis."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import answer
from examples.runs import EXAMPLES, count, start, tasks_of
from examples.sizes import LIMIT_S, PIPELINE
from move.target import Target

MONTH = "import.flights[01]"
SETTINGS = (
    # A lease that a test can wait for; imports run on workers alone, so that each of them can be killed.
    ("flight_log_move.py", 'pools={"target": 2}', 'pools={"target": 2}, worker_timeout_s=4, master_timeout_s=60'),
    ("move/load.py", 'name="import.flights",', 'name="import.flights", requires="importer",'),
    ("move/load.py", "BATCH = 500", "BATCH = 100"),
)


class Fleet:
    """A master and workers that move flights together, in one folder.

    ``target``: where to, when it is no file there. ``state``: where the plan lies, when it is no folder there.
    """

    def __init__(
        self, folder: Path, legacy: Path, redis_url: str, *, target: str | None = None, state: str | None = None
    ) -> None:
        self.folder, self.target = folder, folder / "target.sqlite"
        self._url = target or str(self.target)
        program = folder / "program"
        shutil.copytree(EXAMPLES / "flight_log_move", program, ignore=shutil.ignore_patterns("__pycache__"))
        for name, before, after in SETTINGS:
            file = program / name
            text = file.read_text(encoding="utf-8")
            assert before in text
            file.write_text(text.replace(before, after), encoding="utf-8")
        answer.main(str(legacy), str(folder / "mapping.json"))
        self._call = (
            *(f"{program / 'flight_log_move.py'}:{PIPELINE}", "--coordinator", redis_url, "--run-id", folder.name),
            *("--param", f"legacy={legacy}", "--parallel", "1"),
            *("--state", state or str(folder / ".towline" / "shared")),
            *(() if target is None else ("--param", f"target={target}")),
        )
        self.processes: list[subprocess.Popen[str]] = []

    def master(self) -> subprocess.Popen[str]:
        """Start the master, again with the same run id when there was one."""
        return self._start("run", *self._call, "--plain")

    def worker(self) -> subprocess.Popen[str]:
        """Start a worker."""
        return self._start("worker", *self._call, "--capability", "importer")

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        self.processes.append(start(self.folder, *arguments))
        return self.processes[-1]

    def wait_until(self, reached: Callable[[], Any]) -> Any:
        """Wait for something to be true; returns it."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            found = reached()
            if found:
                return found
            ended = [one for one in self.processes if one.poll() not in (None, 0, -signal.SIGKILL)]
            assert not ended, ended[0].communicate()[0]
            assert time.monotonic() < deadline, f"never reached; {self.month()}"
            time.sleep(0.005)

    def month(self) -> dict[str, Any]:
        """The task that imports January, as it lies in the state."""
        return tasks_of(self.folder).get(MONTH, {}) if list(self.folder.glob(".towline/*/plan.json")) else {}

    def importer(self, *others: subprocess.Popen[str]) -> subprocess.Popen[str]:
        """Wait until another process than these imports January, and return it."""

        def found() -> subprocess.Popen[str] | None:
            month = self.month()
            if month.get("state") != "running":
                return None
            # A worker's id ends in its process and a random number.
            pid = int(month["worker"].split("-")[-2])
            return next((one for one in self.processes if one.pid == pid and one not in others), None)

        process = self.wait_until(found)
        assert isinstance(process, subprocess.Popen)
        return process

    def written(self) -> int:
        """How many flights the target has."""
        return count(self.target, "flights")

    def digest(self) -> str:
        """Return the digest of the target, computed here."""
        with Target(self._url) as target:
            return target.digest()

    def freeze(self, process: subprocess.Popen[str]) -> None:
        """Stop a process between two of its transactions: in one, it would keep the target locked for everybody."""

        def is_stopped() -> bool:
            state = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            return state in "Tt"

        def is_frozen_outside() -> bool:
            process.send_signal(signal.SIGSTOP)
            self.wait_until(is_stopped)
            probe = sqlite3.connect(self.target, timeout=0, isolation_level=None)
            with closing(probe), contextlib.suppress(sqlite3.OperationalError):
                probe.execute("begin immediate")
                return True
            process.send_signal(signal.SIGCONT)
            return False

        self.wait_until(is_frozen_outside)

    def close(self) -> None:
        """Leave no process behind."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()
