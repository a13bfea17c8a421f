"""The two roles of the offload examples: master, alone or with workers, and worker."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from towline.offload import GraphResult, Runtime, TcpTransport
from towline.offload.worker import main as worker_main

Job = Callable[[Runtime, int], Awaitable[GraphResult]]


def run(job: Job, *, n: int, about: str) -> int:
    """Run an example in the role that its flags ask for; returns the exit code.

    Without flags everything runs in this process. ``--port`` and ``--workers`` make it a master that waits for
    workers, ``--master HOST:PORT`` makes it one of those.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--n", type=int, default=n, help=f"size of the problem; default {n}")
    parser.add_argument("--port", type=int, help="listen here for workers; 0 takes a free port and prints it")
    parser.add_argument("--workers", type=int, default=1, help="how many workers to wait for, with --port")
    parser.add_argument("--master", metavar="HOST:PORT", help="be a worker of this master")
    args = parser.parse_args()
    if args.master is not None:
        return worker_main([str(Path(sys.argv[0]).resolve()), "--master", args.master])
    asyncio.run(_be_master(job, args.n, args.port, args.workers))
    return 0


async def _be_master(job: Job, n: int, port: int | None, workers: int) -> None:
    async with Runtime() as runtime:
        if port is None:
            print((await job(runtime, n)).summary())
            return
        async with runtime.cluster(TcpTransport.listen(f"127.0.0.1:{port}")) as cluster:
            print(f"waiting for {workers} workers at {cluster.endpoint}", flush=True)
            await cluster.wait_for_workers(workers)
            print((await job(runtime, n)).summary())
