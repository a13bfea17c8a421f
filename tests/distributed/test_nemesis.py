"""Real processes over a real Redis behind a relay, with faults from a seed: the run gives what it gives without them.

``TOWLINE_TEST_NEMESIS`` says how many seeds: a few with every push, 50 on request.
"""

from __future__ import annotations

import json
import os
import signal
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from distributed.fleet import Fleet
from towline.testing import clause
from towline.testing.redis_server import RedisTestServer
from towline.testing.relay import RelayThread

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

SEEDS = int(os.environ.get("TOWLINE_TEST_NEMESIS", "3"))
FAULTS = 4
EXPECTED = {"seeds", *(f"grow-{seed}" for seed in range(6)), "harvest"}


class Nemesis:
    """Does harm to one fleet, as its seed says."""

    def __init__(self, seed: int, server: RedisTestServer, relay: RelayThread, fleet: Fleet) -> None:
        self.random = Random(seed)
        self.server, self.relay, self.fleet = server, relay, fleet
        self.workers: list[subprocess.Popen[str]] = []
        self.master: subprocess.Popen[str]
        self.names = 0
        self.done: list[str] = []

    def begin(self) -> None:
        """Start two workers and a master."""
        self.workers = [self.new_worker(), self.new_worker()]
        self.master = self.fleet.start("master", minimum_workers=1)

    def status(self) -> str:
        """Return how the run ended; a master that was killed right after the end tells its successor."""
        out, error = self.fleet.finished(self.master)
        if "RunIdUsedError" in error and "ended succeeded" in error:
            return "succeeded"
        assert out.strip(), error
        return str(json.loads(out.strip().splitlines()[-1])["status"])

    def new_worker(self) -> subprocess.Popen[str]:
        """Start a worker under a name of its own."""
        self.names += 1
        return self.fleet.worker(f"w-{self.names}", parallelism=1)

    def strike(self) -> None:
        """Cause one fault, unless the run is over."""
        if self.master.poll() is not None:
            return
        faults: list[Callable[[], None]] = [
            self.kill_worker,
            self.stop_worker,
            self.kill_master,
            self.restart_server,
            self.cut_connections,
            self.stall,
            self.tear,
        ]
        fault = self.random.choice(faults)
        self.done.append(fault.__name__)
        fault()

    def pause(self, least_s: float, most_s: float) -> None:
        """Let the processes go on for a while: real time is the world that this test is about."""
        time.sleep(self.random.uniform(least_s, most_s))

    def kill_worker(self) -> None:
        """kill -9; another one comes."""
        place = self.random.randrange(2)
        self.workers[place].kill()
        self.workers[place] = self.new_worker()

    def stop_worker(self) -> None:
        """It sleeps for longer than its lease, then goes on."""
        worker = self.random.choice(self.workers)
        worker.send_signal(signal.SIGSTOP)
        self.pause(1.2, 2.0)
        worker.send_signal(signal.SIGCONT)

    def kill_master(self) -> None:
        """kill -9; a new one takes the run over."""
        self.master.kill()
        if self.master.wait() != 0:
            self.master = self.fleet.start("master")

    def restart_server(self) -> None:
        """Gone for a moment, back with its data."""
        self.server.stop(kill=True)
        self.pause(0.2, 1.0)
        self.server.start()

    def cut_connections(self) -> None:
        """Every connection ends."""
        self.relay.tell(lambda relay: relay.cut_all())

    def stall(self) -> None:
        """Nothing passes, and nobody is told."""
        self.relay.tell(lambda relay: relay.open.clear())
        self.pause(0.5, 1.5)
        self.relay.tell(lambda relay: relay.open.set())

    def tear(self) -> None:
        """Slow, and some replies are torn in the middle."""
        self.relay.tell(lambda relay: (setattr(relay, "cut", 0.03), setattr(relay, "delay_s", 0.01)))
        self.pause(0.5, 1.5)
        self.relay.tell(lambda relay: (setattr(relay, "cut", 0.0), setattr(relay, "delay_s", 0.0)))


@clause("DIST-22", "DIST-25", "DIST-50", "COORD-R10", "COORD-R18", "COORD-R20", "COORD-R22")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_faults_change_nothing_but_time(seed: int, tmp_path: Path) -> None:
    """Killed, stopped, cut off, restarted: every task has its one right value, and everybody goes home."""
    with (
        RedisTestServer(persistent=True) as server,
        RelayThread(f"127.0.0.1:{server.port}", seed) as relay,
    ):
        fleet = Fleet(tmp_path, f"redis://{relay.endpoint}", f"run-{seed}", sleep_s=0.4, master_timeout_s=20.0)
        nemesis = Nemesis(seed, server, relay, fleet)
        try:
            nemesis.begin()
            fleet.wait_for_start("grow", tolerate_ends=True)
            for _ in range(FAULTS):
                nemesis.strike()
                nemesis.pause(0.1, 0.6)
            said = f"seed {seed}: {nemesis.done}"
            assert nemesis.status() == "succeeded", said
            assert {name for name, _ in fleet.starts()} == EXPECTED, said
            ended = [fleet.ended(worker) for worker in nemesis.workers]
            assert [code for code, _ in ended] == [0, 0], f"{said}: {ended}"
        finally:
            fleet.close()
