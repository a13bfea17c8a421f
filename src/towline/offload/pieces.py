"""The memory of one array on a worker: private, or a stretch of shared memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

from towline.offload.arrays import Array, DType, array_over, bytes_of, checked_bytes, read_dtype

if TYPE_CHECKING:
    from towline.offload.messages import BufferRef


Loan = tuple[int, int]
"""A link and a transfer on it, by which a master lent a staged segment."""


class Piece:
    """Bytes of one array. ``segment`` names them for another process; None: they are private to this one."""

    __slots__ = ("__weakref__", "nbytes", "segment", "view")

    def __init__(self, view: memoryview, segment: tuple[str, int] | None = None) -> None:
        self.view, self.segment = view, segment
        self.nbytes = view.nbytes

    def array(self, dtype: DType, shape: tuple[int, ...], *, writable: bool = False) -> Array:
        """View the bytes as an array; read-only for good unless ``writable``."""
        return array_over(self.view if writable else self.view.toreadonly(), dtype, shape)


class Memory(Protocol):
    """Where a worker gets memory for arrays, and how it reaches a segment that the master names."""

    def allocate(self, nbytes: int) -> Piece | None:
        """Return writable memory of any content; None when there is none."""
        ...

    def attach(self, segment: tuple[str, int], nbytes: int, *, writable: bool, filled: bool = False) -> Piece | None:
        """Map a segment; None if it is not there. ``filled``: this process will write all of it."""
        ...

    def borrow(self, segment: tuple[str, int], nbytes: int, loan: Loan) -> Piece | None:
        """Map a staged segment to read it; None if it is not there. ``returned`` tells when the loan is over."""
        ...

    def decline(self, loan: Loan) -> None:
        """A segment was lent that nobody here waits for any more."""
        ...

    def returned(self) -> list[Loan]:
        """Return the loans that ended since the last call."""
        ...

    def tidy(self, now: float) -> None:
        """Give back what nobody needs."""
        ...


class PrivateMemory:
    """Memory of this process."""

    def allocate(self, nbytes: int) -> Piece | None:
        """Return uninitialised memory."""
        try:
            return Piece(bytes_of(np.empty(nbytes, np.uint8)))
        except MemoryError:
            return None

    def attach(self, segment: tuple[str, int], nbytes: int, *, writable: bool, filled: bool = False) -> Piece | None:
        """There is no shared memory here."""
        return None

    def borrow(self, segment: tuple[str, int], nbytes: int, loan: Loan) -> Piece | None:
        """There is no shared memory here: no master lends any."""
        return None

    def decline(self, loan: Loan) -> None:
        """There are no loans."""
        return

    def returned(self) -> list[Loan]:
        """There are no loans."""
        return []

    def tidy(self, now: float) -> None:
        """Nothing is kept."""
        return


class ArrayPlan:
    """A reference that was checked: what array it is."""

    __slots__ = ("dtype", "nbytes", "ref", "shape")

    def __init__(self, ref: BufferRef, limit: int) -> None:
        """Raises ``ValueError`` for a dtype, a shape or a size that cannot be (OFF-806)."""
        self.ref = ref
        self.dtype = read_dtype(ref.dtype)
        self.shape = tuple(ref.shape)
        self.nbytes = checked_bytes(self.dtype, self.shape, limit)
        if self.nbytes != ref.payload_bytes or ref.payload_bytes < 0:
            raise ValueError(
                f"{math.prod(self.shape)} elements of {self.dtype} are {self.nbytes} bytes, not {ref.payload_bytes}"
            )
