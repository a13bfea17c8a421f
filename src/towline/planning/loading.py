"""Read ``plan.json`` and its journal records, with every check that damage could fail (PLAN-22). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from towline.errors.state import PlanCorruptError, SchemaTooNewError
from towline.planning.live import apply
from towline.planning.records import SCHEMA, ExpandRecord, JournalRecord, PlanDocument, PlannedTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from towline.planning.live import LivePlan

PLAN_FILE, JOURNAL_FILE = "plan.json", "plan.journal"

_DOCUMENT = msgspec.json.Decoder(PlanDocument)
_RECORD: msgspec.json.Decoder[JournalRecord] = msgspec.json.Decoder(JournalRecord)
_RECORDS: msgspec.json.Decoder[list[JournalRecord]] = msgspec.json.Decoder(list[JournalRecord])
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


def replay(plan: LivePlan, records: Sequence[bytes], file: str = JOURNAL_FILE) -> None:
    """Bring a plan, as loaded from its snapshot, to where its journal ends.

    Args:
        plan: Changed in place. After an error it must not be used.
        records: The JSON of each record since the snapshot, in order. Checksums, the header and torn ends
            were judged where the journal was read (``state.snapshot``).
        file: What messages call the journal.

    Raises:
        PlanCorruptError: A record cannot be read, is missing, or fits no task of the plan (PLAN-22).
    """
    for record in _decoded(records, plan.document.applied_seq + 1, file):
        expected = plan.document.applied_seq + 1
        if record.seq != expected:
            raise PlanCorruptError(file, f"record {record.seq} stands where {expected} was expected")
        _check_fits(plan, record, file)
        apply(plan, record)


def _decoded(records: Sequence[bytes], first: int, file: str) -> Iterable[JournalRecord]:
    """Decode all records in one call; only if one is broken, one by one, to name it."""
    try:
        return _RECORDS.decode(b"[%b]" % b",".join(records))
    except _BROKEN:
        return _decoded_singly(records, first, file)


def _decoded_singly(records: Sequence[bytes], first: int, file: str) -> Iterator[JournalRecord]:
    for number, data in enumerate(records, first):
        try:
            yield _RECORD.decode(data)
        except _BROKEN as error:
            raise PlanCorruptError(file, f"record {number}: {_readable(error)}") from error


def decode_record(data: bytes) -> JournalRecord:
    """Read one journal record that :func:`replay` has taken already."""
    return _RECORD.decode(data)


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
    tasks = document.tasks
    known = {task.id: place for place, task in enumerate(tasks)}
    if len(known) < len(tasks):
        place, task = next((place, task) for place, task in enumerate(tasks) if known[task.id] != place)
        raise PlanCorruptError(file, f"tasks[{known[task.id]}].id: {task.id!r} is the id of tasks[{place}] too")
    for place, task in enumerate(tasks):
        if task.depends_on or task.gates or task.edges or task.source is not None or task.parent is not None:
            _check_names(task, place, known, file)


def _check_names(task: PlannedTask, place: int, known: Mapping[str, int], file: str) -> None:
    where = f"tasks[{place}]"
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
