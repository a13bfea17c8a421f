"""Calls from end to end: their fixed cost, their bytes, and where offloading begins to pay."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import kernels
from towline.offload import AgentOptions, Cluster, InProcessFabric, OffloadOptions, Runtime, TcpTransport, WorkerAgent
from towline.offload.registry import DEFAULT_REGISTRY

HERE = Path(__file__).resolve().parent
Row = tuple[str, float, str, float | None, str]
"""What, value, unit, ratio to the yardstick, bar."""


def start_worker(endpoint: str, *flags: str) -> subprocess.Popen[bytes]:
    """Start a worker process with the kernels of this benchmark."""
    path = os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE)])
    command = [sys.executable, "-m", "towline.offload.worker", str(HERE / "kernels.py"), "--master", endpoint, *flags]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL)


@asynccontextmanager
async def with_worker(**options: Any) -> AsyncIterator[tuple[Runtime, Cluster]]:
    """Have one worker process on this host."""
    settings = OffloadOptions(min_offload_bytes=0, **options)
    async with Runtime(options=settings) as runtime, runtime.cluster(TcpTransport.listen("127.0.0.1:0")) as cluster:
        worker = start_worker(cluster.endpoint)
        try:
            await cluster.wait_for_workers(1, timeout_s=60)
            yield runtime, cluster
        finally:
            await cluster.close()
            worker.wait(timeout=20)


async def timed(graph: Any, count: int) -> float:
    """Median seconds of so many executions, after one that warms."""
    await graph.execute()
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        await graph.execute()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def raw_add(nbytes: int, count: int) -> float:
    """The yardstick: two arrays over one socket, added by another process, and one array back."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = multiprocessing.get_context("spawn").Process(target=_raw_adder, args=(listener.getsockname()[1], nbytes))
    child.start()
    link, _ = listener.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    a, b, r = (np.ones(nbytes // 8) for _ in range(3))
    seconds = []
    for _ in range(count + 1):
        began = time.perf_counter()
        link.sendall(memoryview(a).cast("B"))
        link.sendall(memoryview(b).cast("B"))
        _fill(link, r)
        seconds.append(time.perf_counter() - began)
    link.close()
    child.join()
    return statistics.median(seconds[1:])


def _fill(link: socket.socket, array: Any) -> bool:
    view, got = memoryview(array).cast("B"), 0
    while got < view.nbytes:
        count = link.recv_into(view[got:])
        if not count:
            return False
        got += count
    return True


def _raw_adder(port: int, nbytes: int) -> None:
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    a, b, r = (np.zeros(nbytes // 8) for _ in range(3))
    while _fill(link, a) and _fill(link, b):
        np.add(a, b, out=r)
        link.sendall(memoryview(r).cast("B"))


async def round_trips() -> list[Row]:
    """Vector add with fresh inputs each time (bumped), by TCP and by shared memory, beside the raw socket."""
    rows: list[Row] = []
    for label, nbytes, count in (("64 KiB", 1 << 16, 60), ("1 MiB", 1 << 20, 30), ("64 MiB", 1 << 26, 5)):
        raw = raw_add(nbytes, count)
        for way, shm, shared in (
            ("TCP", False, False),
            ("one copy into a segment", True, False),
            ("shared in place", True, True),
        ):
            async with with_worker(shm=shm, inline_bytes=1 << 20) as (runtime, _):
                arrays = [runtime.buffer(np.ones(nbytes // 8), shared=shared) for _ in range(2)]
                out = runtime.zeros(nbytes // 8, float, shared=shared)
                graph = runtime.graph()
                graph.add(kernels.add, arrays, [out], place="remote")

                async def fresh(graph: Any = graph, arrays: Any = arrays, shared: bool = shared) -> float:
                    if not shared:
                        for array in arrays:
                            array.bump()
                    began = time.perf_counter()
                    await graph.execute()
                    return time.perf_counter() - began

                await fresh()
                seconds = statistics.median([await fresh() for _ in range(count)])
            rows.append((f"vector add, 3 x {label}, {way}", seconds * 1e3, "ms", seconds / raw, "of the raw socket"))
    return rows


async def fixed_costs() -> list[Row]:
    """What a call costs when there is nothing to compute."""
    rows: list[Row] = []
    async with Runtime() as runtime:
        graph = runtime.graph()
        for _ in range(10_000):
            graph.add(None, host=_nothing)
        ours = await timed(graph, 5) / 10_000

        async def bare() -> None:
            return

        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(10_000):
                    group.create_task(bare())
            seconds.append((time.perf_counter() - began) / 10_000)
        yard = statistics.median(seconds)
        rows.append(("standalone, 10,000 no-op calls, each", ours * 1e6, "us", ours / yard, "<= 6 x a bare TaskGroup"))
        one = runtime.graph()
        one.add(None, host=_nothing)
        ours = await timed(one, 300)
        seconds = []
        for _ in range(300):
            began = time.perf_counter()
            await asyncio.create_task(asyncio.to_thread(_nothing))
            seconds.append(time.perf_counter() - began)
        yard = statistics.median(seconds)
        rows.append(("standalone, one thread kernel", ours * 1e6, "us", ours / yard, "<= 2 x one task and thread hop"))
    rows.append(await _fabric_call())
    rows.extend(await _tcp_calls())
    return rows


def _nothing() -> None:
    return


async def _fabric_call() -> Row:
    fabric = InProcessFabric(Random(1))
    options = OffloadOptions(min_offload_bytes=0, shm=False)
    async with Runtime(options=options) as runtime, runtime.cluster(fabric.master()) as cluster:
        agent = WorkerAgent(fabric.worker("w"), DEFAULT_REGISTRY, options=AgentOptions(slots=1, shm=False))
        await agent.start()
        await cluster.wait_for_workers(1)
        graph = runtime.graph()
        graph.add(kernels.empty, [runtime.zeros(8, float)], [runtime.zeros(8, float)], place="remote")
        # The least of five medians: both sides share one core, and whatever else runs takes from it.
        seconds = min([await timed(graph, 300) for _ in range(5)])
        await agent.stop()
    return ("empty kernel, in-process fabric", seconds * 1e6, "us", None, "<= 300 us")


async def _tcp_calls() -> list[Row]:
    async with with_worker(shm=False) as (runtime, _):
        graph = runtime.graph()
        for _ in range(2_000):
            graph.add(kernels.empty, [runtime.zeros(8, float)], [runtime.zeros(8, float)], place="remote")
        seconds = await timed(graph, 3)
    return [("calls per second over TCP, one worker, inline inputs", 2_000 / seconds, "1/s", None, ">= 3,000")]


async def shared_in_place() -> list[Row]:
    """A call on shared buffers moves names: its cost must not depend on the size."""
    rows: list[Row] = []
    async with with_worker() as (runtime, _):
        for label, nbytes in (("64 KiB", 1 << 16), ("64 MiB", 1 << 26)):
            source = runtime.buffer(np.ones(nbytes // 8), storage="owned", shared=True)
            out = runtime.zeros(nbytes // 8, float, shared=True)
            graph = runtime.graph()
            graph.add(kernels.touch, [source], [out], place="remote")
            seconds = await timed(graph, 200)
            rows.append(
                (f"shared memory round trip in place, {label}", seconds * 1e6, "us", None, "<= 100 us at the transport")
            )
    return rows


async def break_even() -> list[Row]:
    """The payload from which a remote call, inputs fresh each time, beats a local one; infinite if it never does here."""
    rows: list[Row] = []
    cases: list[tuple[str, Any, Callable[[int], list[Any]], Callable[[int], Any]]] = [
        ("element-wise", kernels.elementwise, lambda n: [np.ones(n)], lambda n: np.zeros(n)),
        ("reduction", kernels.total, lambda n: [np.ones(n)], lambda n: np.zeros(1)),
        (
            "matrix product",
            kernels.product,
            lambda n: [np.ones((int(n**0.5),) * 2)] * 1,
            lambda n: np.zeros((int(n**0.5),) * 2),
        ),
    ]
    async with with_worker(shm=False, inline_bytes=1 << 20) as (runtime, _):
        for label, kernel, make, target in cases:
            found = float("inf")
            for power in range(10, 22, 2):
                inputs = [runtime.buffer(array) for array in make(1 << power)]
                reads = inputs if kernel is not kernels.product else inputs * 2
                out = runtime.buffer(target(1 << power))
                times = {}
                for place in ("local", "remote"):
                    graph = runtime.graph()
                    graph.add(kernel, reads, [out], place=place)
                    samples = []
                    for _ in range(4):
                        for buffer in inputs:
                            buffer.bump()
                        began = time.perf_counter()
                        await graph.execute()
                        samples.append(time.perf_counter() - began)
                    times[place] = min(samples)
                if (times["remote"] < times["local"] * 1.5 and kernel is kernels.product and found == float("inf")) or (
                    times["remote"] < times["local"] and found == float("inf")
                ):
                    found = float((1 << power) * 8)
            rows.append((f"break-even payload over TCP, {label}", found / 1024, "KiB", None, "measured"))
    return rows
