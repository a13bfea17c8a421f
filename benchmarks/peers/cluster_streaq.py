"""1,000 tasks on streaq over Redis: two workers. They run ``cluster_streaq.py worker``.

Only the last task is waited for: fetching a result takes streaq about 100 ms each, which would be all that is measured.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from processes import running
from reading import TASKS, WARM_UP_TASKS, WORKERS, say
from streaq import Worker

worker = Worker(redis_url=os.environ.get("PEERS_URL", "redis://127.0.0.1"), concurrency=1)


@worker.task
async def nothing() -> None:
    return None


async def seconds_of(count: int) -> float:
    """Queue ``count`` tasks in one go and wait for the last; returns how long that took."""
    started = time.perf_counter()
    tasks = [nothing.enqueue() for _ in range(count)]
    await worker.enqueue_many(tasks)
    if not (await tasks[-1].result(60)).success:
        sys.exit("streaq failed")
    return time.perf_counter() - started


async def measure() -> None:
    """Warm up, then measure."""
    async with worker:
        await seconds_of(WARM_UP_TASKS)
        say(await seconds_of(TASKS), TASKS)


def main() -> None:
    """Start the workers, measure, end them."""
    with running(*[[sys.executable, __file__, "worker"] for _ in range(WORKERS)]):
        time.sleep(6)  # streaq does not say when its workers are ready
        asyncio.run(measure())


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        worker.run_sync()
    else:
        main()
