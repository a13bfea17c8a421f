"""Registered arrays and their committed versions (section 7.2). No I/O: memory and numbers alone."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from towline.errors.offload import BufferBusyError, BufferReleasedError, BufferTypeError
from towline.offload.arrays import Array, read_only, write_dtype
from towline.offload.messages import BufferRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from towline.offload.buffer_table import BufferTable
    from towline.offload.calls import Call
    from towline.offload.regions import Region


class Buffer:
    """A registered array; the number of its committed content is its version.

    Made by a runtime. A *bound* buffer writes back: the array it was made from is its storage. An *owned*
    one swaps its array with each commit, so that older views keep their bytes.
    """

    def __init__(
        self, table: BufferTable, number: int, data: Array, *, name: str | None, owned: bool, registered: bool = True
    ) -> None:
        self._table = table
        self._id = number
        self._name = name
        self._data = data
        self._owned = owned
        self._registered = registered
        self._version = 1
        self._reserved = 1
        self._released = False
        self._calls: dict[int, Call | str] = {}
        self._children: list[Buffer] = []
        self._parent: Buffer | None = None
        self._frozen: Array | None = None
        self._dtype_text = write_dtype(data.dtype)
        self._shape_list = list(data.shape)
        self._region: Region | None = None
        self._shared = False
        self._viewed = False

    @property
    def id(self) -> int:
        """Number of this buffer; never used again after its release."""
        return self._id

    @property
    def name(self) -> str | None:
        """The name it was given."""
        return self._name

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Of the array; fixed."""
        return self._data.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array; fixed."""
        shape: tuple[int, ...] = self._data.shape
        return shape

    @property
    def payload_bytes(self) -> int:
        """Size of one version in bytes."""
        return self._data.nbytes

    @property
    def version(self) -> int:
        """Number of the committed content: 1 at first, then only growing, with gaps for writes that failed."""
        return self._version

    @property
    def released(self) -> bool:
        """Whether ``release`` was called."""
        return self._released

    @property
    def array(self) -> Array:
        """A read-only view of the committed version."""
        self._check_usable("read")
        self._viewed = True
        return self._read_view()

    def snapshot(self) -> Array:
        """Return a private, writable copy of the committed version."""
        self._check_usable("copy")
        return self._data.copy()

    def bump(self) -> int:
        """Say that the bound array was changed outside the runtime; returns the new version (OFF-210).

        Raises:
            BufferBusyError: An unfinished call touches it.
        """
        self._check_idle("bump")
        return self._table.bump(self)

    @contextmanager
    def edit(self) -> Iterator[Array]:
        """Give a writable array that becomes the next version on a clean exit (OFF-211).

        After an exception nothing has changed.

        Raises:
            BufferBusyError: An unfinished call touches it.
        """
        self._check_idle("edit")
        draft = self._data.copy()
        self._calls[0] = "an edit"
        try:
            yield draft
        finally:
            del self._calls[0]
        self._table.edited(self, draft)

    def split(self, axes: int = 1) -> list[Buffer]:
        """Make one contiguous buffer per index of the first ``axes`` axes (OFF-212).

        The children have ids and versions of their own; this buffer is unusable until ``join``.

        Raises:
            BufferBusyError: An unfinished call touches it.
            ValueError: There are fewer axes.
        """
        self._check_idle("split")
        if not 1 <= axes <= len(self.shape):
            raise ValueError(f"axes is {axes}; {self._label()} has {len(self.shape)} axes")
        return self._table.split(self, axes)

    def join(self) -> None:
        """Take the children back: their bytes become the next version.

        Raises:
            BufferBusyError: An unfinished call touches a child, or the buffer is not split.
        """
        if self._released:
            raise BufferReleasedError(self._label(), "join")
        if not self._children:
            raise BufferBusyError(self._label(), "join", "nobody split it, so no child")
        for child in self._children:
            child._check_idle("join")
        self._table.join(self)

    def release(self) -> None:
        """Forget the buffer here and on the workers; twice does no harm.

        Raises:
            BufferBusyError: An unfinished call touches it, or it is split.
        """
        if self._released:
            return
        self._check_idle("release")
        self._table.release(self)

    def __repr__(self) -> str:
        return f"<{self._label()} version {self._version} {self.dtype} {self.shape}>"

    def _read_view(self) -> Array:
        if self._frozen is None:
            view = read_only(self._data)
            if not self._data.flags.c_contiguous:
                return view  # a copy, which a change made by the array's owner would leave behind
            self._frozen = view
        return self._frozen

    def _label(self) -> str:
        return f"buffer {self._name!r}" if self._name else f"buffer {self._id}"

    def _check_usable(self, operation: str) -> None:
        if self._released:
            raise BufferReleasedError(self._label(), operation)
        if self._children:
            raise BufferBusyError(self._label(), operation, "its split into children (join it first)")

    def _check_idle(self, operation: str) -> None:
        self._check_usable(operation)
        if self._calls:
            user = next(iter(self._calls.values()))
            text = user if isinstance(user, str) else f"call {user.number} ({user.label()})"
            raise BufferBusyError(self._label(), operation, text)

    def _check_writable(self) -> None:
        if not self._owned and not self._data.flags.writeable:
            raise BufferTypeError(self._label(), "it is read-only and a call writes to it", "Use storage='owned'.")

    def _reserve(self) -> int:
        """Take the next version number for one write; it is burnt if the write is not committed (OFF-209)."""
        self._reserved += 1
        return self._reserved

    def _ref(self, version: int, segment: tuple[str, int] | None = None) -> BufferRef:
        return BufferRef(self._id, version, self._dtype_text, self._shape_list, self._data.nbytes, segment)

    def _store(self, array: Array, version: int) -> None:
        """Make ``array`` the committed content: one swap, or one copy into the user's array (OFF-202)."""
        if self._owned:
            self._data, self._frozen = array, None
        elif array is not self._data:
            np.copyto(self._data, array)
        self._version = version


class State:
    """A stepped field: two buffers with fixed ids, whose roles rotate while a graph is declared (OFF-214)."""

    def __init__(self, read: Buffer, write: Buffer) -> None:
        self._pair = (read, write)
        self._steps = 0

    @property
    def read(self) -> Buffer:
        """The buffer that holds the present field."""
        return self._pair[self._steps % 2]

    @property
    def write(self) -> Buffer:
        """The buffer that receives the next one."""
        return self._pair[1 - self._steps % 2]

    @property
    def steps(self) -> int:
        """How often ``step`` was called."""
        return self._steps

    def step(self) -> None:
        """Exchange the roles. Calls that were added before keep the buffers they had."""
        self._steps += 1

    def release(self) -> None:
        """Release both buffers; raises ``BufferBusyError`` while a call uses one."""
        for buffer in self._pair:
            if not buffer.released:
                buffer._check_idle("release")
        for buffer in self._pair:
            buffer.release()


def child_shapes(shape: tuple[int, ...], axes: int) -> tuple[int, tuple[int, ...]]:
    """Return how many children a split over the first ``axes`` axes makes, and the shape of each."""
    return math.prod(shape[:axes]), shape[axes:]
