"""The workloads on Dask distributed: futures on a local cluster, data scattered straight to the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from serving import serve
from work import BANDS, NAPS, STEPS, TILES, WORKERS, factors, nap, operands, plate, stencil, tiny

from distributed import Client, LocalCluster


def add(left: Any, right: Any) -> Any:
    """Add two arrays."""
    return np.add(left, right)


def step(band: Any, above: Any, below: Any) -> Any:
    """Step one band."""
    new = np.empty_like(band)
    stencil(band, above, below, new)
    return new


def row(band: Any, index: int) -> Any:
    """Take one edge row of a band."""
    return band[index].copy()


def multiply(left: Any, right: Any) -> Any:
    """Begin a tile."""
    return left @ right


def multiply_add(tile: Any, left: Any, right: Any) -> Any:
    """Go on with a tile."""
    return tile + left @ right


def rest(source: Any) -> Any:
    """Take a millisecond."""
    out = np.empty_like(source)
    nap(source, out)
    return out


class OnDask:
    """A client with warm workers."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.left, self.right = operands()

    def add(self) -> float:
        """(a): fresh inputs each time."""
        self.left[0] += 1.0
        left, right = self.client.scatter([self.left, self.right], hash=False, direct=True)
        return float(self.client.submit(add, left, right, pure=False).result()[-1])

    def heat(self) -> float:
        """(b): futures of bands and of their edge rows."""
        client = self.client
        bands = client.scatter(np.array_split(plate(), BANDS), hash=False, direct=True)
        border = client.scatter(np.zeros(plate().shape[1]), hash=False, direct=True, broadcast=True)
        for _ in range(STEPS):
            firsts = [client.submit(row, band, 0, pure=False) for band in bands]
            lasts = [client.submit(row, band, -1, pure=False) for band in bands]
            bands = [
                client.submit(step, band, lasts[i - 1] if i else border,
                              firsts[i + 1] if i + 1 < BANDS else border, pure=False)
                for i, band in enumerate(bands)
            ]  # fmt: skip
        return float(np.concatenate(client.gather(bands, direct=True)).sum())

    def product(self) -> float:
        """(c): one chain of futures per tile."""
        client = self.client
        left, right = factors()
        a = client.scatter([tile for line in left for tile in line], hash=False, direct=True)
        b = client.scatter([tile for line in right for tile in line], hash=False, direct=True)
        tiles = []
        for i in range(TILES):
            for j in range(TILES):
                tile = client.submit(multiply, a[i * TILES], b[j], pure=False)
                for k in range(1, TILES):
                    tile = client.submit(multiply_add, tile, a[i * TILES + k], b[k * TILES + j], pure=False)
                tiles.append(tile)
        return float(sum(tile.sum() for tile in client.gather(tiles, direct=True)))

    def naps(self) -> float:
        """(d)."""
        client = self.client
        futures = client.map(rest, [tiny() for _ in range(NAPS)], pure=False)
        return float(sum(out[-1] for out in client.gather(futures)))


def main() -> None:
    """Start two worker processes of one thread."""
    with (
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(WORKERS)
        client.gather(client.map(rest, [tiny() for _ in range(100)], pure=False))
        jobs = OnDask(client)
        serve({"a": jobs.add, "b": jobs.heat, "c": jobs.product, "d": jobs.naps})


if __name__ == "__main__":
    main()
