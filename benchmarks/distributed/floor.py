"""The floor: the barest dispatch over Redis. A script to claim, one to publish, wake-ups by pub/sub, and nothing else.

No plan, journal, lease, heartbeat, event or order; what Towline adds is measured against it. ``floor.py PORT SLOTS``
is one of its workers.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import redis.asyncio as aredis

CLAIM = """local best = redis.call('ZPOPMIN', KEYS[1])
if #best == 0 then return nil end
redis.call('HSET', KEYS[2], ARGV[1], best[1])
return best[1]"""
PUBLISH = """redis.call('HDEL', KEYS[2], ARGV[1])
if redis.call('HSETNX', KEYS[3], ARGV[2], ARGV[3]) == 1 then redis.call('PUBLISH', 'done', ARGV[2]) end"""
ENQUEUE = """redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
redis.call('PUBLISH', 'work', '1')"""
WARM_UP_TASKS = 50


def payload(number: int) -> list[str]:
    """Return a value of about 100 KiB as JSON."""
    return [f"{number:06d}-{line:06d}-" + "x" * 84 for line in range(1024)]


async def _body(kind: str, number: int) -> object:
    if kind == "nap":
        await asyncio.sleep(0.05)
    elif kind == "tick":
        return time.monotonic(), time.monotonic()
    elif kind == "big":
        return payload(number)
    return None


async def _work(port: int, slots: int) -> None:
    client = aredis.Redis(port=port, decode_responses=True)
    claim, publish = client.register_script(CLAIM), client.register_script(PUBLISH)
    listener, woken = client.pubsub(), asyncio.Event()
    await listener.subscribe("work")

    async def listen() -> None:
        async for _ in listener.listen():
            woken.set()

    async def use_slot(number: int) -> None:
        holder = f"{os.getpid()}-{number}"
        while True:
            woken.clear()
            found = await claim(keys=["queue", "leases"], args=[holder])
            if found is None:
                await woken.wait()
                continue
            task, kind, given = json.loads(found)
            value = json.dumps(await _body(kind, given))
            await publish(keys=["queue", "leases", "results"], args=[holder, task, value])

    listening = asyncio.ensure_future(listen())
    await client.publish("up", "1")
    await asyncio.gather(listening, *[use_slot(number) for number in range(slots)])


class Floor:
    """The master's side, with two workers as processes."""

    def __init__(self, port: int, slots: int) -> None:
        self._port, self._slots = port, slots
        pool = aredis.BlockingConnectionPool(port=port, decode_responses=True, max_connections=8, timeout=None)
        self._client = aredis.Redis(connection_pool=pool)
        self._enqueue = self._client.register_script(ENQUEUE)
        self._results: dict[int, asyncio.Future[Any]] = {}
        self._last = 0
        self._tasks: set[asyncio.Future[Any]] = set()
        self._workers: list[subprocess.Popen[bytes]] = []

    async def start(self, workers: int = 2) -> None:
        """Start workers and wait for them."""
        listener = self._client.pubsub()
        await listener.subscribe("done", "up")
        up = asyncio.Semaphore(0)

        async def listen() -> None:
            async for message in listener.listen():
                if message["type"] == "message" and message["channel"] == "up":
                    up.release()
                elif message["type"] == "message":
                    self._spawn(self._fetch(message["data"]))

        self._spawn(listen())
        command = [sys.executable, __file__, str(self._port), str(self._slots)]
        self._workers = [subprocess.Popen(command) for _ in range(workers)]  # noqa: ASYNC220 - nothing else runs yet
        for _ in self._workers:
            await up.acquire()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch(self, task: str) -> None:
        value = await self._client.hget("results", task)
        self._results.pop(int(task)).set_result(json.loads(value or "null"))

    def submit(self, kind: str, number: int = 0) -> asyncio.Future[Any]:
        """Queue a task; the future gets its value."""
        self._last += 1
        result = self._results[self._last] = asyncio.get_running_loop().create_future()
        record = json.dumps([self._last, kind, number])
        self._spawn(self._enqueue(keys=["queue"], args=[self._last, record]))
        return result

    async def close(self) -> None:
        """End the workers."""
        for task in self._tasks:
            task.cancel()
        for worker in self._workers:
            worker.kill()
            worker.wait()
        await self._client.aclose()


def measure(port: int, slots: int, work: Callable[[Floor], Awaitable[float]]) -> float:
    """Run a measurement on a warm floor."""

    async def run() -> float:
        floor = Floor(port, slots)
        await floor.start()
        try:
            await asyncio.gather(*[floor.submit("nop") for _ in range(WARM_UP_TASKS)])
            return await work(floor)
        finally:
            await floor.close()

    return asyncio.run(run())


async def seconds_of(floor: Floor, kind: str, count: int) -> float:
    """Return how long ``count`` tasks took, all submitted at once."""
    began = time.perf_counter()
    await asyncio.gather(*[floor.submit(kind, number) for number in range(count)])
    return time.perf_counter() - began


async def chain_gap_ms(floor: Floor, count: int) -> float:
    """Return the median from the end of one body to the start of the next, in milliseconds."""
    marks = [await floor.submit("tick") for _ in range(count)]
    return gap_ms(marks)


def gap_ms(marks: list[Any]) -> float:
    """Return the median gap between (start, end) pairs of a chain in milliseconds."""
    gaps = sorted(later[0] - earlier[1] for earlier, later in pairwise(marks))
    return float(gaps[len(gaps) // 2] * 1e3)


if __name__ == "__main__":
    try:
        asyncio.run(_work(int(sys.argv[1]), int(sys.argv[2])))
    except (KeyboardInterrupt, ConnectionError):
        sys.exit(0)
