"""Frames on a plain byte stream: a length as u32, big-endian, then that many bytes of JSON text (DIST-10).

A length whose highest bit is set is that of a last frame, ``{"code": ..., "reason": ...}``: what a WebSocket says when
it closes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from towline.coordination.hub.messages import decode
from towline.errors.hub import HubRefusedError

FRAME_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one frame (COORD-H18)."""

_HEADER: Final = 4
_CLOSE_BIT: Final = 1 << 31

GOING_AWAY, TAKEN_OVER, BAD_MESSAGES, TOO_LARGE, TRY_LATER = 1001, 4001, 1008, 1009, 1013


class CloseFrame(msgspec.Struct, frozen=True):
    """Why the other side ends the connection; the codes are those of WebSocket."""

    code: int
    reason: str = ""


def framed(text: bytes) -> bytes:
    """Put the length before a message."""
    return len(text).to_bytes(_HEADER, "big") + text


def close_frame(code: int, reason: str) -> bytes:
    """Write the last frame of a connection."""
    text = msgspec.json.encode(CloseFrame(code, reason))
    return (len(text) | _CLOSE_BIT).to_bytes(_HEADER, "big") + text


class Splitter:
    """Cuts a stream of bytes into messages; holds at most one unfinished frame."""

    def __init__(self, limit_bytes: int = FRAME_LIMIT) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()

    def take(self, data: bytes) -> list[bytes | CloseFrame]:
        """Add what was read; returns the messages that are whole now.

        Raises:
            HubRefusedError: A frame is announced that is larger than the limit; nothing of it is kept.
        """
        buffer = self._buffer
        buffer += data
        found: list[bytes | CloseFrame] = []
        start = 0
        while len(buffer) - start >= _HEADER:
            header = int.from_bytes(buffer[start : start + _HEADER], "big")
            size = header & ~_CLOSE_BIT
            if size > self._limit_bytes:
                raise HubRefusedError("too_large", f"a frame of {size:,} bytes; the limit is {self._limit_bytes:,}")
            end = start + _HEADER + size
            if len(buffer) < end:
                break
            text = bytes(buffer[start + _HEADER : end])
            found.append(decode(CloseFrame, text) if header & _CLOSE_BIT else text)
            start = end
        del buffer[:start]
        return found
