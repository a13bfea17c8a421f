"""1,000 tasks on Ray: a local cluster with two CPUs."""

from __future__ import annotations

import time

import ray
from reading import TASKS, WARM_UP_TASKS, WORKERS, say


@ray.remote
def nothing() -> None:
    return None


def seconds_of(count: int) -> float:
    """Submit ``count`` tasks and get all values; returns how long that took."""
    started = time.perf_counter()
    ray.get([nothing.remote() for _ in range(count)])
    return time.perf_counter() - started


def main() -> None:
    """Start Ray, warm up, measure."""
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    seconds_of(WARM_UP_TASKS)
    say(seconds_of(TASKS), TASKS)
    ray.shutdown()


if __name__ == "__main__":
    main()
