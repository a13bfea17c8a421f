"""When a worker process that died is started again (DIST-12)."""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 5.0
RESTART_LIMIT: Final = 3
"""How often one worker is started again in one run."""


class Restarts:
    """Counts the deaths of each worker."""

    def __init__(self, limit: int = RESTART_LIMIT) -> None:
        self._limit = limit
        self._deaths: dict[str, int] = {}

    def pause_s(self, worker_id: str) -> float | None:
        """Count a death; returns the seconds until the next start, ``None`` when there is none any more."""
        deaths = self._deaths[worker_id] = self._deaths.get(worker_id, 0) + 1
        return None if deaths > self._limit else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (deaths - 1))
