"""One connection as hub and worker use it, whatever carries it; and the one over a plain stream."""

from __future__ import annotations

import asyncio
from typing import Protocol

from towline.coordination.hub.frames import FRAME_LIMIT, TOO_LARGE, CloseFrame, Splitter, close_frame, framed
from towline.errors.coordination import RecordRefusedError
from towline.errors.hub import HubRefusedError

CLOSING_S = 2.0
"""How long the last words of a connection may wait for their reader."""

_READ_BYTES = 256 * 1024


class Wire(Protocol):
    """Carries messages both ways, whole and in order, until either side closes it."""

    close_code: int | None
    """Why the other side closed it, when it said so."""

    @property
    def queued_bytes(self) -> int:
        """How much of what was sent waits for a slow reader."""
        ...

    def send(self, text: bytes) -> None:
        """Queue one message; on a connection that has ended it is dropped."""
        ...

    async def receive(self) -> bytes | None:
        """Return the next message; ``None`` once the connection has ended."""
        ...

    def close(self, code: int, reason: str) -> None:
        """End the connection after what was queued, and say why; ``receive`` then gives ``None``. Twice without harm."""
        ...


class StreamWire:
    """Frames of :mod:`towline.coordination.hub.frames` on a socket."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit_bytes: int = FRAME_LIMIT
    ) -> None:
        self.close_code: int | None = None
        self._reader, self._writer = reader, writer
        self._splitter = Splitter(limit_bytes)
        self._ready: list[bytes | CloseFrame] = []

    @property
    def queued_bytes(self) -> int:
        """Bytes in the transport's buffer."""
        return self._writer.transport.get_write_buffer_size()

    def send(self, text: bytes) -> None:
        """Queue one message."""
        if not self._writer.is_closing():
            self._writer.write(framed(text))

    async def receive(self) -> bytes | None:
        """Return the next message. A frame above the limit closes the connection (COORD-H18)."""
        while not self._ready:
            try:
                data = await self._reader.read(_READ_BYTES)
            except OSError:
                return None  # reset by the other side: it is gone, whatever it wanted to say
            if not data:
                return None
            try:
                self._ready = self._splitter.take(data)[::-1]
            except (HubRefusedError, RecordRefusedError) as error:
                self.close(TOO_LARGE, str(error))
                return None
        found = self._ready.pop()
        if isinstance(found, CloseFrame):
            self.close_code = found.code
            return None
        return found

    def close(self, code: int, reason: str) -> None:
        """Say why, then end the stream; what a slow reader has not taken soon after is lost."""
        if not self._writer.is_closing():
            self._writer.write(close_frame(code, reason[:200]))
            self._writer.close()
            asyncio.get_running_loop().call_later(CLOSING_S, self._writer.transport.abort)
