"""Put snapshot and journal together, or say why they do not fit (PLAN-20..24). Pure."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from towline.errors.state import PlanCorruptError, SchemaTooNewError
from towline.state.journal import SCHEMA, JournalHeader, read_journal
from towline.state.keys import JOURNAL_KEY, PLAN_KEY

_AT_BYTE = re.compile(r"\(byte (\d+)\)")


class SnapshotHead(msgspec.Struct, frozen=True):
    """The fields of ``plan.json`` that the journal is judged by; the rest is the planner's."""

    schema: int
    plan_id: str
    generation: int
    applied_seq: int = 0


class Loaded(msgspec.Struct, frozen=True):
    """A plan as it lies on disk.

    ``snapshot``: the bytes of ``plan.json``, ``None`` when there is no plan. ``records``: the JSON of each
    journal record after the snapshot, in order. ``dropped_tail``: how many bytes of a torn last line do not
    count; worth a warning. ``without_journal``: there is none, or none that has a header, which a kill leaves
    only before the first record of the first plan here (PLAN-22).
    """

    snapshot: bytes | None = None
    head: SnapshotHead | None = None
    header: JournalHeader | None = None
    records: list[bytes] = []
    dropped_tail: int = 0
    without_journal: bool = False

    @property
    def last_seq(self) -> int:
        """The number of the last record that counts; 0 without a plan."""
        return self.head.applied_seq + len(self.records) if self.head else 0

    def decoded(self, decoder: msgspec.json.Decoder[Any]) -> list[Any]:
        """Decode all records with a decoder for one record.

        Raises:
            PlanCorruptError: One is not what the decoder expects; its path is in the message.
        """
        decoded: list[Any] = []
        for record in self.records:
            try:
                decoded.append(decoder.decode(record))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                seq = self.last_seq - len(self.records) + len(decoded) + 1
                raise PlanCorruptError(JOURNAL_KEY, f"record {seq}: {error}") from error
        return decoded


def join(snapshot: bytes | None, journal: bytes | None, place: str) -> Loaded:
    """Judge what lies on disk.

    place: The state root, for messages.

    Raises:
        PlanCorruptError: See PLAN-22 and PLAN-24; nothing is changed.
        SchemaTooNewError: PLAN-26.
    """
    plan_file, journal_file = f"{place}/{PLAN_KEY}", f"{place}/{JOURNAL_KEY}"
    if snapshot is None:
        if journal is None:
            return Loaded()
        raise PlanCorruptError(plan_file, "it is missing, but its journal is there")
    head = read_head(snapshot, plan_file)
    read = read_journal(journal or b"", journal_file)
    if read.header is None:
        return Loaded(snapshot, head, None, [], read.dropped_tail, without_journal=True)
    header = read.header
    if (header.plan_id, header.generation) > (head.plan_id, head.generation):
        raise PlanCorruptError(
            journal_file,
            f"it follows generation {header.generation} of plan {header.plan_id}, the snapshot is generation "
            f"{head.generation} of {head.plan_id}",
            0,
        )
    if header.plan_id != head.plan_id:
        # A kill between the snapshot of a new plan and its journal: all of this belongs to the old plan (PLAN-30).
        return Loaded(snapshot, head, None)
    later = [record for record, seq in zip(read.records, read.seqs, strict=True) if seq > head.applied_seq]
    if later and header.generation < head.generation:
        raise PlanCorruptError(
            journal_file, f"it goes beyond seq {head.applied_seq}, which a newer snapshot says was its last", 0
        )
    if later and read.seqs[-len(later)] != head.applied_seq + 1:
        raise PlanCorruptError(
            journal_file, f"its first record is {read.seqs[0]}, the snapshot ends with {head.applied_seq}", 0
        )
    return Loaded(snapshot, head, header, later, read.dropped_tail)


def read_head(snapshot: bytes, file: str) -> SnapshotHead:
    """Read what the journal is judged by; the whole document must be JSON.

    Raises:
        PlanCorruptError: It is not, or lacks a field.
        SchemaTooNewError: A newer Towline wrote it.
    """
    try:
        head = msgspec.json.decode(snapshot, type=SnapshotHead)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        at = _AT_BYTE.search(str(error))
        raise PlanCorruptError(file, str(error), int(at.group(1)) if at else -1) from error
    if head.schema > SCHEMA:
        raise SchemaTooNewError(file, head.schema, SCHEMA)
    if head.schema < 1:
        raise PlanCorruptError(file, f"schema is {head.schema} - at `$.schema`")
    return head
