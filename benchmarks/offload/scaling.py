"""Strong scaling over worker processes, and the memory that a transfer costs."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import numpy as np

import kernels
from calls import start_worker, with_worker
from towline.offload import OffloadOptions, Runtime, TcpTransport

Row = tuple[str, float, str, float | None, str]
CALLS, SIDE = 16, 512


async def rows() -> list[Row]:
    """Sixteen matrix products of 512 rows on one, two and four workers of one slot each; shared memory."""
    found: list[Row] = []
    alone = 0.0
    for count in (1, 2, 4):
        options = OffloadOptions(min_offload_bytes=0)
        async with Runtime(options=options) as runtime, runtime.cluster(TcpTransport.listen("127.0.0.1:0")) as cluster:
            workers = [
                start_worker(cluster.endpoint, "--name", f"w{number}", "--slots", "1") for number in range(count)
            ]
            await cluster.wait_for_workers(count)
            operands = [runtime.buffer(np.ones((SIDE, SIDE)), storage="owned", shared=True) for _ in range(2)]
            graph = runtime.graph()
            for _ in range(CALLS):
                graph.add(kernels.product, operands, [runtime.zeros((SIDE, SIDE), float, shared=True)], place="remote")
            await graph.execute()
            began = time.perf_counter()
            await graph.execute()
            seconds = time.perf_counter() - began
            await cluster.close()
            for worker in workers:
                worker.wait(timeout=20)
        alone = alone or seconds
        found.append((f"{CALLS} matrix products on {count} workers", seconds * 1e3, "ms", alone / seconds, "speed-up"))
    return found


async def memory() -> list[Row]:
    """Growth of the master while it receives 256 MiB, and while it sends them."""
    nbytes = 256 << 20
    async with with_worker(shm=False) as (runtime, _):
        small = runtime.zeros(8, float)
        source = runtime.buffer(np.ones(nbytes // 8))
        send = runtime.graph()
        send.add(kernels.total, [source], [small], place="remote")
        before = _resident()
        await send.execute()
        sent = max(_resident() - before, 0)
        out = runtime.zeros(nbytes // 8, float)
        receive = runtime.graph()
        receive.add(kernels.touch, [small], [out], place="remote")
        before = _resident()
        await receive.execute()
        received = max(_resident() - before, 0)
    return [
        ("growth of the sender for 256 MiB", sent / (1 << 20), "MiB", None, "<= 1 MiB and what the run adds"),
        ("growth of the receiver for 256 MiB", received / (1 << 20), "MiB", received / nbytes, "<= 1.05 x"),
    ]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
