"""The deadlines of all executions on one loop timer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from towline.execution.taskrun import TaskRun


class Deadlines:
    """Calls back when a duration has passed; an execution has one deadline at a time.

    The timer stands at the earliest deadline, or before it when that was disarmed; only when it fires are all
    looked at, so arming costs a place in a dict: most bodies end long before (``loop.call_later`` and
    ``asyncio.timeout`` keep a heap for each).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: dict[TaskRun, tuple[float, Callable[[TaskRun], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def arm(self, run: TaskRun, seconds: float, expired: Callable[[TaskRun], None]) -> None:
        """Call ``expired(run)`` in ``seconds``, in the loop's thread, instead of what was armed for it before."""
        at = self._loop.time() + seconds
        self._due[run] = at, expired
        if at < self._timer_at:
            self._set_timer(at)

    def disarm(self, run: TaskRun) -> None:
        """Forget the deadline of an execution; harmless when it has passed or there was none."""
        self._due.pop(run, None)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        now = self._loop.time()
        passed = [(at, run) for run, (at, _) in self._due.items() if at <= now]
        passed.sort(key=lambda one: one[0])
        acts = [(run, self._due.pop(run)[1]) for _, run in passed]
        if self._due:
            self._set_timer(min(at for at, _ in self._due.values()))
        for run, expired in acts:
            expired(run)

    def close(self) -> None:
        """Drop all deadlines and the timer."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
