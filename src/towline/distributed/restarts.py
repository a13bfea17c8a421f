"""When a worker process that died is started again (DIST-12)."""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 5.0
RESTART_LIMIT: Final = 3
"""How often one worker is started again that died before it had taken a task, or without one."""


class Restarts:
    """Counts the deaths of each worker that had nothing to do.

    One that dies over a task could live here: that death is the task's, and its requeue limit bounds how many there are.
    So one task that kills its process does not use up what the rest of the run needs.
    """

    def __init__(self, limit: int = RESTART_LIMIT) -> None:
        self._limit = limit
        self._deaths: dict[str, int] = {}

    def pause_s(self, worker_id: str, *, had_task: bool = False) -> float | None:
        """Count a death; returns the seconds until the next start, ``None`` when there is none any more."""
        if had_task:
            self._deaths.pop(worker_id, None)
            return FIRST_PAUSE_S
        deaths = self._deaths[worker_id] = self._deaths.get(worker_id, 0) + 1
        return None if deaths > self._limit else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (deaths - 1))
