"""1,000 tasks on Dask's distributed scheduler: two worker processes of one thread on this machine."""

from __future__ import annotations

import time

from dask.distributed import Client, LocalCluster
from reading import TASKS, WARM_UP_TASKS, WORKERS, say


def nothing(_number: int) -> None:
    return None


def seconds_of(client: Client, count: int) -> float:
    """Map over ``count`` numbers and gather; returns how long that took."""
    started = time.perf_counter()
    client.gather(client.map(nothing, range(count), pure=False))
    return time.perf_counter() - started


def main() -> None:
    """Start the cluster, warm up, measure."""
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(WORKERS)
        seconds_of(client, WARM_UP_TASKS)
        say(seconds_of(client, TASKS), TASKS)


if __name__ == "__main__":
    main()
