"""The heat equation on a square plate, in bands of rows, a thousand steps in one graph.

Each band is a stepped field, and so is each of its two edge rows. A band reads itself and the edge rows of
its neighbours, and writes itself and its own edge rows: between workers only edge rows have to travel.
"""

from __future__ import annotations

import sys

import numpy as np

from roles import run
from towline.offload import Array, GraphResult, Runtime, State, kernel

BANDS = 4
ALPHA = 0.1


@kernel("heat.step", overwrites=True)
def heat_step(band: Array, above: Array, below: Array, new: Array, first: Array, last: Array, *, alpha: float) -> None:
    """Do one explicit step of a band, with the rows above and below it; the outer columns stay as they are."""
    padded = np.concatenate([above[None, :], band, below[None, :]])
    new[...] = band
    centre = padded[1:-1, 1:-1]
    around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    new[:, 1:-1] = centre + alpha * (around - 4.0 * centre)
    first[...] = new[0]
    last[...] = new[-1]


def plate(n: int) -> Array:
    """Return the plate at the start: cold, with a hot square in the middle."""
    field = np.zeros((n, n))
    field[n // 4 : n // 2, n // 4 : n // 2] = 100.0
    return field


def serial(field: Array, steps: int) -> Array:
    """Return the plate after so many steps, computed as a whole."""
    border = np.zeros(field.shape[1])
    for _ in range(steps):
        new, edge, other = np.empty_like(field), np.empty_like(border), np.empty_like(border)
        heat_step(field, border, border, new, edge, other, alpha=ALPHA)
        field = new
    return field


async def simulate(runtime: Runtime, n: int, steps: int = 1_000, *, shared: bool = True) -> GraphResult:
    """Do the steps, and compare the plate with the one that was computed as a whole, byte by byte."""
    start = plate(n)
    parts = np.array_split(start, BANDS)
    bands = [runtime.state(part, name=f"band {i}", shared=shared) for i, part in enumerate(parts)]
    firsts = [runtime.state(part[0], name=f"first row {i}", shared=shared) for i, part in enumerate(parts)]
    lasts = [runtime.state(part[-1], name=f"last row {i}", shared=shared) for i, part in enumerate(parts)]
    border = runtime.zeros(n, np.float64, name="border", shared=shared)
    graph = runtime.graph("heat")
    for _ in range(steps):
        for i, band in enumerate(bands):
            above = lasts[i - 1].read if i else border
            below = firsts[i + 1].read if i + 1 < BANDS else border
            graph.add(
                heat_step, [band.read, above, below], [band.write, firsts[i].write, lasts[i].write], {"alpha": ALPHA}
            )
        _step(bands, firsts, lasts)
    result = await graph.execute()
    field = np.concatenate([band.read.array for band in bands])
    assert field.tobytes() == serial(start, steps).tobytes(), "the plate differs from the serial one"
    return result


def _step(*fields: list[State]) -> None:
    for states in fields:
        for state in states:
            state.step()


if __name__ == "__main__":
    sys.exit(run(simulate, n=512, about="Heat in a plate."))
