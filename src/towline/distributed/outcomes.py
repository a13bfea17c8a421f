"""Between the engine's outcome and the record that travels (DIST-27, SER-12)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from towline.clock.clock import moment
from towline.coordination.records import LeaseRef, OutcomeRecord
from towline.modules.outcomes import Cancelled, Failed, Outcome, Reason, Skipped, Succeeded, TimedOut
from towline.serialization.errors_record import ErrorRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.planning.records import TaskState

_STATES: dict[type, TaskState] = {
    Succeeded: "succeeded",
    Failed: "failed",
    TimedOut: "timed_out",
    Skipped: "skipped",
    Cancelled: "cancelled",
}


def record_of_outcome(outcome: Outcome[Any], lease: LeaseRef, payload: bytes | None, now: float) -> OutcomeRecord:
    """Make the record of an outcome under a lease; ``payload`` is the value as JSON."""
    reason = outcome.reason
    return OutcomeRecord(
        task_id=lease.task_id,
        epoch=lease.epoch,
        worker_id=lease.worker_id,
        state=_STATES[type(outcome)],
        reason=None if reason is None else reason.code,
        reason_text=None if reason is None or not reason.text else reason.text,
        blocked_by=None if reason is None else reason.blocked_by,
        value=msgspec.UNSET if payload is None else msgspec.Raw(payload),
        error=outcome.error if isinstance(outcome, Failed | TimedOut) else None,
        artifacts=outcome.artifacts,
        findings=outcome.findings,
        origin=outcome.origin if isinstance(outcome, Succeeded) else "executed",
        ignored=isinstance(outcome, Failed | TimedOut) and outcome.ignored,
        abandoned=isinstance(outcome, TimedOut | Cancelled) and outcome.abandoned,
        attempts=outcome.attempts,
        started_at=None if outcome.started_at is None else moment(outcome.started_at),
        published_at=moment(now),
    )


def payload_of(record: OutcomeRecord) -> bytes | None:
    """Return the value of a record as JSON, if it has one."""
    return bytes(record.value) if isinstance(record.value, msgspec.Raw) else None


def outcome_of_record(record: OutcomeRecord, decode: Callable[[bytes], Any]) -> Outcome[Any]:
    """Make the engine's outcome of a record; ``decode`` reads a value of the task's module.

    Raises:
        SerializationError: The value is not of the declared type.
    """
    facts: dict[str, Any] = {
        "task_id": record.task_id,
        "started_at": None if record.started_at is None else seconds_of(record.started_at),
        "finished_at": seconds_of(record.published_at) if record.published_at else 0.0,
        "attempts": record.attempts,
        "epoch": record.epoch,
        "worker_id": record.worker_id,
        "artifacts": record.artifacts,
        "findings": record.findings,
    }
    if record.reason is not None:
        facts["reason"] = Reason(code=record.reason, text=record.reason_text or "", blocked_by=record.blocked_by)
    match record.state:
        case "succeeded":
            payload = payload_of(record)
            value = None if payload is None else decode(payload)
            return Succeeded(value, origin=record.origin, **facts)
        case "skipped":
            return Skipped(**facts)
        case "cancelled":
            return Cancelled(abandoned=record.abandoned, **facts)
        case "timed_out":
            return TimedOut(_error(record), ignored=record.ignored, abandoned=record.abandoned, **facts)
        case _:
            return Failed(_error(record), ignored=record.ignored, **facts)


def _error(record: OutcomeRecord) -> ErrorRecord:
    return record.error or ErrorRecord(type_name="TowlineError", text=record.reason_text or record.reason or "")


def seconds_of(at: str) -> float:
    """Read a moment back as seconds since 1970."""
    return datetime.fromisoformat(at).timestamp()
