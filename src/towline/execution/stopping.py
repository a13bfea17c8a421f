"""Bringing the body of a task to its end, at its timeout or when it is cancelled (RUN-20 to 23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.execution.taskrun import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.execution.deadlines import Deadlines
    from towline.execution.taskrun import TaskRun

SECOND_CANCEL_S = 0.1
"""From the second cancel of a coroutine body until it is given up (RUN-21)."""


class Stopper:
    """Ends executions step by step: ask, ask again, give up.

    ``give_up`` is called for a body that ignored both requests: it is abandoned (RUN-23).
    """

    def __init__(self, deadlines: Deadlines, grace_s: float, give_up: Callable[[TaskRun], None]) -> None:
        self._deadlines, self._grace_s, self._give_up = deadlines, grace_s, give_up
        self.disarm = deadlines.disarm
        """The body has ended: neither its timeout nor a step of its stopping matters now."""

    def arm_timeout(self, run: TaskRun) -> None:
        """Start the clock of one attempt's body; a module's 0 means none, and never comes here."""
        self._deadlines.arm(run, run.kind.timeout_s, self._time_out)

    def _time_out(self, run: TaskRun) -> None:
        self.stop(run, "timeout")

    def arm_grace(self, run: TaskRun, then: Callable[[TaskRun], None]) -> None:
        """Call ``then(run)`` when the grace of a stopped body has passed."""
        self._deadlines.arm(run, self._grace_s, then)

    def stop(self, run: TaskRun, why: str) -> None:
        """Ask an execution to end; ``why`` is ``"timeout"`` or a reason code of a cancellation."""
        if not run.ask_to_stop(why):
            return
        self.disarm(run)
        for call in tuple(run.in_flight):
            call.cancel()
        if run.on_stop is not None:
            run.on_stop()
            return
        if run.asyncio_task is not None and run.phase is not Phase.STARTING:
            run.asyncio_task.cancel()
        if run.phase is Phase.BODY:
            self.arm_grace(run, self._ask_again)

    def _ask_again(self, run: TaskRun) -> None:
        if run.phase is not Phase.BODY or run.asyncio_task is None:
            return
        run.asyncio_task.cancel()
        self._deadlines.arm(run, SECOND_CANCEL_S, self._abandon)

    def _abandon(self, run: TaskRun) -> None:
        if run.phase is Phase.BODY:
            self._give_up(run)
