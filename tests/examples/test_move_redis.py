"""The flight log move on machines that share a Redis and the two databases, and no folder."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import answer
from examples.move_fleet import SETTINGS
from examples.runs import EXAMPLES, count, start
from examples.sizes import FLIGHTS, LIMIT_S, PIPELINE
from move.target import Target
from towline.testing import clause
from towline.testing.redis_server import RedisTestServer


class Machines:
    """Processes of one run, each in a folder of its own with a copy of the program."""

    def __init__(self, folder: Path, legacy: Path, redis_url: str) -> None:
        self.folder, self.target = folder, folder / "target.sqlite"
        self._legacy, self._url = legacy, redis_url
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, command: str, *more: str) -> subprocess.Popen[str]:
        """Start a process on a machine that nobody has used yet."""
        machine = self.folder / f"machine-{len(self.processes)}"
        program = machine / "program"
        shutil.copytree(EXAMPLES / "flight_log_move", program, ignore=shutil.ignore_patterns("__pycache__"))
        for name, before, after in SETTINGS:
            file = program / name
            file.write_text(file.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
        answer.main(str(self._legacy), str(machine / "mapping.json"))
        call = (
            *(f"{program / 'flight_log_move.py'}:{PIPELINE}", "--coordinator", self._url, "--run-id", "r-1"),
            *("--param", f"legacy={self._legacy}", "--param", f"target={self.target}", "--parallel", "1"),
        )
        self.processes.append(start(machine, command, *call, *more))
        return self.processes[-1]

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait for something to be true."""
        deadline = time.monotonic() + LIMIT_S
        while not reached():
            ended = [one for one in self.processes if one.poll() not in (None, 0, -9)]
            assert not ended, ended[0].communicate()[0]
            assert time.monotonic() < deadline, "never reached"
            time.sleep(0.005)

    def close(self) -> None:
        """Leave no process behind."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def machines(tmp_path: Path, legacy_file: Path, redis: RedisTestServer) -> Iterator[Machines]:
    redis.command("FLUSHALL")
    made = Machines(tmp_path, legacy_file, redis.url)
    yield made
    made.close()


@clause("DIST-34", "DIST-50", "DIST-51")
def test_the_move_needs_no_shared_folder(machines: Machines, local_digest: str) -> None:
    """Master and two workers on three machines; the master dies and a fourth machine takes over: the same target."""
    workers = [machines.start("worker", "--capability", "importer") for _ in range(2)]
    first = machines.start("run", "--plain")
    machines.wait_until(lambda: count(machines.target, "flights") >= FLIGHTS // 9)
    first.kill()

    again = machines.start("run", "--plain")

    said, _ = again.communicate(timeout=LIMIT_S)
    assert again.returncode == 0, said
    assert [one.wait(LIMIT_S) for one in workers] == [0, 0]
    with Target(str(machines.target)) as target:
        assert target.digest() == local_digest
    assert not list(machines.folder.rglob("plan.json"))
