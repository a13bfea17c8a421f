"""Shared memory of one host: the one copy into a segment beside a raw socket, and a round trip that leaves the bytes where they are."""

from __future__ import annotations

import asyncio
import statistics
import time

import numpy as np

import wire
from towline.offload.mappings import Mappings
from towline.offload.regions import RegionPool

SIZES = (("64 KiB", 1 << 16), ("64 MiB", 1 << 26))
TIMES = 7


def rows() -> list[tuple[str, float, str, float | None, str]]:
    """Measure both; a round trip in place is a frame there and back, and the worker's mapping of the segment.

    Each version is read by a worker, which lets go of it when the next one comes: what a loop of calls does.
    """
    pool = RegionPool()
    found: list[tuple[str, float, str, float | None, str]] = []
    ratios, copies = [], []
    data = memoryview(np.ones(1 << 26, np.uint8)).cast("B")
    for number in range(TIMES):
        raw = wire.raw_one_way(1 << 26, 4)
        began = time.perf_counter()
        pool.staging.stage(1, number, data)
        copies.append(time.perf_counter() - began)
        pool.staging.lend(1, 1, number)
        pool.staging.unstage(1)
        pool.staging.returned(1, number)
        ratios.append(raw / copies[-1])
    gigabytes = data.nbytes / statistics.median(copies) / 1e9
    found.append(("shared memory, one copy in, 64 MiB", gigabytes, "GB/s", statistics.median(ratios), ">= 2.5 x raw"))
    frames_s = statistics.median(asyncio.run(wire.link_round_trip(2_000)) for _ in range(3))
    for label, nbytes in SIZES:
        region = pool.take(nbytes)
        assert region is not None, pool.refused
        took = []
        kept = Mappings()
        for _ in range(200):
            began = time.perf_counter()
            view = kept.view(region.segment, nbytes, writable=True, filled=True)
            assert view is not None
            view[0] = 1
            del view
            took.append(time.perf_counter() - began)
        seconds = frames_s + statistics.median(took)
        found.append((f"shared memory, round trip in place, {label}", seconds * 1e6, "us", None, "<= 100 us"))
        pool.lose(region)
    return found
