"""Add two long vectors on another process: the smallest use of offload.

On one host, in two terminals::

    python examples/offload/vector_add.py --port 5555 --workers 1
    python examples/offload/vector_add.py --master 127.0.0.1:5555
"""

from __future__ import annotations

import sys

import numpy as np

from roles import run
from towline.offload import Array, GraphResult, Runtime, kernel


@kernel("vec.add", overwrites=True)
def vec_add(left: Array, right: Array, out: Array) -> None:
    """Write ``left + right`` into ``out``; float64, shape (n,)."""
    np.add(left, right, out=out)


async def add(runtime: Runtime, n: int) -> GraphResult:
    """Add two vectors of ``n`` numbers and compare the sum with numpy's."""
    a, b, c = np.arange(float(n)), np.full(n, 0.5), np.zeros(n)
    graph = runtime.graph("vector add")
    graph.add(vec_add, [runtime.buffer(a), runtime.buffer(b)], [runtime.buffer(c)])
    result = await graph.execute()
    assert c.tobytes() == (a + b).tobytes(), "the sum differs from numpy's"
    return result


if __name__ == "__main__":
    sys.exit(run(add, n=1 << 20, about="Add two vectors."))
