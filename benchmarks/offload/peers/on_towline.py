"""The workloads on Towline: graphs over buffers, two offload workers of one slot; (b) and (c) with ``shared=True``."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from serving import serve_async
from work import BANDS, NAPS, STEPS, TILES, WORKERS, factors, nap, operands, plate, stencil, tiny

from towline.offload import Array, OffloadOptions, Runtime, TcpTransport, kernel


@kernel("peers.add", executor="thread", overwrites=True)
def add(left: Array, right: Array, out: Array) -> None:
    """Add two arrays."""
    np.add(left, right, out=out)


@kernel("peers.step", executor="thread", overwrites=True)
def step(band: Array, above: Array, below: Array, new: Array, first: Array, last: Array) -> None:
    """Step one band; its edge rows are buffers of their own."""
    stencil(band, above, below, new)
    first[...], last[...] = new[0], new[-1]


@kernel("peers.multiply", executor="thread", overwrites=True)
def multiply(left: Array, right: Array, out: Array) -> None:
    """Begin a tile."""
    np.matmul(left, right, out=out)


@kernel("peers.multiply_add", executor="thread")
def multiply_add(tile: Array, left: Array, right: Array, out: Array) -> None:
    """Go on with a tile; ``out`` begins as ``tile``."""
    out += left @ right


@kernel("peers.rest", executor="thread", overwrites=True, min_offload_bytes=0)
def rest(source: Array, out: Array) -> None:
    """Take a millisecond."""
    nap(source, out)


class OnTowline:
    """A runtime whose cluster is warm."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        left, right = operands()
        self.arrays = (left, right, np.zeros_like(left))
        self.buffers = [runtime.buffer(array) for array in self.arrays]

    async def add(self) -> float:
        """(a): fresh inputs each time; the result lands in the caller's own array."""
        left, right, out = self.buffers
        self.arrays[0][0] += 1.0
        left.bump()
        right.bump()
        graph = self.runtime.graph("add")
        graph.add(add, [left, right], [out], place="remote")
        await graph.execute()
        return float(self.arrays[2][-1])

    async def heat(self) -> float:
        """(b): one graph for all steps, a stepped field per band and per edge row."""
        runtime = self.runtime
        parts = np.array_split(plate(), BANDS)
        bands = [runtime.state(part, shared=True) for part in parts]
        firsts = [runtime.state(part[0], shared=True) for part in parts]
        lasts = [runtime.state(part[-1], shared=True) for part in parts]
        border = runtime.zeros(parts[0].shape[1], float, shared=True)
        graph = runtime.graph("heat")
        for _ in range(STEPS):
            for i, band in enumerate(bands):
                above = lasts[i - 1].read if i else border
                below = firsts[i + 1].read if i + 1 < BANDS else border
                graph.add(
                    step, [band.read, above, below], [band.write, firsts[i].write, lasts[i].write], place="remote"
                )
            for state in (*bands, *firsts, *lasts):
                state.step()
        await graph.execute()
        checksum = float(np.concatenate([band.read.array for band in bands]).sum())
        for used in (*bands, *firsts, *lasts, border):
            used.release()
        return checksum

    async def product(self) -> float:
        """(c): one chain of calls per tile."""
        runtime = self.runtime
        left, right = factors()
        a = [[runtime.buffer(tile, storage="owned", shared=True) for tile in line] for line in left]
        b = [[runtime.buffer(tile, storage="owned", shared=True) for tile in line] for line in right]
        c = [[runtime.zeros(left.shape[2:], float, shared=True) for _ in range(TILES)] for _ in range(TILES)]
        graph = runtime.graph("product")
        for i in range(TILES):
            for j in range(TILES):
                graph.add(multiply, [a[i][0], b[0][j]], [c[i][j]], place="remote")
                for k in range(1, TILES):
                    graph.add(multiply_add, [c[i][j], a[i][k], b[k][j]], [c[i][j]], place="remote")
        await graph.execute()
        checksum = float(sum(tile.array.sum() for line in c for tile in line))
        for line in (*a, *b, *c):
            for tile in line:
                tile.release()
        return checksum

    async def naps(self) -> float:
        """(d): each call has an input and an output of its own."""
        runtime = self.runtime
        graph = runtime.graph("naps")
        outs = [np.zeros(8) for _ in range(NAPS)]
        buffers = []
        for out in outs:
            pair = (runtime.buffer(tiny()), runtime.buffer(out))
            graph.add(rest, [pair[0]], [pair[1]], place="remote")
            buffers.extend(pair)
        await graph.execute()
        for buffer in buffers:
            buffer.release()
        return float(sum(out[-1] for out in outs))


def start_worker(endpoint: str) -> subprocess.Popen[bytes]:
    """Start a worker process with the kernels of this file."""
    here = str(Path(__file__).resolve())
    command = [sys.executable, "-m", "towline.offload.worker", here, "--master", endpoint, "--slots", "1"]
    return subprocess.Popen(command, env=os.environ.copy(), stdout=subprocess.DEVNULL)


async def main() -> None:
    """Start two workers of one slot."""
    async with (
        Runtime(options=OffloadOptions()) as runtime,
        runtime.cluster(TcpTransport.listen("127.0.0.1:0")) as cluster,
    ):
        workers = [start_worker(cluster.endpoint) for _ in range(WORKERS)]
        try:
            await cluster.wait_for_workers(WORKERS, timeout_s=60)
            jobs = OnTowline(runtime)
            warm = runtime.graph("warm")
            for _ in range(100):
                warm.add(rest, [runtime.buffer(tiny())], [runtime.zeros(8, float)], place="remote")
            await warm.execute()
            await serve_async({"a": jobs.add, "b": jobs.heat, "c": jobs.product, "d": jobs.naps})
        finally:
            await cluster.close()
            for worker in workers:
                worker.wait(timeout=20)


if __name__ == "__main__":
    asyncio.run(main())
