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


_milli, _whole, _second, _text = -1, "", -1, ""


def moment(now: float) -> str:
    """Write a wall time as UTC text with milliseconds: ``2026-03-01T10:00:00.000Z``.

    The last text is remembered, and what of it is the second: a run stamps thousands of records a second,
    and formatting a date costs more than the record.
    """
    global _milli, _whole, _second, _text
    millis = round(now * 1000)
    if millis != _milli:
        second = millis // 1000
        if second != _second:
            _text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            _second = second
        _whole = f"{_text}.{millis % 1000:03d}Z"
        _milli = millis
    return _whole
