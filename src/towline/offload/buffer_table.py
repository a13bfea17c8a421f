"""All buffers of one runtime: registration, overlap, versions, commit (OFF-201 to OFF-213, OFF-503, OFF-511, OFF-512)."""

from __future__ import annotations

import bisect
import weakref
from collections import deque
from typing import TYPE_CHECKING, Literal

import numpy as np

from towline.errors.offload import BufferTypeError, InvariantViolated
from towline.offload.arrays import Array, ArrayLike, as_array, bytes_of, check_dtype
from towline.offload.buffers import Buffer, State, child_shapes
from towline.offload.frames import body_digest
from towline.offload.records import CallNumber, VersionEntry, WorkerId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from towline.offload.regions import Region, RegionPool

MAX_BUFFERS = 1_000_000
VERSION_LOG_ENTRIES = 100_000
"""The version log is a ring: the oldest entries are dropped."""

Origin = Literal["register", "bump", "edit", "join"]


class BufferTable:
    """Buffers by id, by the array they are bound to, and by the memory they cover."""

    def __init__(self, *, max_buffer_bytes: int, digests: bool = False) -> None:
        self._buffers: dict[int, Buffer] = {}
        self._bound: dict[int, Buffer] = {}
        self._visiting: weakref.WeakValueDictionary[int, Buffer] = weakref.WeakValueDictionary()
        self._starts: list[tuple[int, int, int]] = []
        self._next_id = 1
        self._max_buffer_bytes = max_buffer_bytes
        self._digests = digests
        self._digest_of: dict[tuple[int, int], str] = {}
        self.log: deque[VersionEntry] = deque(maxlen=VERSION_LOG_ENTRIES)
        self.regions: RegionPool | None = None
        self.shared_refused: str | None = None
        self.now: Callable[[], float] = lambda: 0.0
        self.on_release: Callable[[int, int], None] = lambda buffer, version: None
        self.on_outdated: Callable[[int, int, int], None] = lambda buffer, version, nbytes: None
        self.before_copy: Callable[[int], None] = lambda buffer: None

    def register(self, source: ArrayLike, *, name: str | None, owned: bool, shared: bool) -> Buffer:
        """Make a buffer of an array, or return the one that the array has already (OFF-203, OFF-206)."""
        label = f"buffer {name!r}" if name else f"a {type(source).__name__}"
        array = as_array(source, label)
        if owned:
            return self._add(array, name, owned=True, shared=shared, copies=True)
        known = self._bound.get(id(array))
        if known is not None and known._data is array:
            return known
        if not array.flags.c_contiguous:
            raise BufferTypeError(
                label, f"it is not C-contiguous (strides {array.strides})",
                "Pass np.ascontiguousarray(array), or storage='owned', which copies.",
            )  # fmt: skip
        low, high = _extent(array)
        other = self._overlapping(low, high)
        if other is not None:
            raise BufferTypeError(
                label, f"its memory overlaps {other._label()}", "Use split() for parts of a buffer, or storage='owned'."
            )
        buffer = self._add(array, name, owned=False, shared=shared)
        self._bound[id(array)] = buffer
        if high > low:
            bisect.insort(self._starts, (low, high, buffer.id))
        return buffer

    def zeros(self, shape: int | tuple[int, ...], dtype: object, *, name: str | None, shared: bool) -> Buffer:
        """Make an owned buffer of zeros."""
        kind = np.dtype(dtype)  # type: ignore[call-overload]  # anything numpy takes
        check_dtype(kind, f"buffer {name!r}" if name else "The buffer")
        return self._add(np.zeros(shape, kind), name, owned=True, shared=shared)

    def state(self, source: ArrayLike, *, name: str | None, shared: bool) -> State:
        """Make the two buffers of a stepped field."""
        read = self.register(source, name=name and f"{name}.0", owned=True, shared=shared)
        return State(read, self.zeros(read.shape, read.dtype, name=name and f"{name}.1", shared=shared))

    def visiting(self, source: ArrayLike) -> Buffer:
        """Return the buffer of an array that a call names directly: its own, or a private one kept by identity (OFF-201)."""
        array = as_array(source)
        known = self._bound.get(id(array)) or self._visiting.get(id(array))
        if known is not None and known._data is array:
            return known
        low, high = _extent(array)
        other = self._overlapping(low, high)
        if other is not None:
            raise BufferTypeError(
                "An array of this call", f"its memory overlaps {other._label()}", "Pass the buffer, or split() it."
            )
        buffer = Buffer(self, self._take_id(), array, name=None, owned=False, registered=False)
        self._visiting[id(array)] = buffer
        return buffer

    def find(self, number: int) -> Buffer | None:
        """Return a living registered buffer, or None."""
        return self._buffers.get(number)

    def commit(
        self,
        writes: Sequence[tuple[Buffer, Array, int]],
        call: int,
        fence: int,
        worker: str | None,
        regions: Sequence[Region | None] = (),
    ) -> str | None:
        """Make all outputs of one call the committed content, or none of them; returns what is wrong (OFF-503, OFF-509)."""
        for buffer, array, version in writes:
            if array.dtype != buffer._data.dtype or array.shape != buffer._data.shape:
                return (
                    f"output {buffer._label()} has dtype {array.dtype} and shape {array.shape}, "
                    f"expected {buffer._data.dtype} and {buffer._data.shape}"
                )
            if version <= buffer._version:
                raise InvariantViolated("OFF-209", f"{buffer._label()} went from {buffer._version} to {version}")
        places = {buffer.id: region for (buffer, _, _), region in zip(writes, regions, strict=False)}
        for buffer, array, version in writes:
            if not buffer._owned:
                self.before_copy(buffer._id)
            before = buffer._version
            buffer._store(array, version)
            self._outdated(buffer, before)
            region = places.get(buffer.id)
            if region is not None:
                self.place(buffer, region)
            elif buffer._shared:
                self.share(buffer)
            self._record(buffer, CallNumber(call), fence, WorkerId(worker) if worker is not None else None)
        return None

    def bump(self, buffer: Buffer) -> int:
        """Number the content of a bound array anew."""
        self.before_copy(buffer._id)
        before, buffer._version = buffer._version, buffer._reserve()
        self._outdated(buffer, before)
        if buffer._region is not None:
            self.share(buffer)
        self._record(buffer, "bump")
        return buffer._version

    def edited(self, buffer: Buffer, draft: Array) -> None:
        """Commit what an edit wrote."""
        self._replace(buffer, draft, "edit")

    def split(self, parent: Buffer, axes: int) -> list[Buffer]:
        """Make the children over the parent's own memory."""
        count, shape = child_shapes(parent.shape, axes)
        flat = parent._data.reshape((count, *shape))
        children = []
        for index in range(count):
            name = f"{parent.name}[{index}]" if parent.name else None
            child = Buffer(self, self._take_id(), flat[index, ...], name=name, owned=parent._owned)
            child._parent, child._registered = parent, parent._registered
            if parent._shared:
                self.share(child)
            self._buffers[child.id] = child
            children.append(child)
        parent._children = children
        parent._calls[-1] = "its split"
        return children

    def join(self, parent: Buffer) -> None:
        """Collect the children's bytes and forget them."""
        children, parent._children = parent._children, []
        del parent._calls[-1]
        if parent._owned:
            whole = np.empty(parent.shape, parent.dtype)
            rows = whole.reshape((len(children), *children[0].shape) if children else (0,))
            for index, child in enumerate(children):
                rows[index, ...] = child._data
            self._replace(parent, whole, "join")
        else:
            parent._version = parent._reserve()
            parent._frozen = None
            if parent._shared:
                self.share(parent)
            self._record(parent, "join")
        for child in children:
            self._forget(child)

    def release(self, buffer: Buffer) -> None:
        """Forget a buffer."""
        self._forget(buffer)
        self._bound.pop(id(buffer._data), None)
        low, high = _extent(buffer._data)
        place = bisect.bisect_left(self._starts, (low, high, buffer.id))
        if place < len(self._starts) and self._starts[place] == (low, high, buffer.id):
            del self._starts[place]

    def close(self) -> None:
        """Give back shared memory; the arrays of owned buffers stay readable."""
        for buffer in self._buffers.values():
            if buffer._region is not None and self.regions is not None:
                self.regions.retire(buffer._region, viewed=True)
                buffer._region = None

    def share(self, buffer: Buffer) -> None:
        """Put the committed version into a region of its own (OFF-216); where that fails, say so once."""
        if self.regions is None or buffer.payload_bytes == 0:
            return
        region = self.regions.take_filled(bytes_of(buffer._data))
        if region is None:
            self.shared_refused = self.regions.refused
            return
        self.place(buffer, region)

    def place(self, buffer: Buffer, region: Region) -> None:
        """Make a region, which holds it, the home of the buffer's committed version; the old region is retired."""
        old = buffer._region
        buffer._region, buffer._shared = region, True
        if buffer._owned:
            buffer._data, buffer._frozen = region.array(buffer._data.dtype, buffer._data.shape), None
        if old is not None and self.regions is not None:
            self.regions.retire(old, viewed=buffer._viewed)
        buffer._viewed = False

    def _replace(self, buffer: Buffer, array: Array, origin: Origin) -> None:
        self.before_copy(buffer._id)
        before = buffer._version
        buffer._store(array, buffer._reserve())
        self._outdated(buffer, before)
        if buffer._shared:
            self.share(buffer)
        self._record(buffer, origin)

    def _add(self, data: Array, name: str | None, *, owned: bool, shared: bool, copies: bool = False) -> Buffer:
        """Make a buffer; with ``copies`` the array stays its caller's, and one copy is made, in shared memory if it can be."""
        if data.nbytes > self._max_buffer_bytes:
            raise BufferTypeError(
                f"buffer {name!r}" if name else "The array", f"it has {data.nbytes} bytes, the limit is "
                f"{self._max_buffer_bytes} (max_buffer_bytes)", "Split it before it is registered.",
            )  # fmt: skip
        if len(self._buffers) >= MAX_BUFFERS:
            raise BufferTypeError("The array", f"{MAX_BUFFERS} buffers are registered", "Release some first.")
        buffer = Buffer(self, self._take_id(), data, name=name, owned=owned)
        self._buffers[buffer.id] = buffer
        if shared:
            self.share(buffer)
        if copies and buffer._region is None:
            buffer._data = np.array(data, order="C", copy=True)
        self._record(buffer, "register")
        return buffer

    def _forget(self, buffer: Buffer) -> None:
        buffer._released = True
        self._buffers.pop(buffer.id, None)
        self._unstage(buffer)
        if buffer._region is not None and self.regions is not None:
            self.regions.retire(buffer._region, viewed=buffer._viewed)
            buffer._region = None
        self.on_release(buffer.id, buffer._version)

    def _outdated(self, buffer: Buffer, version: int) -> None:
        """A version is not the committed one any more: nobody will ask for its bytes again."""
        self._unstage(buffer)
        self.on_outdated(buffer.id, version, buffer._data.nbytes)

    def _unstage(self, buffer: Buffer) -> None:
        if self.regions is not None:
            self.regions.staging.unstage(buffer.id)

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _overlapping(self, low: int, high: int) -> Buffer | None:
        if high == low:
            return None
        place = bisect.bisect_left(self._starts, (high, 0, 0)) - 1
        if place >= 0 and self._starts[place][1] > low:  # living extents are disjoint: only the nearest can overlap
            return self._buffers.get(self._starts[place][2])
        return None

    def _record(
        self, buffer: Buffer, made_by: CallNumber | Origin, fence: int | None = None, worker: WorkerId | None = None
    ) -> None:
        if not buffer._registered:
            return
        digest = None
        if self._digests:
            digest = body_digest([bytes_of(np.ascontiguousarray(buffer._data))]).hex()
            known = self._digest_of.setdefault((buffer.id, buffer._version), digest)
            if known != digest:
                raise InvariantViolated("OFF-511", f"{buffer._label()} version {buffer._version} has two contents")
        self.log.append(
            VersionEntry(
                buffer_id=buffer.id,
                version=buffer._version,
                made_by=made_by,
                fence=fence,
                worker=worker,
                digest=digest,
                committed_at=self.now(),
            )
        )


def _extent(array: Array) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(array)
    return (low, high) if array.nbytes else (low, low)
