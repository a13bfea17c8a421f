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

    def arm_timeout(self, run: TaskRun) -> None:
        """Start the clock of one attempt's body; 0 means none."""
        if run.kind.timeout_s:
            run.deadline = self._deadlines.arm(run.kind.timeout_s, lambda: self.stop(run, "timeout"))

    def arm_grace(self, run: TaskRun, then: Callable[[], None]) -> None:
        """Call ``then`` when the grace of a stopped body has passed."""
        run.deadline = self._deadlines.arm(self._grace_s, then)

    def disarm(self, run: TaskRun) -> None:
        """The body has ended: neither its timeout nor a step of its stopping matters now."""
        deadline = run.deadline
        if deadline is not None:
            deadline.expired = None  # as `disarm` does: one call less for every body
            run.deadline = None

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
            self.arm_grace(run, lambda: self._ask_again(run))

    def _ask_again(self, run: TaskRun) -> None:
        if run.phase is not Phase.BODY or run.asyncio_task is None:
            return
        run.asyncio_task.cancel()
        run.deadline = self._deadlines.arm(SECOND_CANCEL_S, lambda: self._abandon(run))

    def _abandon(self, run: TaskRun) -> None:
        if run.phase is Phase.BODY:
            self._give_up(run)
