"""Strong scaling over worker processes, and the memory that a transfer costs."""

from __future__ import annotations

import asyncio
import signal
import statistics
import time
from pathlib import Path

import numpy as np

import kernels
from calls import start_worker, with_worker
from towline.offload import OffloadEvent, OffloadOptions, Runtime, TcpTransport

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
    """Peak growth of the master while it sends 1 GiB, and while it receives as much; 256 MiB where memory is short."""
    nbytes, label = (1 << 30, "1 GiB") if _available() > 8 << 30 else (256 << 20, "256 MiB, for want of memory")
    async with with_worker(shm=False) as (runtime, _):
        small = runtime.zeros(8, float)
        source, target = runtime.buffer(np.ones(nbytes // 8)), runtime.zeros(nbytes // 8, float)
        grown = []
        for kernel, reads, writes in ((kernels.total, [source], [small]), (kernels.touch, [small], [target])):
            graph = runtime.graph()
            graph.add(kernel, reads, writes, place="remote")
            before = _forget_peak()
            await graph.execute()
            grown.append(max(_status("VmHWM") - before, 0))
    sent, received = grown
    return [
        (f"peak growth of the sender for {label}", sent / (1 << 20), "MiB", None, "<= 1 MiB"),
        (f"peak growth of the receiver for {label}", received / (1 << 20), "MiB", received / nbytes, "<= 1.05 x"),
    ]


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _forget_peak() -> int:
    """Let the peak begin anew; returns what is resident now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status("VmRSS")


def _available() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


async def deaths() -> list[Row]:
    """Seconds from the death of a worker to the new dispatch of its call: a closed stream, and silence."""
    rows: list[Row] = []
    for label, how, bar in (("end of stream", signal.SIGKILL, "<= 0.2 s"), ("silence", signal.SIGSTOP, "<= 6 s")):
        seconds = statistics.median([await _death(how) for _ in range(3)])
        rows.append((f"death to re-dispatch, {label}", seconds, "s", None, bar))
    return rows


async def _death(how: signal.Signals) -> float:
    options = OffloadOptions(min_offload_bytes=0)
    async with Runtime(options=options) as runtime, runtime.cluster(TcpTransport.listen("127.0.0.1:0")) as cluster:
        workers = {name: start_worker(cluster.endpoint, "--name", name, "--slots", "1") for name in ("w0", "w1")}
        await cluster.wait_for_workers(2)
        again: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        began = 0.0

        def hear(event: OffloadEvent) -> None:
            nonlocal began
            if event.kind == "call_offloaded" and not began:
                began = time.perf_counter()
                workers[str(event.worker)].send_signal(how)
            elif event.kind == "call_redispatched" and not again.done():
                again.set_result(time.perf_counter() - began)

        cluster.on_event(hear)
        graph = runtime.graph()
        graph.add(kernels.wait, [runtime.zeros(8, float)], [runtime.zeros(8, float)], place="remote")
        await graph.execute()
        await cluster.close()
        for worker in workers.values():
            worker.kill()
            worker.wait(timeout=20)
        return await again
