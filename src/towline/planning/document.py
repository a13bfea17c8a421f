"""``plan.json`` as bytes, written in slices; and when it is time to write it again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from towline.planning.records import PlanDocument

SLICE_TASKS = 500
"""Tasks per slice: a few milliseconds of encoding, so that a loop can breathe in between (PLAN-23)."""

COMPACT_AFTER = 1_000
"""Fewest journal records that are worth a new snapshot (PLAN-23)."""

RECORDS_PER_TASK = 3
"""Journal records per task above which a run in progress writes a snapshot: a task that neither fails nor
waits makes two, so a run of such tasks writes its plan once at its start, and at its end if it is to be resumed."""

_ENCODER = msgspec.json.Encoder()


def journal_limit(tasks: int) -> int:
    """Return above how many journal records a new snapshot is due: n transitions then cost O(n) bytes (PLAN-23)."""
    return max(COMPACT_AFTER, RECORDS_PER_TASK * tasks)


def encode_document(document: PlanDocument) -> bytes:
    """Return the bytes of ``plan.json``."""
    return b"".join(encode_slices(document))


def encode_slices(document: PlanDocument, slice_tasks: int = SLICE_TASKS) -> Iterator[bytes]:
    """Give the bytes of ``plan.json`` piece by piece.

    The caller keeps the document unchanged until the last piece is taken, or what is written is a mixture.
    """
    # The schema is the default, which ``omit_defaults`` leaves out, but a document has to state it.
    head = _ENCODER.encode(msgspec.structs.replace(document, tasks=[]))[1:-1]
    yield b'{"schema":%d,%b,"tasks":[\n' % (document.schema, head)
    tasks, between = document.tasks, b""
    for start in range(0, len(tasks), slice_tasks):
        yield between + _ENCODER.encode(tasks[start : start + slice_tasks])[1:-1]
        between = b",\n"
    yield b"]}\n"
