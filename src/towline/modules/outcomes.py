"""How a task ended."""

from __future__ import annotations

from typing import Generic, Literal, TypeAlias, TypeVar, final

import msgspec

from towline.artifacts.records import ArtifactRef
from towline.serialization.errors_record import ErrorRecord

T_co = TypeVar("T_co", covariant=True)

Severity: TypeAlias = Literal["info", "warning", "blocking"]


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a task did not simply run: a code for programs, a text for people, and the task that caused it."""

    code: str
    text: str = ""
    blocked_by: str | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operator should know about the data; a blocking one stops what a gate guards."""

    code: str
    severity: Severity
    message: str
    evidence: dict[str, str] = {}
    suggested_action: str | None = None


class _Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What every outcome says: moments are seconds since 1970, ``attempts`` and ``epoch`` count over the plan's life."""

    task_id: str = ""
    started_at: float | None = None
    finished_at: float = 0.0
    attempts: int = 0
    epoch: int = 0
    worker_id: str | None = None
    reason: Reason | None = None
    artifacts: tuple[ArtifactRef, ...] = ()
    findings: tuple[Finding, ...] = ()


class _WithOrigin(_Ended, frozen=True, kw_only=True):
    origin: Literal["executed", "cached", "kept"] = "executed"


@final
class Succeeded(_WithOrigin, Generic[T_co], frozen=True):
    """The body gave a value, now or (``origin``) before."""

    value: T_co


class _WithIgnored(_Ended, frozen=True, kw_only=True):
    ignored: bool = False


@final
class Failed(_WithIgnored, frozen=True):
    """The body, or something around it, raised."""

    error: ErrorRecord


class _WithAbandoned(_WithIgnored, frozen=True, kw_only=True):
    abandoned: bool = False


@final
class TimedOut(_WithAbandoned, frozen=True):
    """The body did not end within its time; ``abandoned`` when it could not be stopped either."""

    error: ErrorRecord


@final
class Skipped(_Ended, frozen=True, kw_only=True):
    """The task was not needed, or could not be reached; ``reason`` says which."""


@final
class Cancelled(_Ended, frozen=True, kw_only=True):
    """The run, an operator or a failure elsewhere stopped the task."""

    abandoned: bool = False


Outcome: TypeAlias = Succeeded[T_co] | Failed | TimedOut | Skipped | Cancelled
"""How a task ended; ``match`` on the class."""
