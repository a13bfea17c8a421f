"""1,000 tasks on Celery over Redis: two prefork workers, a group. ``cluster_celery.py URL``; the workers import ``app``.

As Celery's guide to optimizing advises for short tasks, a worker reserves many at a time; JSON is its default.
"""

from __future__ import annotations

import os
import sys
import time

from celery import Celery, group
from processes import running
from reading import TASKS, WARM_UP_TASKS, WORKERS, say

URL = os.environ.get("PEERS_URL", "")
app = Celery("peers", broker=URL, backend=URL)
app.conf.worker_prefetch_multiplier = 64


@app.task(name="nothing")
def nothing() -> None:
    return None


def main() -> None:
    """Start the workers, measure, end them."""
    command = [sys.executable, "-m", "celery", "-A", "cluster_celery", "worker", "-c", "1", "-l", "CRITICAL"]
    with running(*[[*command, "-n", f"w{number}@peers"] for number in range(WORKERS)]):
        while len(app.control.ping(timeout=0.5)) < WORKERS:
            time.sleep(0.1)
        group(nothing.s() for _ in range(WARM_UP_TASKS)).apply_async().get(timeout=60)
        started = time.perf_counter()
        group(nothing.s() for _ in range(TASKS)).apply_async().get(timeout=60)
        say(time.perf_counter() - started, TASKS)


if __name__ == "__main__":
    main()
