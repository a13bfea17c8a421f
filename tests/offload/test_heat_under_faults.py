"""The heat equation on real workers that are killed, stopped, and started again under their name: the same plate each time."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Any

import example_kernels
import pytest
from clusters import QUICK
from real_workers import HERE, environment, start, workers

from towline.offload import OffloadOptions, Runtime, TcpTransport
from towline.testing import clause

pytestmark = pytest.mark.anyio
MODULE = str(HERE / "example_kernels.py")
SIDE, STEPS, BANDS = 96, 40, 4
OPTIONS: dict[str, Any] = {**QUICK, "suspect_after_s": 0.5, "liveness_timeout_s": 1.0, "min_offload_bytes": 0}


def kill(processes: list[subprocess.Popen[str]], endpoint: str) -> None:
    """Kill -9 without a word, and nobody comes back."""
    processes[0].kill()


def stop(processes: list[subprocess.Popen[str]], endpoint: str) -> None:
    """SIGSTOP for longer than the liveness timeout; then the worker goes on, and what it brings late is refused."""
    processes[0].send_signal(signal.SIGSTOP)
    asyncio.get_running_loop().call_later(2.5, processes[0].send_signal, signal.SIGCONT)


def restart(processes: list[subprocess.Popen[str]], endpoint: str) -> None:
    """Kill -9, and a new process says HELLO under the same name at once."""
    processes[0].kill()
    processes.append(start(endpoint, "w0", module=MODULE))


@clause("OFF-502", "OFF-507", "OFF-602", "OFF-604")
@pytest.mark.parametrize(("disturb", "shared"), [(kill, True), (stop, False), (restart, False)])
async def test_the_plate_is_the_same_whatever_happens_to_a_worker(disturb: Any, shared: bool) -> None:
    """The example compares the whole plate with a serial run byte by byte, while one of two workers is lost half way."""
    options = OffloadOptions(**OPTIONS, verify="full", shm=shared)
    async with (
        Runtime(options=options) as runtime,
        runtime.cluster(TcpTransport.listen("127.0.0.1:0")) as cluster,
    ):
        with workers(cluster.endpoint, 2, module=MODULE) as processes:
            await cluster.wait_for_workers(2, timeout_s=40)
            seen: dict[str, int] = {}
            dead = asyncio.Event()

            def watch(event: Any) -> None:
                seen[event.kind] = seen.get(event.kind, 0) + 1
                if event.kind == "worker_dead":
                    dead.set()
                if event.kind == "call_committed" and seen[event.kind] == STEPS:
                    disturb(processes, cluster.endpoint)

            cluster.on_event(watch)
            job = example_kernels.heat.simulate(runtime, SIDE, STEPS, shared=shared)
            result = await asyncio.wait_for(job, 60)
            await asyncio.wait_for(dead.wait(), 20)
            if disturb is not kill:
                await cluster.wait_for_workers(2, timeout_s=20)
            stats = cluster.stats()

    assert len(result.calls) == STEPS * BANDS
    assert all(call.state == "succeeded" for call in result.calls)
    assert stats.in_flight == stats.queued == 0


@clause("OFF-971")
async def test_a_master_grows_by_what_it_receives_and_by_nothing_that_it_sends() -> None:
    """Peak memory of the process, with a real worker: 128 MiB on their way out, then 128 MiB on their way in."""
    nbytes = 128 << 20
    program = str(HERE / "peak_memory.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, program, str(nbytes), stdout=asyncio.subprocess.PIPE, env=environment()
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 0
    sending, receiving = (int(line) for line in said.split())
    assert sending <= 1 << 20
    assert receiving <= 1.05 * nbytes
