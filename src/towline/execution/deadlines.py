"""Many deadlines on one loop timer: a first-in-first-out queue per duration."""

# ruff: noqa: TC004 - the record is never decoded, so its annotations need no imports at start-up.

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Deadline(msgspec.Struct):
    """One armed deadline; ``expired`` is called once, unless it is disarmed before."""

    at: float
    expired: Callable[[], None] | None

    def disarm(self) -> None:
        """Forget the deadline; harmless when it has passed."""
        self.expired = None


class Deadlines:
    """Calls back when a duration has passed.

    Deadlines of one duration pass in the order in which they were armed, so each duration needs only a
    queue, and all of them one timer: 1.1 µs a deadline where ``loop.call_later`` costs 3.8 and
    ``asyncio.timeout`` 6.9 (benchmarks/README.md).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[float, deque[Deadline]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def arm(self, seconds: float, expired: Callable[[], None]) -> Deadline:
        """Call ``expired`` in ``seconds``, in the loop's thread, unless disarmed."""
        deadline = Deadline(self._loop.time() + seconds, expired)
        queue = self._queues.get(seconds)
        if queue is None:
            queue = self._queues[seconds] = deque()
        while queue and queue[0].expired is None:
            queue.popleft()
        queue.append(deadline)
        if deadline.at < self._timer_at:
            self._set_timer(deadline.at)
        return deadline

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        now = self._loop.time()
        due: list[Callable[[], None]] = []
        earliest = float("inf")
        for seconds, queue in list(self._queues.items()):
            while queue and (queue[0].expired is None or queue[0].at <= now):
                expired = queue.popleft().expired
                if expired is not None:
                    due.append(expired)
            if queue:
                earliest = min(earliest, queue[0].at)
            else:
                del self._queues[seconds]
        if earliest < float("inf"):
            self._set_timer(earliest)
        for expired in due:
            expired()

    def close(self) -> None:
        """Drop all deadlines and the timer."""
        self._queues.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
