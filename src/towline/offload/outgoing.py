"""Arrays on their way out: cut into chunks, never more of them queued than a window (OFF-705, OFF-411). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.offload.frames import BODY_DIGEST, BODY_SHM, MAX_FRAME_BODY, Frame
from towline.offload.messages import Data

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_CHUNK = 64 * 1024
PIPELINE_BYTES = 2 * MAX_FRAME_BODY
"""How much bulk is queued on a link at once: enough to keep a socket busy, little enough to stay interruptible."""
CHUNK_S = 0.25
"""Longest time a chunk may hold up a heartbeat, at the measured bandwidth."""


class Transfer:
    """One array that the other side asked for."""

    __slots__ = ("buffer", "number", "offset", "segment", "version", "view")

    def __init__(
        self, number: int, view: memoryview, offset: int, buffer: int = 0, version: int = 0,
        segment: tuple[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.number, self.view, self.offset = number, view, offset
        self.buffer, self.version, self.segment = buffer, version, segment


class Outgoing:
    """The transfers that leave by one link, in the order in which they were asked for."""

    def __init__(self, send: Callable[[Frame], None], *, digests: bool = False) -> None:
        self._send = send
        self._transfers: dict[int, Transfer] = {}
        self._flags = BODY_DIGEST if digests else 0
        self.unsent_bytes = 0
        self.bandwidth = 0.0
        self.high_water = 0

    def begin(self, transfer: Transfer) -> None:
        """Start, or start again from another offset."""
        self._transfers[transfer.number] = transfer
        self.pump()

    def drop(self, number: int) -> None:
        """Send nothing more of a transfer."""
        self._transfers.pop(number, None)

    def of_buffer(self, buffer: int) -> list[Transfer]:
        """Return what is on its way of one buffer."""
        return [transfer for transfer in self._transfers.values() if transfer.buffer == buffer]

    def queued(self, frame: Frame) -> None:
        """Count a bulk frame that was queued beside the chunks."""
        self.unsent_bytes += frame.body_bytes
        self.high_water = max(self.high_water, self.unsent_bytes)

    def flushed(self, frame: Frame) -> None:
        """A bulk frame has left: make room for the next chunks."""
        self.unsent_bytes -= frame.body_bytes
        self.pump()

    def pump(self) -> None:
        """Queue chunks while there is room."""
        while self._transfers and self.unsent_bytes < PIPELINE_BYTES:
            number, transfer = next(iter(self._transfers.items()))
            total = transfer.view.nbytes
            if transfer.segment is not None:
                del self._transfers[number]
                self._send(Frame(Data(number, 0, total, None, transfer.segment), flags=BODY_SHM))
                continue
            end = min(transfer.offset + self._chunk_bytes(), total)
            chunk = transfer.view[transfer.offset : end]
            frame = Frame(Data(number, transfer.offset, total), (chunk,), flags=self._flags, pin=(transfer.buffer,))
            transfer.offset = end
            if end >= total:
                del self._transfers[number]
            self.queued(frame)
            self._send(frame)

    def _chunk_bytes(self) -> int:
        if self.bandwidth <= 0:
            return MAX_FRAME_BODY // 4
        return max(MIN_CHUNK, min(MAX_FRAME_BODY, int(self.bandwidth * CHUNK_S)))
