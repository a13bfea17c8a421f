"""Prints by how many bytes a master grows at its peak: while it sends an array to a worker process, and while it receives one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np
from offload_kernels import REGISTRY, spread, total
from real_workers import workers

from towline.offload import OffloadOptions, Runtime, TcpTransport


def resident(field: str) -> int:
    """Read ``VmRSS`` or ``VmHWM`` of this process, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(field)


def forget_peak() -> int:
    """Let the peak begin anew; returns what is resident now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident("VmRSS")


async def main(nbytes: int) -> None:
    """Send one array of ``nbytes`` to a worker, then fetch one; print the growth of each."""
    options = OffloadOptions(min_offload_bytes=0, shm=False)
    async with (
        Runtime(kernels=REGISTRY, options=options) as runtime,
        runtime.cluster(TcpTransport.listen("127.0.0.1:0")) as cluster,
    ):
        with workers(cluster.endpoint, 1, "--no-shm"):
            await cluster.wait_for_workers(1, timeout_s=40)
            seed, answer = runtime.buffer(np.full(8, 3.0)), runtime.zeros(1, float)
            source, target = runtime.buffer(np.ones(nbytes // 8)), runtime.zeros(nbytes // 8, float)
            for kernel, reads, writes in ((total, [source], [answer]), (spread, [seed], [target])):
                warm = runtime.graph()
                warm.add(total, [seed], [answer], place="remote")
                await warm.execute()
                graph = runtime.graph()
                graph.add(kernel, reads, writes, place="remote")
                before = forget_peak()
                await graph.execute()
                print(resident("VmHWM") - before, flush=True)
            assert (answer.array[0], target.array[-1]) == (24.0, 3.0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
