"""What lies in the files of cursors and steps (``planning.md`` section 2). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

import msgspec

from towline.errors.cursors import CursorCorruptError
from towline.errors.state import SchemaTooNewError
from towline.state.cursor_keys import CursorKey, StoredKey, loaded_key

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = 1


class Totals(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Items counted once over all attempts. ``done`` holds the skipped ones too; ``skipped``: by code."""

    done: int = 0
    skipped: dict[str, int] = {}
    total: int | None = None


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """Where the source goes on: from ``boundary``, inclusively; ``tie_break`` orders what shares it (CUR-18).

    ``boundary`` is the first part of the key, ``tie_break`` the other ones. ``completed``: the source was
    exhausted there; what is edited later comes after it and is processed by going on (CUR-19).
    """

    strategy: str = "keyset"
    query_digest: str
    boundary: str | int | None = None
    tie_break: list[str | int] | None = None
    generated_at: str = ""
    completed: bool = False


class CursorDocument(msgspec.Struct, kw_only=True):
    """``cursors/<task>.json``: how far a task has come. ``plan_id`` and ``epoch`` are its fence.

    ``in_target``: the cursor itself lies in the target's table (CUR-12); this is a copy for people.
    ``made``: names the first opening since the cursor was dropped, if ever; a row of the target that has another
    is the place of a task that has changed since (PLAN-34), and counts as none.
    """

    schema: int = SCHEMA
    task: str
    plan_id: str
    epoch: int
    key: StoredKey | None = None
    stage: str | None = None
    at_end: bool = False
    totals: Totals = msgspec.field(default_factory=Totals)
    continuation: Continuation | None = None
    updated_at: str = ""
    in_target: bool = False
    made: str = ""

    @property
    def position(self) -> CursorKey | None:
        return None if self.key is None else loaded_key(self.key)


class SkipRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``cursors/<task>.skips.jsonl``; the last one of a key counts (CUR-10)."""

    key: StoredKey
    code: str
    text: str = ""
    epoch: int = 0
    at: str = ""


class StepDocument(msgspec.Struct, kw_only=True):
    """``steps/<task>/<step>.json``: a part that is done, with its encoded value."""

    schema: int = SCHEMA
    task: str
    plan_id: str
    step: str
    epoch: int
    attempt: int
    value: msgspec.Raw = msgspec.Raw(b"null")
    started_at: str = ""
    finished_at: str = ""


D = TypeVar("D", CursorDocument, StepDocument)

encode_skip = msgspec.json.Encoder().encode
_encode = msgspec.json.Encoder().encode

_CRC = re.compile(rb',"crc":"([0-9a-f]{8})"\}\Z')


def encode_document(document: CursorDocument | StepDocument) -> bytes:
    """Write a cursor or step; its last field, ``crc``, is the CRC-32 of the document without it."""
    body = _encode(document)
    return b'%s,"crc":"%08x"}' % (body[:-1], crc32(body))


def decode_document(data: bytes, kind: type[D], task_id: str, file: str) -> D:
    """Read a cursor or step; one without ``crc``, of an older Towline or edited by hand, is taken as it is.

    Raises:
        CursorCorruptError: It is not one, or has another checksum than it says (CUR-13).
        SchemaTooNewError: A newer Towline wrote it.
    """
    checked = _CRC.search(data)
    if checked is not None and crc32(data[: checked.start()] + b"}") != int(checked[1], 16):
        raise CursorCorruptError(task_id, file, "its checksum does not match (after an edit by hand, remove crc)")
    try:
        document = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CursorCorruptError(task_id, file, str(error)) from error
    if document.schema > SCHEMA:
        raise SchemaTooNewError(file, document.schema, SCHEMA)
    return document


def last_skips(lines: Iterable[bytes]) -> dict[CursorKey, SkipRecord]:
    """Return the last skip record of each key; a torn last line is left out."""
    found: dict[CursorKey, SkipRecord] = {}
    for line in lines:
        if not line.endswith(b"\n"):
            break
        record = msgspec.json.decode(line, type=SkipRecord)
        found[loaded_key(record.key)] = record
    return found
