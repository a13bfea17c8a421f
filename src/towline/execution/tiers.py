"""``schedule="tiers"``: a tier starts when every task of the former is final (SCHED-20)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.execution.scheduler_states import FINAL, OUTSIDE, READY

if TYPE_CHECKING:
    from towline.execution.standing import Standing


class Tiers:
    """Which tier may run, and the ready tasks of later ones.

    Always-run tasks are in no tier. A blocked gate and what waits for it count as done with: else
    nothing after them could go on to its end (PLAN-51).
    """

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        standing.counts_closed = True
        self._open: list[int] = []
        self._counted = bytearray()
        self._parked: dict[int, list[int]] = {}
        self._current = 0
        self.extend()

    def extend(self) -> None:
        """Count the tasks that were added to the plan."""
        standing = self._standing
        for place in range(len(self._counted), len(standing.rows)):
            row = standing.rows[place]
            counts = standing.states[place] not in (FINAL, OUTSIDE) and not row.always_run
            self._counted.append(counts)
            if counts:
                self._open.extend([0] * (row.tier + 1 - len(self._open)))
                self._open[row.tier] += 1

    def admit(self, task: int) -> bool:
        """Say whether a ready task may start by its tier; one that may not is kept for later."""
        tier = self._standing.rows[task].tier
        if not self._counted[task] or tier <= self._current:
            return True
        self._parked.setdefault(tier, []).append(task)
        return False

    def is_parked(self, task: int) -> bool:
        """Say whether a task waits for an earlier tier."""
        return task in self._parked.get(self._standing.rows[task].tier, ())

    def advance(self) -> list[int]:
        """Take note of what has ended; returns the tasks whose tier has come."""
        closed = self._standing.closed
        for place in closed:
            if self._counted[place]:
                self._counted[place] = False
                self._open[self._standing.rows[place].tier] -= 1
        closed.clear()
        released: list[int] = []
        while self._current < len(self._open) and not self._open[self._current]:
            self._current += 1
            released.extend(self._parked.pop(self._current, ()))
        return [task for task in released if self._standing.states[task] == READY]
