"""A connection between two ends in one process, for hub and workers under virtual time."""

from __future__ import annotations

import asyncio


class PipeWire:
    """One end of an in-process connection; what one end sends, the other receives."""

    def __init__(self) -> None:
        self.close_code: int | None = None
        self.is_cut = False
        """Set by a test: nothing passes any more, and neither end is told."""
        self._arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._other: PipeWire = self
        self._is_closed = False

    @classmethod
    def pair(cls) -> tuple[PipeWire, PipeWire]:
        """Return both ends of a connection."""
        near, far = cls(), cls()
        near._other, far._other = far, near
        return near, far

    @property
    def queued_bytes(self) -> int:
        """Nothing waits: the other end has it at once."""
        return 0

    def send(self, text: bytes) -> None:
        """Hand a message to the other end."""
        if not self._is_closed and not self.is_cut:
            self._other._arrived.put_nowait(text)

    async def receive(self) -> bytes | None:
        """Return the next message; ``None`` once either end has closed."""
        text = await self._arrived.get()
        if text is None:
            self._arrived.put_nowait(None)
        return text

    def close(self, code: int, reason: str) -> None:
        """End the connection; the other end is told why."""
        if not self._is_closed:
            self._is_closed = True
            if not self.is_cut:
                self._other.close_code = code
                self._other._arrived.put_nowait(None)
            self._arrived.put_nowait(None)
