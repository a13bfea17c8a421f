"""1,000 tasks on taskiq over Redis: two worker processes, a result back end. The worker imports ``broker``.

The stream broker is the one that its documentation recommends. Results are asked for every 5 ms.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from processes import running
from reading import TASKS, WARM_UP_TASKS, WORKERS, say
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

URL = os.environ.get("PEERS_URL", "redis://127.0.0.1")
broker = RedisStreamBroker(URL, max_connection_pool_size=32).with_result_backend(
    RedisAsyncResultBackend(URL, max_connection_pool_size=32)
)


@broker.task(task_name="nothing")
async def nothing() -> None:
    return None


async def seconds_of(count: int) -> float:
    """Send ``count`` tasks and wait for all results; returns how long that took."""
    started = time.perf_counter()
    sent = [await nothing.kiq() for _ in range(count)]
    for one in sent:
        await one.wait_result(check_interval=0.005, timeout=60)
    return time.perf_counter() - started


async def measure() -> None:
    """Warm up, then measure."""
    await broker.startup()
    await seconds_of(WARM_UP_TASKS)
    say(await seconds_of(TASKS), TASKS)
    await broker.shutdown()


def main() -> None:
    """Start the workers, measure, end them."""
    command = [sys.executable, "-m", "taskiq", "worker", "cluster_taskiq:broker", "--workers", str(WORKERS)]
    command += ["--max-async-tasks", "1", "--log-level", "CRITICAL"]
    with running(command):
        asyncio.run(measure())


if __name__ == "__main__":
    main()
