"""Pi by throwing points: tiny arrays, long kernels, and the same number wherever they ran.

Each call has a stream of random numbers of its own, named by its seed, so the sum does not depend on which
worker threw which points. A last call of this process adds the counts.
"""

from __future__ import annotations

import sys

import numpy as np

from roles import run
from towline.offload import Array, GraphResult, Runtime, kernel

CALLS = 64


@kernel("mc.pi", min_offload_bytes=0)
def hits(out: Array, *, seed: int, draws: int) -> None:
    """Count how many of ``draws`` points of the unit square lie in the circle; int64, shape (1,)."""
    points = np.random.default_rng(seed).random((draws, 2))
    out[0] = np.count_nonzero((points * points).sum(axis=1) <= 1.0)


def add_up(*arrays: Array) -> None:
    """Add all but the last array into the last."""
    arrays[-1][0] = sum(int(array[0]) for array in arrays[:-1])


async def estimate(runtime: Runtime, n: int) -> GraphResult:
    """Throw ``n`` points in every call, and compare the count with one made here."""
    counts = [runtime.zeros(1, np.int64, name=f"count {i}") for i in range(CALLS)]
    total = runtime.zeros(1, np.int64, name="total")
    graph = runtime.graph("monte carlo")
    for seed, count in enumerate(counts):
        graph.add(hits, [], [count], {"seed": seed, "draws": n})
    graph.add(None, counts, [total], host=add_up, name="add up")
    result = await graph.execute()
    expected = np.zeros(1, np.int64)
    for seed in range(CALLS):
        here = np.zeros(1, np.int64)
        hits(here, seed=seed, draws=n)
        expected += here
    assert total.array[0] == expected[0], "the count differs from the one made here"
    print(f"pi is about {4 * total.array[0] / (CALLS * n):.6f}")
    return result


if __name__ == "__main__":
    sys.exit(run(estimate, n=100_000, about="Pi by throwing points."))
