"""Outcomes as a test gives them to a module that reads them (``outcome_of``)."""

from __future__ import annotations

from typing import TypeVar

from towline.errors.running import ModuleTimeoutError
from towline.modules.outcomes import Cancelled, Failed, Reason, Skipped, Succeeded, TimedOut
from towline.serialization.exceptions import record_of

V = TypeVar("V")


def succeeded(value: V, /) -> Succeeded[V]:
    """Make the outcome of a body that gave this value."""
    return Succeeded(value, attempts=1, epoch=1)


def failed(error: Exception, /) -> Failed:
    """Make the outcome of a body that raised this."""
    return Failed(record_of(error), attempts=1, epoch=1)


def timed_out(seconds: float = 1.0, /) -> TimedOut:
    """Make the outcome of a body that did not end within this time."""
    return TimedOut(record_of(ModuleTimeoutError("module", seconds, 1, "cancelled")), attempts=1, epoch=1)


def skipped(code: str = "module_skipped", text: str = "") -> Skipped:
    """Make the outcome of a task that was skipped, with the reason's code and text."""
    return Skipped(reason=Reason(code=code, text=text))


def cancelled(code: str = "stopped") -> Cancelled:
    """Make the outcome of a task that was stopped."""
    return Cancelled(reason=Reason(code=code))
