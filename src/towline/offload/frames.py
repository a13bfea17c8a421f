"""Frames as bytes: a 32-byte header, a msgpack array, a raw body (spec section 6)."""

from __future__ import annotations

import struct
import zlib
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from towline.errors.offload import FrameError
from towline.offload.messages import MESSAGES, PROTOCOL, Message

HEADER = struct.Struct("<HBBHHIIQQ")
_LEAD, _TAIL = struct.Struct("<HBBHHI"), struct.Struct("<QQ")
"""What comes before the checksum, and after it."""
HEADER_BYTES = 32
MAGIC = 0x5754
OPTIONAL, BODY_SHM, OFFER, BODY_DIGEST = 1, 2, 4, 8
_KNOWN_FLAGS = OPTIONAL | BODY_SHM | OFFER | BODY_DIGEST
DIGEST_BYTES = 16

SMALL_BODY_BYTES = 2 * 1024
"""Bodies up to this size are copied behind their header: that costs less than one more buffer in the system call."""
MAX_META = 1 << 20
MAX_META_BEFORE_AUTH = 1 << 10
MAX_FRAME_BODY = 4 << 20

_encode = msgspec.msgpack.Encoder().encode
_decoders = {kind.code: msgspec.msgpack.Decoder(kind) for kind in MESSAGES}


class Frame:
    """One message with its body, before it is numbered.

    ``body`` is sent without a copy, so its memory must keep its bytes until the frame is flushed; ``pin``
    names the buffers it belongs to, so that a link can copy what is pending of them.
    """

    __slots__ = ("body", "body_bytes", "flags", "message", "pin")

    def __init__(
        self, message: Message, body: tuple[memoryview, ...] = (), *, flags: int = 0, pin: tuple[int, ...] = ()
    ) -> None:
        self.message, self.body, self.flags, self.pin = message, body, flags, pin
        self.body_bytes = sum([part.nbytes for part in body]) if body else 0

    def __repr__(self) -> str:
        return f"{type(self.message).__name__}({self.message}, {self.body_bytes} bytes)"


class Head(NamedTuple):
    """A frame whose header and meta have arrived. ``message`` is None for an unknown optional type."""

    message: Message | None
    flags: int
    body_bytes: int
    seq: int


def encode(frame: Frame, seq: int) -> list[memoryview]:
    """Write a frame as buffers to send in order; the body's own views are among them."""
    message = frame.message
    meta = _encode(message)
    body_bytes = frame.body_bytes
    parts = [part for part in frame.body if part.nbytes] if body_bytes else []
    if frame.flags & BODY_DIGEST:
        parts.append(memoryview(body_digest(parts)))
        body_bytes += DIGEST_BYTES
    lead = _LEAD.pack(MAGIC, PROTOCOL, message.code, frame.flags, message.lane, len(meta))
    rest = _TAIL.pack(body_bytes, seq) + meta
    crc = zlib.crc32(rest, zlib.crc32(lead)).to_bytes(4, "little")
    if body_bytes <= SMALL_BODY_BYTES:
        return [memoryview(b"".join((lead, crc, rest, *parts)))]
    return [memoryview(b"".join((lead, crc, rest))), *parts]


def read_header(header: bytes | memoryview, offset: int, max_meta: int) -> tuple[int, int, int, int, int, int]:
    """Check a header; returns type, flags, meta length, crc, body length, seq.

    Raises:
        FrameError: Anything in it is not as the protocol says. Nothing was allocated for it.
    """
    magic, major, kind, flags, lane, meta_len, crc, body_len, seq = HEADER.unpack(header)
    if magic != MAGIC:
        raise FrameError(offset, "magic", f"is {magic:#06x}, not {MAGIC:#06x}")
    if major != PROTOCOL:
        raise FrameError(offset + 2, "version", f"is {major}, this side speaks {PROTOCOL}")
    if flags & ~_KNOWN_FLAGS:
        raise FrameError(offset + 4, "flags", f"has unknown bits {flags & ~_KNOWN_FLAGS:#x}")
    if lane > 1:
        raise FrameError(offset + 6, "lane", f"is {lane}")
    if meta_len > max_meta:
        raise FrameError(offset + 8, "meta_len", f"is {meta_len}, the limit is {max_meta}")
    if body_len > MAX_FRAME_BODY + DIGEST_BYTES:
        raise FrameError(offset + 16, "body_len", f"is {body_len}, the limit is {MAX_FRAME_BODY}")
    return kind, flags, meta_len, crc, body_len, seq


def read_meta(frame: memoryview, kind: int, flags: int, crc: int, offset: int) -> Message | None:
    """Check the crc of a header with its meta and decode the message; None for an unknown type that may be skipped."""
    if zlib.crc32(frame[16:], zlib.crc32(frame[:12])) != crc:
        raise FrameError(offset + 12, "crc", "does not match header and meta")
    decoder = _decoders.get(kind)
    if decoder is None:
        if flags & OPTIONAL:
            return None
        raise FrameError(offset + 3, "type", f"{kind} is unknown")
    try:
        message: Message = decoder.decode(frame[HEADER_BYTES:])
    except (msgspec.DecodeError, RecursionError) as error:
        raise FrameError(offset + HEADER_BYTES, "meta", f"of type {kind} is malformed: {error}") from error
    return message


def body_digest(parts: list[memoryview]) -> bytes:
    """Digest a body; it follows the body where the frame has BODY_DIGEST."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()
