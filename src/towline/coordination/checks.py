"""What is refused before it reaches any store: limits and contradictions (``coordination.md`` section 11)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from towline.errors.coordination import RecordRefusedError, RunUnknownError
from towline.identity.names import NODE_ID
from towline.planning.records import FINAL_STATES

if TYPE_CHECKING:
    from towline.coordination.records import Assignment, LeaseRef, OutcomeRecord, WorkerRegistration, WorkerStatus

CAPABILITY_LIMIT = 256
SPARE_LEASES = 16
"""How many leases beyond its parallelism a worker may list: late ones are still named until they are told lost."""
RECORD_LIMIT = 256 * 1024
"""Bytes of an outcome without its value (COORD-C57)."""
CRITICAL_PATH_LIMIT_MS = 10**12 - 1
_NUMBER_LIMIT = 2**53

_CAPABILITY = re.compile(r"[a-z0-9][a-z0-9._+-]{0,63}\Z")


def check_registration(registration: WorkerRegistration, run_id: str) -> None:
    """Refuse a registration for another run, or one that breaks a limit."""
    if registration.run_id != run_id:
        raise RunUnknownError(registration.run_id)
    for what, value in (("worker_id", registration.worker_id), ("session", registration.session)):
        if not NODE_ID.match(value):
            raise RecordRefusedError(
                what, repr(value[:80]), "ids are 1 to 128 of A-Z a-z 0-9 . _ -, letter or digit first"
            )
    if len(registration.capabilities) > CAPABILITY_LIMIT:
        count = str(len(registration.capabilities))
        raise RecordRefusedError("number of capabilities", count, f"at most {CAPABILITY_LIMIT}")
    for name in registration.capabilities:
        if not _CAPABILITY.match(name.casefold()):
            raise RecordRefusedError("capability", repr(name[:80]), "names are 1 to 64 of a-z 0-9 . _ + -")
    _check_count("held leases", len(registration.held), registration.parallelism)


def check_status(status: WorkerStatus, parallelism: int) -> None:
    """Refuse a heartbeat that lists more leases than its worker can hold."""
    _check_count("leases in flight", len(status.in_flight), parallelism)


def _check_count(what: str, count: int, parallelism: int) -> None:
    limit = parallelism + SPARE_LEASES
    if count > limit:
        raise RecordRefusedError(f"number of {what}", str(count), f"at most parallelism + {SPARE_LEASES} = {limit}")


def check_assignment(assignment: Assignment) -> None:
    """Refuse numbers that the order of claims cannot hold."""
    what = f"of {assignment.task_id!r}"
    if not -999 <= assignment.priority <= 999:
        raise RecordRefusedError(f"priority {what}", str(assignment.priority), "between -999 and 999")
    if not 0 <= assignment.critical_path_ms <= CRITICAL_PATH_LIMIT_MS:
        value = str(assignment.critical_path_ms)
        raise RecordRefusedError(f"critical_path_ms {what}", value, f"between 0 and {CRITICAL_PATH_LIMIT_MS}")
    if not 0 <= assignment.epoch_floor < _NUMBER_LIMIT:
        raise RecordRefusedError(f"epoch_floor {what}", str(assignment.epoch_floor), "between 0 and 2^53")


def check_outcome(outcome: OutcomeRecord, lease: LeaseRef | None) -> OutcomeRecord:
    """Refuse an outcome that is not final or not of its lease; returns it within the record limit."""
    if outcome.state not in FINAL_STATES:
        raise RecordRefusedError(f"state of {outcome.task_id!r}", repr(outcome.state), "an outcome has a final state")
    if lease is not None:
        named = (outcome.task_id, outcome.epoch, outcome.worker_id)
        if named != (lease.task_id, lease.epoch, lease.worker_id):
            raise RecordRefusedError("outcome", f"of {named}", f"its lease is {lease}")
    return within_limit(outcome)


def within_limit(outcome: OutcomeRecord) -> OutcomeRecord:
    """Return the outcome with its traceback cut in the middle when the record is too large (COORD-C57)."""
    bare = msgspec.structs.replace(outcome, value=msgspec.UNSET)
    if outcome.error is None or _size(bare) <= RECORD_LIMIT:
        return outcome
    keep = RECORD_LIMIT // 16
    while keep > 256:
        error = outcome.error
        error = msgspec.structs.replace(
            error,
            text=_middle_cut(error.text, keep),
            traceback=_middle_cut(error.traceback, keep),
            notes=error.notes[:16],
            cause=None,
            context=None,
            members=(),
            cut=True,
        )
        cut = msgspec.structs.replace(outcome, error=error, reason_text=_middle_cut(outcome.reason_text or "", keep))
        if _size(msgspec.structs.replace(cut, value=msgspec.UNSET)) <= RECORD_LIMIT:
            return cut
        keep //= 2
    raise RecordRefusedError(f"outcome of {outcome.task_id!r}", f"{_size(bare):,} bytes", f"at most {RECORD_LIMIT:,}")


def _size(record: OutcomeRecord) -> int:
    return len(msgspec.json.encode(record))


def _middle_cut(text: str, keep: int) -> str:
    if len(text) <= keep:
        return text
    return f"{text[: keep // 2]}\n... {len(text) - keep:,} characters left out ...\n{text[-(keep // 2) :]}"
