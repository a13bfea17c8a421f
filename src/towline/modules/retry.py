"""How often and how fast a body is tried again, and how a body says that it need not run (RUN-17, RUN-18, RUN-62)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from towline.errors.declaration import DeclarationError
from towline.modules.durations import is_finite_number

if TYPE_CHECKING:
    from random import Random

RetryOn: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]

RETRY_LIMIT = 100
"""Most extra attempts of one module."""


class _Pace(msgspec.Struct, frozen=True, kw_only=True):
    base_s: float = 0.1
    factor: float = 2.0
    max_s: float = 60.0
    on: RetryOn = Exception


class Retry(_Pace, frozen=True):
    """How often and how fast to try again: ``Retry(3, on=ConnectionError)``.

    ``count``: extra attempts, 0 to 100. Before attempt n+1 the runner sleeps between half and all of
    ``min(max_s, base_s * factor ** (n - 1))`` seconds. ``on``: the errors that are worth another attempt, as
    types or as a predicate; it sees ``ModuleTimeoutError`` too.

    Raises:
        DeclarationError: A value is of the wrong type or out of range.
    """

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or not 0 <= self.count <= RETRY_LIMIT:
            raise DeclarationError(
                "Retry", "count", self.count, f"extra attempts are a whole number, 0 to {RETRY_LIMIT}"
            )
        for name, value, least in (("base_s", self.base_s, 0), ("factor", self.factor, 1), ("max_s", self.max_s, 0)):
            if not is_finite_number(value) or value < least:
                raise DeclarationError("Retry", name, value, f"a finite number, {least} or more")
        if not (_is_error_type(self.on) or callable(self.on) or _are_error_types(self.on)) or _is_other_type(self.on):
            raise DeclarationError(
                "Retry", "on", self.on, "an Exception type, a tuple of them, or a function error -> bool"
            )

    def delay_s(self, failed_attempts: int, random: Random) -> float:
        """Return the seconds to sleep after this many failed attempts (1 or more), with equal jitter (RUN-17)."""
        try:
            full = min(self.max_s, self.base_s * self.factor ** (failed_attempts - 1))
        except OverflowError:
            full = self.max_s
        return random.uniform(full / 2, full)

    def wants(self, error: Exception) -> bool:
        """Say whether this error is worth another attempt; a predicate that raises means no."""
        on = self.on
        if isinstance(on, (type, tuple)):
            return isinstance(error, on)
        try:
            return on(error) is True
        except Exception:  # noqa: BLE001 - the body's error is the one that matters, and it must surface
            return False


class Skip(Exception):
    """Raise in a body to end its task as skipped, with a reason for people (RUN-62).

    No retry follows and no artifact is stored; dependents see a skipped task like any other.
    """

    def __init__(self, text: str, /) -> None:
        super().__init__(text)
        self.text = text


def _is_error_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _is_other_type(value: object) -> bool:
    return isinstance(value, type) and not issubclass(value, Exception)


def _are_error_types(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(_is_error_type(one) for one in value)
