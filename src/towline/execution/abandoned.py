"""Bodies of this node that ignored their end and still run (RUN-23, RUN-25)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.errors.running import TooManyAbandonedError

if TYPE_CHECKING:
    from towline.execution.taskrun import TaskRun


class AbandonedBodies:
    """Counts them; at ``limit`` no further thread body may start on this node."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: dict[str, TaskRun] = {}

    def add(self, run: TaskRun) -> None:
        """Note a body that was given up."""
        self._runs[run.row.id] = run

    def ended(self, run: TaskRun) -> None:
        """Note that it has ended at last."""
        self._runs.pop(run.row.id, None)

    def refuse_thread(self) -> None:
        """Let a thread body start only while there are not too many.

        Raises:
            TooManyAbandonedError: It names each body and where it was last seen.
        """
        if len(self._runs) >= self._limit:
            seen = tuple((task, run.body.top_frame() if run.body else "") for task, run in self._runs.items())
            raise TooManyAbandonedError(self._limit, seen)
