"""Time, chance and exits under a test's control (TEST-06)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

WALL_START = 1_772_359_200.0
"""2026-03-01T10:00:00Z, where every test clock starts unless told otherwise."""


class TestClock:
    """A clock that follows an event loop, or stands still until :meth:`advance`.

    Args:
        loop: Whose time to read; a :class:`~towline.testing.virtual_loop.VirtualLoop` makes hours cheap. Without
            one the clock stands at 0 and is moved by hand.
        wall_start: Wall time at monotonic second 0, in seconds since 1970.
        skew_s: How far this node's wall clock is ahead of the truth; may change while the test runs.
    """

    __test__ = False

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        wall_start: float = WALL_START,
        skew_s: float = 0.0,
    ) -> None:
        self._by_hand = 0.0
        self._seconds: Callable[[], float] = loop.time if loop is not None else lambda: self._by_hand
        self._wall_start = wall_start
        self.skew_s = skew_s

    @classmethod
    def of_running_loop(cls, *, wall_start: float = WALL_START, skew_s: float = 0.0) -> TestClock:
        """Return a clock of the loop that the caller runs on."""
        return cls(asyncio.get_running_loop(), wall_start=wall_start, skew_s=skew_s)

    def now(self) -> float:
        """Return wall time in seconds since 1970, as this node believes it."""
        return self._wall_start + self._seconds() + self.skew_s

    def monotonic(self) -> float:
        """Return seconds that never step back; no skew touches them."""
        return self._seconds()

    def advance(self, seconds: float) -> None:
        """Move a clock without a loop. Under a loop, sleep instead.

        Raises:
            ValueError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds}")
        self._by_hand += seconds

    def skewed(self, skew_s: float) -> TestClock:
        """Return the clock of another node: the same moments, another error of its wall clock."""
        other = TestClock(wall_start=self._wall_start, skew_s=skew_s)
        other._seconds = self._seconds
        return other


class ProcessExited(BaseException):
    """Raised by :class:`FakeExit` where the real process would be gone; ``code`` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class FakeExit:
    """Stand in for the process's exit: remember the code and unwind instead of leaving."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def __call__(self, code: int, /) -> NoReturn:
        self.codes.append(code)
        raise ProcessExited(code)
