"""1,000 tasks on Parsl's HighThroughputExecutor: two managers of one worker on this machine.

Managers fetch ahead, as Parsl's documentation advises for many short tasks.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
from reading import TASKS, WARM_UP_TASKS, WORKERS, say


@parsl.python_app
def nothing() -> None:
    return None


def seconds_of(count: int) -> float:
    """Call an app ``count`` times and wait for all futures; returns how long that took."""
    started = time.perf_counter()
    for future in [nothing() for _ in range(count)]:
        future.result()
    return time.perf_counter() - started


def main() -> None:
    """Start the executor, warm up, measure."""
    # The interchange is a program that Parsl looks for on PATH.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    provider = LocalProvider(init_blocks=WORKERS, min_blocks=WORKERS, max_blocks=WORKERS)
    executor = HighThroughputExecutor(
        label="peers", address="127.0.0.1", max_workers_per_node=1, prefetch_capacity=16, provider=provider
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        config = Config(executors=[executor], run_dir=folder, initialize_logging=False, usage_tracking=0)
        with parsl.load(config):
            while len(executor.connected_managers()) < WORKERS:
                time.sleep(0.1)
            seconds_of(WARM_UP_TASKS)
            say(seconds_of(TASKS), TASKS)


if __name__ == "__main__":
    import cluster_parsl  # apps are found by the module they live in, which is not __main__

    cluster_parsl.main()
