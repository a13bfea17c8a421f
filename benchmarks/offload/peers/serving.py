"""How a measured system talks to the program that measures: a letter in, seconds and a checksum out."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

Job = Callable[[], float]
"""Does the work, from arrays of this process to an array of this process; returns a checksum of that."""


def serve(jobs: dict[str, Job]) -> None:
    """Say that the cluster is warm, then do what is asked for until the input ends."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        job = jobs[line.strip()]
        began = time.perf_counter()
        checksum = job()
        print(json.dumps({"seconds": time.perf_counter() - began, "checksum": checksum}), flush=True)


async def serve_async(jobs: dict[str, Callable[[], Awaitable[float]]]) -> None:
    """Do the same with jobs that run in this loop, which stays free while nothing is asked for."""
    loop = asyncio.get_running_loop()
    print(json.dumps({"ready": True}), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        job = jobs[line.strip()]
        began = time.perf_counter()
        checksum = await job()
        print(json.dumps({"seconds": time.perf_counter() - began, "checksum": checksum}), flush=True)
