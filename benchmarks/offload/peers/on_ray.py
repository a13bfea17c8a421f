"""The workloads on Ray: tasks over its shared-memory object store."""

from __future__ import annotations

from typing import Any

import numpy as np
import ray
from serving import serve
from work import BANDS, NAPS, STEPS, TILES, WORKERS, factors, nap, operands, plate, stencil, tiny


@ray.remote
def add(left: Any, right: Any) -> Any:
    """Add two arrays."""
    return np.add(left, right)


@ray.remote(num_returns=3)
def step(band: Any, above: Any, below: Any) -> Any:
    """Step one band; its edge rows are objects of their own."""
    new = np.empty_like(band)
    stencil(band, above, below, new)
    return new, new[0].copy(), new[-1].copy()


@ray.remote
def multiply(left: Any, right: Any) -> Any:
    """Begin a tile."""
    return left @ right


@ray.remote
def multiply_add(tile: Any, left: Any, right: Any) -> Any:
    """Go on with a tile."""
    return tile + left @ right


@ray.remote
def rest(source: Any) -> Any:
    """Take a millisecond."""
    out = np.empty_like(source)
    nap(source, out)
    return out


class OnRay:
    """A local cluster with warm workers."""

    def __init__(self) -> None:
        self.left, self.right = operands()

    def add(self) -> float:
        """(a): fresh inputs each time."""
        self.left[0] += 1.0
        return float(ray.get(add.remote(ray.put(self.left), ray.put(self.right)))[-1])

    def heat(self) -> float:
        """(b): three objects per band and step."""
        parts = np.array_split(plate(), BANDS)
        state = [(ray.put(part), ray.put(part[0].copy()), ray.put(part[-1].copy())) for part in parts]
        border = ray.put(np.zeros(parts[0].shape[1]))
        for _ in range(STEPS):
            state = [
                tuple(step.remote(band, state[i - 1][2] if i else border,
                                  state[i + 1][1] if i + 1 < BANDS else border))
                for i, (band, _, _) in enumerate(state)
            ]  # fmt: skip
        return float(np.concatenate(ray.get([band for band, _, _ in state])).sum())

    def product(self) -> float:
        """(c): one chain of tasks per tile."""
        left, right = factors()
        a = [[ray.put(tile) for tile in line] for line in left]
        b = [[ray.put(tile) for tile in line] for line in right]
        tiles = []
        for i in range(TILES):
            for j in range(TILES):
                tile = multiply.remote(a[i][0], b[0][j])
                for k in range(1, TILES):
                    tile = multiply_add.remote(tile, a[i][k], b[k][j])
                tiles.append(tile)
        return float(sum(tile.sum() for tile in ray.get(tiles)))

    def naps(self) -> float:
        """(d)."""
        return float(sum(out[-1] for out in ray.get([rest.remote(tiny()) for _ in range(NAPS)])))


def main() -> None:
    """Start Ray with two CPUs."""
    ray.init(
        num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
        object_store_memory=4 << 30,
    )  # fmt: skip
    ray.get([rest.remote(tiny()) for _ in range(100)])
    jobs = OnRay()
    serve({"a": jobs.add, "b": jobs.heat, "c": jobs.product, "d": jobs.naps})
    ray.shutdown()


if __name__ == "__main__":
    main()
