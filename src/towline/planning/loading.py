"""Read ``plan.json`` and its journal, with every check that a damaged file could fail (PLAN-22, 24). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from towline.errors.state import PlanCorruptError, SchemaTooNewError
from towline.planning.live import apply
from towline.planning.records import SCHEMA, ExpandRecord, JournalRecord, PlanDocument, PlannedTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from towline.planning.live import LivePlan
    from towline.state.journal import JournalRead

PLAN_FILE, JOURNAL_FILE = "plan.json", "plan.journal"

_DOCUMENT = msgspec.json.Decoder(PlanDocument)
_RECORD: msgspec.json.Decoder[JournalRecord] = msgspec.json.Decoder(JournalRecord)
_BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Schema(msgspec.Struct):
    schema: int = SCHEMA


def decode_document(data: bytes, file: str = PLAN_FILE) -> PlanDocument:
    """Read ``plan.json``.

    Args:
        data: The whole file.
        file: What messages call it.

    Raises:
        PlanCorruptError: Names the path of what is wrong, for example ``tasks[3].state``.
        SchemaTooNewError: A newer Towline wrote it (PLAN-26).
    """
    try:
        document = _DOCUMENT.decode(data)
    except _BROKEN as error:
        _refuse_newer(data, file)
        raise PlanCorruptError(file, _readable(error) if data else "it is empty") from error
    if document.schema < 1:
        raise PlanCorruptError(file, f"schema: {document.schema} is no schema number")
    _check_graph(document, file)
    return document


def replay(plan: LivePlan, journal: JournalRead, file: str = JOURNAL_FILE) -> int:
    """Bring a plan, as loaded from its snapshot, to where the journal ends.

    Args:
        plan: Changed in place. After an error it must not be used.
        journal: Its lines have right checksums and its records no gaps; a torn last line is gone. One
            without header (empty, or the header torn) has no records: a kill after its truncation.
        file: What messages call the journal.

    Returns:
        The number of records that were applied.

    Raises:
        PlanCorruptError: The journal is of another plan or of a later snapshot, a record is missing or fits
            no task, or the journal of an older snapshot goes on behind the newer one (PLAN-22, PLAN-24).
    """
    document, header = plan.document, journal.header
    if header is None:
        return 0
    if header.plan_id != document.plan_id:
        raise PlanCorruptError(file, f"it belongs to plan {header.plan_id}, plan.json to {document.plan_id}", 0)
    if header.generation > document.generation:
        detail = f"it continues snapshot {header.generation}, but plan.json is snapshot {document.generation}"
        raise PlanCorruptError(file, detail, 0)
    older, contained = header.generation < document.generation, document.applied_seq
    applied = 0
    for seq, data in zip(journal.seqs, journal.records, strict=True):
        if older and seq <= contained:
            continue
        if older:
            raise PlanCorruptError(file, f"record {seq} follows snapshot {header.generation}, but a newer one lacks it")
        if seq != document.applied_seq + 1:
            raise PlanCorruptError(file, f"record {seq} stands where {document.applied_seq + 1} was expected")
        try:
            record = _RECORD.decode(data)
        except _BROKEN as error:
            raise PlanCorruptError(file, f"record {seq}: {_readable(error)}") from error
        _check_fits(plan, record, file)
        apply(plan, record)
        applied += 1
    return applied


def _refuse_newer(data: bytes, file: str) -> None:
    """Raise ``SchemaTooNewError`` if a document that could not be read says that it is newer."""
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
    except _BROKEN:
        return  # damaged in some other way, which the caller reports
    if schema > SCHEMA:
        raise SchemaTooNewError(file, schema, SCHEMA)


def _readable(error: Exception) -> str:
    """Turn a codec's message into ``path: expectation``."""
    text, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    return f"{path}: {text}" if path else text or type(error).__name__


def _check_graph(document: PlanDocument, file: str) -> None:
    """Refuse two tasks of one id, and names of tasks that are not there."""
    known: dict[str, int] = {}
    for place, task in enumerate(document.tasks):
        other = known.setdefault(task.id, place)
        if other != place:
            raise PlanCorruptError(file, f"tasks[{place}].id: {task.id!r} is the id of tasks[{other}] too")
    for place, task in enumerate(document.tasks):
        _check_names(task, f"tasks[{place}]", known, file)


def _check_names(task: PlannedTask, where: str, known: Mapping[str, int], file: str) -> None:
    for number, name in enumerate(task.depends_on):
        if name not in known:
            raise PlanCorruptError(file, f"{where}.depends_on[{number}]: there is no task {name!r}")
    for number, name in enumerate(task.gates or ()):
        if name not in known:
            raise PlanCorruptError(file, f"{where}.gates[{number}]: there is no task {name!r}")
    if task.edges and not set(task.edges).issubset(task.depends_on):
        raise PlanCorruptError(file, f"{where}.edges: names a task that is not in depends_on")
    for field, other in (("source", task.source), ("parent", task.parent)):
        if other is not None and other not in known:
            raise PlanCorruptError(file, f"{where}.{field}: there is no task {other!r}")


def _check_fits(plan: LivePlan, record: JournalRecord, file: str) -> None:
    """Refuse a record about a task that the plan does not have, or an expansion that cannot be."""
    if type(record) is ExpandRecord:
        name = record.join
        fits = name in plan.index and _is_expandable(plan.row(name), record)
    else:
        name = getattr(record, "task", "")
        fits = not name or name in plan.index
    if not fits:
        raise PlanCorruptError(file, f"record {record.seq} does not fit task {name!r} of the plan")


def _is_expandable(join: PlannedTask, record: ExpandRecord) -> bool:
    keys = record.keys
    return join.join and join.source_digest is None and len(keys) == len(record.items) == len(set(keys))
