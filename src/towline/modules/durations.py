"""Durations as people write them, and as the engine counts them."""

from __future__ import annotations

from datetime import timedelta
from math import isfinite
from typing import TypeAlias

Duration: TypeAlias = float | timedelta
"""Seconds, or a timedelta."""

DURATION_WORDS = "seconds as a number, or a timedelta; 0 or more, 0 for no limit"


def is_finite_number(value: object) -> bool:
    """Say whether this is an int or float that is neither a bool, infinite nor NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def seconds_of(value: object) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: It is no number or timedelta, is negative, infinite or NaN; the text says what is allowed.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not isfinite(value) or value < 0:
        raise ValueError(DURATION_WORDS)
    return float(value)
