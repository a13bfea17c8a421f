"""A matrix product in tiles: chains of sums, and operands that workers keep.

The operands are stored as tiles, ``(rows, columns, b, b)``; ``split(axes=2)`` makes a buffer of each. Tile
``c[i, j]`` is read and written once for each ``k``: those calls form a chain, different tiles do not wait.
"""

from __future__ import annotations

import sys

import numpy as np

from roles import run
from towline.offload import Array, GraphResult, Runtime, kernel

TILES = 4


@kernel("tile.multiply_add")
def multiply_add(left: Array, right: Array, old: Array, new: Array) -> None:
    """Write ``old + left @ right`` into ``new``; square tiles of float64."""
    np.add(old, left @ right, out=new)


def tiled(matrix: Array, tile: int) -> Array:
    """Store a square matrix as tiles."""
    count = matrix.shape[0] // tile
    return np.ascontiguousarray(matrix.reshape(count, tile, count, tile).swapaxes(1, 2))


def whole(tiles: Array) -> Array:
    """Store tiles as one matrix again."""
    count, _, tile, _ = tiles.shape
    return tiles.swapaxes(1, 2).reshape(count * tile, count * tile)


async def multiply(runtime: Runtime, n: int, *, shared: bool = True) -> GraphResult:
    """Multiply two matrices of ``n`` rows; compare with the same sums in this process, and with ``a @ b``."""
    tile = n // TILES
    source = np.random.default_rng(7)
    a, b = source.random((TILES * tile, TILES * tile)), source.random((TILES * tile, TILES * tile))
    left, right = tiled(a, tile), tiled(b, tile)
    product = runtime.buffer(np.zeros_like(left), name="c", shared=shared)
    lefts = runtime.buffer(left, name="a", shared=shared).split(axes=2)
    rights = runtime.buffer(right, name="b", shared=shared).split(axes=2)
    sums = product.split(axes=2)
    graph = runtime.graph("matrix product")
    expected = np.zeros_like(left)
    for i in range(TILES):
        for j in range(TILES):
            for k in range(TILES):
                c = sums[i * TILES + j]
                graph.add(multiply_add, [lefts[i * TILES + k], rights[k * TILES + j], c], [c])
                expected[i, j] += left[i, k] @ right[k, j]
    result = await graph.execute()
    product.join()
    assert np.allclose(product.array, expected, rtol=1e-12), "a tile differs from the same sum made here"
    assert np.allclose(whole(product.array), a @ b), "the product differs from numpy's"
    return result


if __name__ == "__main__":
    sys.exit(run(multiply, n=1_024, about="Multiply two matrices."))
