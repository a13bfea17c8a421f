"""Errors as codes on the wire, and back: the same error is raised on both sides of the line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from towline.coordination.hub.messages import Refusal
from towline.errors.coordination import (
    CoordinationError,
    MasterLostError,
    ProgramMismatchError,
    RecordRefusedError,
    RunUnknownError,
    SessionEndedError,
    SessionReplacedError,
    WorkerIdTakenError,
)
from towline.errors.hub import HubRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

FINAL_CODES = frozenset({"unauthorized", "wrong_run", "program_mismatch", "worker_id_taken", "session_replaced"})
"""Refusals of a greeting after which no further try makes sense (COORD-H10)."""


class _Rebuilt(NamedTuple):
    code: str
    kind: Callable[..., CoordinationError]
    fields: tuple[str, ...]


_KNOWN = (
    _Rebuilt("session_replaced", SessionReplacedError, ("worker_id", "session", "newer_session")),
    _Rebuilt("session_ended", SessionEndedError, ("worker_id", "session", "expelled")),
    _Rebuilt("worker_id_taken", WorkerIdTakenError, ("worker_id", "host", "pid", "silent_s")),
    _Rebuilt("program_mismatch", ProgramMismatchError, ("what", "run_value", "own_value", "differences")),
    _Rebuilt("run_unknown", RunUnknownError, ("run_id", "coordinator")),
    _Rebuilt("master_lost", MasterLostError, ("run_id", "silent_s", "limit_s")),
    _Rebuilt("bad_request", RecordRefusedError, ("what", "value", "rule")),
)
_BY_CODE = {entry.code: entry for entry in _KNOWN}
_BY_KIND = {entry.kind: entry for entry in _KNOWN}


def refusal_of(error: CoordinationError) -> Refusal:
    """Write an error."""
    entry = _BY_KIND.get(type(error))
    if entry is not None:
        return Refusal(entry.code, str(error), {name: getattr(error, name) for name in entry.fields})
    if isinstance(error, HubRefusedError):
        return Refusal(error.code, error.text)
    return Refusal("internal", str(error))


def error_of(refusal: Refusal, operation: str) -> CoordinationError:
    """Read an error; one whose fields are not those of this version is told by code and text."""
    entry = _BY_CODE.get(refusal.code)
    if entry is not None and all(name in refusal.fields for name in entry.fields):
        values: list[Any] = [refusal.fields[name] for name in entry.fields]
        return entry.kind(*values)
    return HubRefusedError(refusal.code, refusal.message, operation)
