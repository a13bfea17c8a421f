"""Each example alone, with two workers, and with one of them killed half way: the same bytes each time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import example_kernels
import pytest
from clusters import QUICK
from real_workers import HERE, environment, workers

from towline.offload import OffloadOptions, Runtime, TcpTransport
from towline.testing import clause

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "offload"
JOBS: dict[str, tuple[Any, int, int]] = {
    "vector_add": (example_kernels.vector_add.add, 20_000, 1),
    "heat": (lambda runtime, n: example_kernels.heat.simulate(runtime, n, 20), 64, 80),
    "matmul": (example_kernels.matmul.multiply, 128, 64),
    "monte_carlo": (example_kernels.monte_carlo.estimate, 500, 64),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", JOBS)
async def test_an_example_runs_alone(name: str) -> None:
    """Nothing but this process: the program is the same, and checks itself against numpy."""
    job, size, calls = JOBS[name]
    async with Runtime() as runtime:
        result = await job(runtime, size)

    assert len(result.calls) >= calls
    assert result.offloaded == 0


@pytest.mark.anyio
@clause("OFF-214", "OFF-215", "OFF-212")
async def test_examples_run_on_workers_that_may_die() -> None:
    """The examples compare every byte themselves: first with all workers, then with one killed in the middle of each."""
    options = OffloadOptions(**QUICK, min_offload_bytes=0)
    module = str(HERE / "example_kernels.py")
    async with (
        Runtime(options=options) as runtime,
        runtime.cluster(TcpTransport.listen("127.0.0.1:0")) as cluster,
    ):
        with workers(cluster.endpoint, 3, module=module) as processes:
            await cluster.wait_for_workers(3, timeout_s=40)
            for job, size, _ in JOBS.values():
                result = await asyncio.wait_for(job(runtime, size), 60)
                assert result.offloaded > 0
            committed = 0

            def watch(event: Any) -> None:
                nonlocal committed
                if event.kind == "call_committed":
                    committed += 1
                    if committed == 20:
                        processes.pop().kill()

            cluster.on_event(watch)
            for name in ("heat", "matmul"):
                committed = 0
                job, size, _ = JOBS[name]
                await asyncio.wait_for(job(runtime, size), 60)
            assert len(processes) == 1


def test_the_demo_plays_both_roles() -> None:
    """Two processes on one host, as the guide shows: the master prints the port that it took."""
    script = str(FOLDER / "vector_add.py")
    master = subprocess.Popen(
        [sys.executable, script, "--port", "0", "--workers", "1", "--n", "50000"],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert master.stdout is not None
    endpoint = master.stdout.readline().split()[-1]
    worker = subprocess.run(
        [sys.executable, script, "--master", endpoint], env=environment(), capture_output=True, timeout=40, check=False
    )
    said, _ = master.communicate(timeout=20)

    assert "1 offloaded" in said
    assert master.returncode == 0
    assert worker.returncode == 0
