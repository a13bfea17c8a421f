"""After a crash: log the transitions that reached the journal but not the event log (EVT-04)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.events.records import Event
from towline.planning.loading import decode_record
from towline.planning.records import StateRecord
from towline.state.store import Fence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from towline.pipeline.run_files import RunFiles
    from towline.planning.records import PlanDocument

EVENTS_KEY = "runs/{run_id}/events.jsonl"
SHOWN = ("reason", "reason_text", "blocked_by", "worker", "done", "total")


class _Logged(msgspec.Struct):
    """What is read back of a logged event."""

    seq: int = 0
    data: dict[str, Any] = {}


async def log_missing_transitions(
    run_files: RunFiles, owner_epoch: int, source: str, document: PlanDocument, records: Sequence[bytes]
) -> int:
    """Append to the log of an interrupted run what its journal has and the log has not; returns how many.

    ``records``: the journal since the last snapshot, as JSON. What a snapshot holds was logged before: the
    log is written twice a second, a snapshot far less often.
    """
    key = EVENTS_KEY.format(run_id=document.run_id)
    entry = await run_files.read(key)
    last_seq, last_plan_seq = _ends_of(entry.data if entry is not None else b"")
    missing = list(_missing(records, last_seq, last_plan_seq, source))
    if missing:
        await run_files.append(key, msgspec.json.Encoder().encode_lines(missing), Fence(owner_epoch))
    return len(missing)


def _ends_of(log: bytes) -> tuple[int, int]:
    """Return the last number of the log, and the last journal number that it tells of; a torn last line is passed over."""
    last_seq = last_plan_seq = 0
    for line in reversed(log.splitlines()):
        try:
            event = msgspec.json.decode(line, type=_Logged)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        last_seq = last_seq or event.seq
        last_plan_seq = event.data.get("plan_seq", 0)
        if last_plan_seq:
            break
    return last_seq, last_plan_seq


def _missing(records: Sequence[bytes], last_seq: int, last_plan_seq: int, source: str) -> Iterator[Event]:
    states: dict[str, str] = {}
    for data in records:
        record = decode_record(data)
        if not isinstance(record, StateRecord):
            continue
        before = states.get(record.task, "pending")
        states[record.task] = record.state
        if record.seq <= last_plan_seq:
            continue
        last_seq += 1
        shown: dict[str, Any] = {"from": before, "to": record.state, "plan_seq": record.seq}
        shown |= {name: value for name in SHOWN if (value := getattr(record, name)) is not None}
        if record.error is not None:
            shown["error"] = msgspec.to_builtins(record.error)
        yield Event(
            seq=last_seq,
            source=source,
            session="after-a-crash",
            n=last_seq,
            at=record.at,
            kind="task_state",
            task=record.task,
            epoch=record.epoch,
            attempt=record.attempts,
            data=shown,
        )
