"""What all systems compute, by the same functions on the same arrays (section 12 of the specification of offload)."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

Array = Any

ADD_LENGTH = int(os.environ.get("PEERS_ADD_LENGTH", 8 << 20))
"""Float64: three arrays of 64 MiB."""
SIDE = int(os.environ.get("PEERS_SIDE", 4_096))
BANDS, STEPS, ALPHA = 4, int(os.environ.get("PEERS_STEPS", 200)), 0.1
TILES = 8
"""Tiles to a side: 512 products of tiles."""
NAPS, NAP_S = int(os.environ.get("PEERS_NAPS", 10_000)), 0.001
WORKERS = 2
"""Worker processes of each system, each running one kernel at a time."""
ROWS_AT_ONCE = 32
"""Rows of the stencil that stay in a core's cache."""


def operands() -> tuple[Array, Array]:
    """Make the arrays of the vector addition."""
    return np.arange(ADD_LENGTH, dtype=float), np.full(ADD_LENGTH, 0.5)


def stencil(band: Array, above: Array, below: Array, new: Array) -> None:
    """Do one explicit step of the heat equation on a band of rows; the outer columns stay as they are."""
    rows = len(band)
    scratch = np.empty((ROWS_AT_ONCE, band.shape[1] - 2))
    _rows(above[None, :], band[0:1], band[1:2], new[0:1], scratch)
    for start in range(1, rows - 1, ROWS_AT_ONCE):
        end = min(start + ROWS_AT_ONCE, rows - 1)
        _rows(band[start - 1 : end - 1], band[start:end], band[start + 1 : end + 1], new[start:end], scratch)
    _rows(band[-2:-1], band[-1:], below[None, :], new[-1:], scratch)


def _rows(above: Array, rows: Array, below: Array, new: Array, scratch: Array) -> None:
    """Step some rows, in a core's cache and without further memory."""
    inner = new[:, 1:-1]
    np.add(above[:, 1:-1], below[:, 1:-1], out=inner)
    inner += rows[:, :-2]
    inner += rows[:, 2:]
    inner *= ALPHA
    inner += np.multiply(rows[:, 1:-1], 1.0 - 4.0 * ALPHA, out=scratch[: len(rows)])
    new[:, 0], new[:, -1] = rows[:, 0], rows[:, -1]


def plate() -> Array:
    """Return the plate at the start: cold, with a hot square in the middle."""
    field = np.zeros((SIDE, SIDE))
    field[SIDE // 4 : SIDE // 2, SIDE // 4 : SIDE // 2] = 100.0
    return field


def factors() -> tuple[Array, Array]:
    """Return two square matrices as tiles ``(row, column, :, :)``."""
    size = SIDE // TILES
    random = np.random.default_rng(7)
    left, right = random.random((TILES, TILES, size, size)), random.random((TILES, TILES, size, size))
    return left, right


def nap(source: Array, out: Array) -> None:
    """Take a millisecond, and write what came in."""
    time.sleep(NAP_S)
    out[...] = source


def tiny() -> Array:
    """Return 64 bytes."""
    return np.arange(8, dtype=float)
