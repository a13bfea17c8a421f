"""Memory of a worker that its kernel processes, and a master on the same host, can map."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from towline.offload.pieces import Piece, PrivateMemory
from towline.offload.regions import attach

if TYPE_CHECKING:
    from towline.offload.regions import RegionPool

SHARED_FROM_BYTES = 32 * 1024
"""Smaller arrays ride along in requests to kernel processes."""


class SegmentMemory(PrivateMemory):
    """Large arrays lie in regions of the pool; a region goes back when nothing refers to its piece any more."""

    def __init__(self, regions: RegionPool) -> None:
        self._regions = regions

    def allocate(self, nbytes: int) -> Piece | None:
        """Return memory of any content: shared if it is large and there is shared memory, else private."""
        if nbytes <= SHARED_FROM_BYTES:
            return super().allocate(nbytes)
        region = self._regions.take(nbytes)
        if region is None:
            return super().allocate(nbytes)
        piece = Piece(region.view(), region.segment)
        # Arrays over the piece are made per run and die with it; the master copies out of the segment before
        # it acknowledges. So when the piece is gone, nobody looks at the region.
        weakref.finalize(piece, self._regions.retire, region, viewed=False).atexit = False
        return piece

    def attach(self, segment: tuple[str, int], nbytes: int, *, writable: bool, whole: bool = False) -> Piece | None:
        """Map a segment that the master names."""
        if nbytes == 0:
            return Piece(memoryview(bytearray()))
        view = attach(segment, nbytes, writable=writable, whole=whole)
        return Piece(view, segment) if view is not None else None
