"""Memory of a worker that its kernel processes, and a master on the same host, can map."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from towline.offload.mappings import Mappings
from towline.offload.pieces import Loan, Piece, PrivateMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.offload.regions import Region, RegionPool

T = TypeVar("T")

SHARED_FROM_BYTES = 32 * 1024
"""Smaller arrays ride along in requests to kernel processes."""


class SegmentMemory(PrivateMemory):
    """Large arrays lie in regions of the pool; a region goes back when no array over it is left."""

    def __init__(self, regions: RegionPool, *, shared_from_bytes: int = SHARED_FROM_BYTES) -> None:
        self._regions = regions
        self._shared_from_bytes = shared_from_bytes
        self._mappings = Mappings()
        self._freed: list[Region] = []
        self._borrowed: set[Loan] = set()
        self._returned: list[Loan] = []

    def allocate(self, nbytes: int) -> Piece | None:
        """Return memory of any content: shared if it is large and there is shared memory, else private."""
        if nbytes <= self._shared_from_bytes:
            return super().allocate(nbytes)
        self._retire_freed()
        region = self._regions.take(nbytes)
        if region is None:
            return super().allocate(nbytes)
        # The master copies out of the segment before it acknowledges. So when nothing here refers to it, nobody looks at it.
        return _piece_until(region.view(), region.segment, self._freed.append, region)

    def attach(self, segment: tuple[str, int], nbytes: int, *, writable: bool, filled: bool = False) -> Piece | None:
        """Map a segment that the master names in a call; it stays mapped for the next call (OFF-708)."""
        if nbytes == 0:
            return Piece(memoryview(bytearray()))
        view = self._mappings.view(segment, nbytes, writable=writable, filled=filled)
        return Piece(view, segment) if view is not None else None

    def borrow(self, segment: tuple[str, int], nbytes: int, loan: Loan) -> Piece | None:
        """Map a staged segment, read-only; the loan is over when no array over these bytes is left (OFF-709)."""
        view = self._mappings.view(segment, nbytes, writable=False)
        if view is None:
            return None
        self._borrowed.add(loan)
        return _piece_until(view, segment, self._give_back, loan)

    def decline(self, loan: Loan) -> None:
        """Return a loan that nobody here waited for, unless it is what an earlier copy of the same frame brought."""
        if loan not in self._borrowed:
            self._returned.append(loan)

    def returned(self) -> list[Loan]:
        """Return the loans that are over, each once; called by whoever tells the masters."""
        if not self._returned:
            return []
        over, self._returned = self._returned, []
        return over

    def tidy(self, now: float) -> None:
        """Give back what is idle, let go of what masters have unlinked; called every so often."""
        self._retire_freed()
        self._mappings.tidy(now)
        self._regions.tidy(now)

    def _retire_freed(self) -> None:
        while self._freed:
            self._regions.retire(self._freed.pop(), viewed=False)

    def _give_back(self, loan: Loan) -> None:
        self._borrowed.discard(loan)
        self._returned.append(loan)


def _piece_until(view: memoryview, segment: tuple[str, int], over: Callable[[T], None], what: T) -> Piece:
    """Make a piece, and call ``over(what)`` when nothing refers to its bytes any more, perhaps in the thread of a kernel.

    Not when the piece is gone: a kernel whose call was cancelled goes on with arrays over these bytes. All of them
    refer to the one array that is made here; the mapping behind it may stay.
    """
    holder: Any = np.frombuffer(view, np.uint8)
    weakref.finalize(holder, over, what).atexit = False
    return Piece(memoryview(holder), segment)
