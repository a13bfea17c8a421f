"""Wall time and durations. The only file that reads the system's clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> float:
        """Return wall time: seconds since 1970 in UTC. For people and records, never for durations."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never steps back. For durations alone."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


_second, _text = -1, ""


def moment(now: float) -> str:
    """Write a wall time as UTC text with milliseconds: ``2026-03-01T10:00:00.000Z``.

    The text up to the second is remembered: a run stamps thousands of records a second, and
    formatting a date costs more than the record.
    """
    global _second, _text
    millis = round(now * 1000)
    second = millis // 1000
    if second != _second:
        _text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        _second = second
    return f"{_text}.{millis % 1000:03d}Z"
