"""The journal as bytes: one line per group commit, each with its own checksum (PLAN-21, PLAN-22). Pure.

A line is 8 hex digits of the CRC-32 over the JSON, a space, one JSON object, LF. The first one is the header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import msgspec

from towline.errors.state import PlanCorruptError, SchemaTooNewError

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA: Final = 1
_CRC_DIGITS: Final = 8


class JournalHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: which snapshot the records follow, and who writes them."""

    schema: int = SCHEMA
    kind: str = "header"
    plan_id: str
    generation: int
    owner_epoch: int


class JournalRead(msgspec.Struct, frozen=True):
    """What a journal says. ``records``: the JSON of each, in order; ``seqs``: their numbers.

    ``header`` is ``None`` for an empty journal or a torn header. ``dropped_tail``: how many bytes at the end
    were a torn line and do not count.
    """

    header: JournalHeader | None
    records: list[bytes]
    seqs: list[int]
    dropped_tail: int = 0


class _Line(msgspec.Struct):
    records: list[msgspec.Raw]


class _Seq(msgspec.Struct):
    seq: int


class _Seqs(msgspec.Struct):
    records: list[_Seq]


_encode = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(_Line).decode
_decode_seqs = msgspec.json.Decoder(_Seqs).decode
_decode_header = msgspec.json.Decoder(JournalHeader).decode


def journal_line(records: Sequence[Any]) -> bytes:
    """Write records as one line."""
    body = _encode({"records": records})
    return b"%08x %b\n" % (crc32(body), body)


def header_line(header: JournalHeader) -> bytes:
    body = _encode(header)
    return b"%08x %b\n" % (crc32(body), body)


def read_journal(data: bytes, file: str) -> JournalRead:
    """Read a journal; a torn last line is dropped and counted, anything else that is wrong is refused.

    file: Its name, for messages.

    Raises:
        PlanCorruptError: A bad line before the last, a line that is no record, a gap in ``seq``.
        SchemaTooNewError: A newer Towline wrote it.
    """
    bodies, dropped = _whole_bodies(data, file)
    if not bodies:
        return JournalRead(None, [], [], dropped)
    header = _read_header(bodies[0][1], file)
    records: list[bytes] = []
    seqs: list[int] = []
    for offset, body in bodies[1:]:
        try:
            raw, numbers = _decode_line(body).records, _decode_seqs(body).records
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise PlanCorruptError(file, f"a line holds no records: {error}", offset) from error
        for record, number in zip(raw, numbers, strict=True):
            if seqs and number.seq != seqs[-1] + 1:
                raise PlanCorruptError(file, f"seq {number.seq} follows {seqs[-1]}", offset)
            records.append(bytes(record))
            seqs.append(number.seq)
    return JournalRead(header, records, seqs, dropped)


def _whole_bodies(data: bytes, file: str) -> tuple[list[tuple[int, bytes]], int]:
    """Return offset and JSON of each line with a right checksum, and how many bytes of tail were dropped."""
    bodies: list[tuple[int, bytes]] = []
    offset = 0
    while offset < len(data):
        newline = data.find(b"\n", offset)
        line = data[offset : newline if newline >= 0 else len(data)]
        body = _checked_body(line) if newline >= 0 else None
        if body is None:
            if newline >= 0 and newline + 1 < len(data):
                raise PlanCorruptError(file, "a line before the last has a wrong checksum", offset)
            return bodies, len(data) - offset
        bodies.append((offset, body))
        offset = newline + 1
    return bodies, 0


def _checked_body(line: bytes) -> bytes | None:
    body = line[_CRC_DIGITS + 1 :]
    return body if line[: _CRC_DIGITS + 1] == b"%08x " % crc32(body) else None


def _read_header(body: bytes, file: str) -> JournalHeader:
    try:
        header = _decode_header(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PlanCorruptError(file, f"the first line is no header: {error}", 0) from error
    if header.schema > SCHEMA:
        raise SchemaTooNewError(file, header.schema, SCHEMA)
    if header.kind != "header" or header.schema < 1:
        raise PlanCorruptError(file, "the first line is no header", 0)
    return header
