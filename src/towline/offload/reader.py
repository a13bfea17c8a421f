"""Bytes in, frames out: an incremental parser that lets large bodies land where they belong (OFF-703)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.errors.offload import FrameError
from towline.offload.frames import (
    BODY_DIGEST,
    DIGEST_BYTES,
    HEADER_BYTES,
    MAX_META_BEFORE_AUTH,
    Head,
    body_digest,
    read_header,
    read_meta,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    class FrameSink(Protocol):
        """Who gets the frames of a link."""

        def body_for(self, head: Head) -> Sequence[memoryview] | None:
            """Say where the body goes, parts filled in order; None: it is read and dropped."""
            ...

        def on_frame(self, head: Head, landed: bool) -> None:
            """Take a frame whose body, if it was wanted, is in place."""
            ...


SCRATCH_BYTES = 256 * 1024
BULK_PEEK_BYTES = 8 * 1024
DIRECT_BYTES = 64 * 1024
"""From this many missing body bytes on, the socket writes into the destination itself."""


class FrameReader:
    """Parses one direction of one link.

    Ask ``buffer`` where to put the next bytes, put them there, and say how many with ``received``. Frames
    are numbered from 0; a gap or a repeat, like any other malformed byte, raises ``FrameError``, after
    which the reader must not be used again.
    """

    def __init__(self, sink: FrameSink, scratch_bytes: int = SCRATCH_BYTES) -> None:
        self._sink = sink
        self._scratch = memoryview(bytearray(scratch_bytes))
        self._start = self._end = 0
        self._parts: list[memoryview] = []
        self._part = self._filled = 0
        self._body_left = 0
        self._digest = bytearray()
        self._head: Head | None = None
        self._landed = False
        self._expects_bulk = False
        self._seq = 0
        self._offset = 0
        self.max_meta = MAX_META_BEFORE_AUTH

    def buffer(self) -> memoryview:
        """Return where the next bytes go: the body's destination while enough of it is missing, else scratch."""
        if self._head is not None and self._start == self._end and self._landed and self._part < len(self._parts):
            rest = self._parts[self._part][self._filled :]
            if rest.nbytes >= DIRECT_BYTES:
                return rest
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == self._scratch.nbytes:
            waiting = self._end - self._start
            self._scratch[:waiting] = bytes(self._scratch[self._start : self._end])
            self._start, self._end = 0, waiting
        if self._expects_bulk:
            # The header of another large body comes next: read little of that body here, for it would be copied.
            return self._scratch[self._end : self._end + BULK_PEEK_BYTES]
        return self._scratch[self._end :]

    def received(self, count: int, into: memoryview) -> None:
        """Take ``count`` bytes that were put into ``into``, the last answer of ``buffer``."""
        if into.obj is not self._scratch.obj:
            self._filled += count
            self._body_left -= count
            if self._filled == self._parts[self._part].nbytes:
                self._part, self._filled = self._part + 1, 0
        else:
            self._end += count
        self._parse()

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes that are in memory already."""
        view = memoryview(data)
        while view.nbytes:
            into = self.buffer()
            count = min(into.nbytes, view.nbytes)
            into[:count] = view[:count]
            view = view[count:]
            self.received(count, into)

    def _parse(self) -> None:
        while True:
            if self._head is None and not self._begin():
                return
            if self._head is not None and not self._take_body():
                return

    def _begin(self) -> bool:
        waiting = self._end - self._start
        if waiting < HEADER_BYTES:
            return False
        header = self._scratch[self._start : self._start + HEADER_BYTES]
        kind, flags, meta_len, crc, body_len, seq = read_header(header, self._offset, self.max_meta)
        if seq != self._seq:
            raise FrameError(self._offset + 24, "seq", f"is {seq}, expected {self._seq}")
        size = HEADER_BYTES + meta_len
        if size > self._scratch.nbytes:
            # Rare: a welcome with thousands of kernels. Grow once; the limit above bounds it.
            grown = memoryview(bytearray(size + SCRATCH_BYTES))
            grown[:waiting] = self._scratch[self._start : self._end]
            self._scratch, self._start, self._end = grown, 0, waiting
        if waiting < size:
            if self._start and self._start + size > self._scratch.nbytes:
                self._scratch[:waiting] = bytes(self._scratch[self._start : self._end])
                self._start, self._end = 0, waiting
            return False
        message = read_meta(self._scratch[self._start : self._start + size], kind, flags, crc, self._offset)
        payload = body_len - DIGEST_BYTES if flags & BODY_DIGEST else body_len
        if payload < 0:
            raise FrameError(self._offset + 16, "body_len", f"is {body_len}, shorter than its digest")
        head = Head(message, flags, payload, seq)
        parts = None
        if message is not None:
            parts = self._sink.body_for(head)
            if parts is not None and sum([part.nbytes for part in parts]) != payload:
                raise FrameError(self._offset + 16, "body_len", f"is {payload}, which is not what was announced")
        self._seq += 1
        self._start += size
        self._offset += size
        self._head, self._landed = head, parts is not None
        self._parts = [part for part in parts if part.nbytes] if parts else []
        self._part = self._filled = 0
        self._body_left = payload
        if flags & BODY_DIGEST:
            self._digest = bytearray()
        return True

    def _take_body(self) -> bool:
        head = self._head
        assert head is not None
        left = self._body_left
        if left and left <= self._end - self._start and self._landed and len(self._parts) == 1 and not self._filled:
            self._parts[0][:] = self._scratch[
                self._start : self._start + left
            ]  # most small bodies: whole, for one array
            self._start += left
            self._body_left, self._part = 0, 1
        while self._body_left and self._start < self._end:
            ready = min(self._end - self._start, self._body_left)
            if self._landed:
                part = self._parts[self._part]
                ready = min(ready, part.nbytes - self._filled)
                part[self._filled : self._filled + ready] = self._scratch[self._start : self._start + ready]
                self._filled += ready
                if self._filled == part.nbytes:
                    self._part, self._filled = self._part + 1, 0
            self._start += ready
            self._body_left -= ready
        if self._body_left:
            return False
        if head.flags & BODY_DIGEST:
            missing = DIGEST_BYTES - len(self._digest)
            taken = min(missing, self._end - self._start)
            self._digest += self._scratch[self._start : self._start + taken]
            self._start += taken
            if len(self._digest) < DIGEST_BYTES:
                return False
            if self._landed and body_digest(self._parts) != bytes(self._digest):
                raise FrameError(self._offset, "body", "does not match its digest")
        self._offset += head.body_bytes
        self._expects_bulk = head.body_bytes >= 4 * DIRECT_BYTES
        self._head = None
        if head.message is not None:
            self._sink.on_frame(head, self._landed)
        return True
