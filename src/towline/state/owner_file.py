"""The content of ``owner.lock``: who owns the plan, and the owner epoch that never falls (STATE-09, STATE-14). Pure.

Two lines of fixed length; a new owner overwrites the line with the lower epoch. A kill in the middle
of that leaves the other line whole, and people can read both.
"""

from __future__ import annotations

import re
from typing import Final
from zlib import crc32

import msgspec

SLOT_BYTES: Final = 2048
_TEXT_LIMIT: Final = 100

_PLAN_ID = re.compile(rb'"plan_id":\s*"(\d{8})-')
_OWNER_EPOCH = re.compile(rb'"(?:owner_epoch|epoch)":\s*(\d{1,8})\b')


class OwnerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One holder of the plan, past or present."""

    id: str
    host: str
    pid: int
    epoch: int
    since: str
    run_id: str


class OwnerFile(msgspec.Struct, frozen=True):
    """What the file says: the newest readable holder, and where the next one is to be written."""

    latest: OwnerRecord | None
    next_offset: int


def read_owner_file(data: bytes) -> OwnerFile:
    """Read both lines; one that is torn or damaged counts as not there."""
    slots = [_read_slot(data[at : at + SLOT_BYTES]) for at in (0, SLOT_BYTES)]
    first, second = slots
    if first is not None and (second is None or first.epoch >= second.epoch):
        return OwnerFile(first, SLOT_BYTES)
    return OwnerFile(second, 0)


def slot(record: OwnerRecord) -> bytes:
    """Write a holder as one line of ``SLOT_BYTES``; long names are cut, they are for people."""
    short = msgspec.structs.replace(
        record, id=record.id[:_TEXT_LIMIT], host=record.host[:_TEXT_LIMIT], run_id=record.run_id[:_TEXT_LIMIT]
    )
    body = msgspec.json.encode(short)
    line = b"%08x %b" % (crc32(body), body)
    return line[: SLOT_BYTES - 1].ljust(SLOT_BYTES - 1) + b"\n"


def epoch_floor(plan_head: bytes, journal_head: bytes) -> int:
    """Return the highest owner epoch that the start of plan and journal mention, damaged or not.

    Used when ``owner.lock`` is gone or unreadable: a fence that starts again from 1 would be below
    everything that an earlier owner wrote.
    """
    found = [int(match) for match in _PLAN_ID.findall(plan_head + journal_head)]
    found += [int(match) for match in _OWNER_EPOCH.findall(plan_head.partition(b'"tasks"')[0])]
    found += [int(match) for match in _OWNER_EPOCH.findall(journal_head.partition(b"\n")[0])]
    return max(found, default=0)


def _read_slot(line: bytes) -> OwnerRecord | None:
    crc, _, body = line.rstrip().partition(b" ")
    try:
        if len(line) != SLOT_BYTES or int(crc, 16) != crc32(body):
            return None
        return msgspec.json.decode(body, type=OwnerRecord)
    except (ValueError, msgspec.MsgspecError):
        return None
