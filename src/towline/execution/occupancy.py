"""Who holds a slot, and what else it takes to start: rights, being alone, what abandoned bodies keep (SCHED-05..12)."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from towline.execution.ordering import place_of
from towline.execution.retention import Retention
from towline.execution.rights import Rights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from towline.execution.limits import ModuleRules, RunLimits
    from towline.execution.rights import Need
    from towline.planning.records import PlannedTask


class Claim(Enum):
    """The answer to a task that wants to start."""

    TAKEN = auto()
    WAITS = auto()
    """It waits at a right, and comes forward again when that is free."""
    DRAINS = auto()
    """It must be alone: nothing behind it may start before it (SCHED-09)."""


class Occupancy:
    """The slots of a run and the tasks in them.

    ``free_slots``, ``active`` and ``exclusive`` are read by the scheduler at every start.
    """

    def __init__(
        self,
        rules: Mapping[str, ModuleRules],
        limits: RunLimits,
        is_waiting: Callable[[int], bool],
        put_forward: Callable[[int], None],
    ) -> None:
        self.rights = Rights(rules, limits, is_waiting, put_forward)
        self.retention = Retention(limits.parallelism)
        self.free_slots = limits.parallelism
        self.active = 0
        self.exclusive: int | None = None
        self.needs: list[Need | None] = []

    def extend(self, rows: Sequence[PlannedTask]) -> None:
        """Look up what new tasks need."""
        needs = self.rights.needs
        self.needs.extend([needs.get(row.module) for row in rows])

    # -------------------------------------------------------------- taking

    def claim(self, key: int, need: Need, now: float) -> Claim:
        """Take the rights of a task that needs some; its slot is taken by :meth:`occupy`."""
        if need.exclusive and (self.active or self.retention.tasks):
            return Claim.DRAINS
        if not self.rights.take(key, need, now):
            return Claim.WAITS
        if need.exclusive:
            self.exclusive = place_of(key)
        return Claim.TAKEN

    def occupy(self) -> None:
        """Take a slot."""
        self.active += 1
        self.free_slots -= 1

    def find_running(self, task: int) -> None:
        """Count a task that was found running: it holds its slot and rights, whatever the limits say (PLAN-36)."""
        self.occupy()
        need = self.needs[task]
        if need is not None:
            self.rights.take_anyway(task, need)
            if need.exclusive:
                self.exclusive = task

    # -------------------------------------------------------------- giving back

    def leave(self, task: int, abandoned_at: float | None = None) -> None:
        """Take a task off its slot; what an abandoned body holds stays taken (SCHED-12, RUN-23)."""
        self.active -= 1
        need = self.needs[task]
        if abandoned_at is None:
            self.free_slots += 1
            if need is not None:
                self._give_back(task, need)
        else:
            self.retention.add(task, abandoned_at)
            if need is not None:
                self.rights.retain(need)

    def end_abandoned(self, task: int) -> None:
        """Free what an abandoned body held, now that it has ended."""
        slots = self.retention.end(task)
        if slots is None:
            return
        self.free_slots += slots
        need = self.needs[task]
        if need is not None:
            self.rights.end_retention(need)
            self._give_back(task, need)

    def _give_back(self, task: int, need: Need) -> None:
        if self.exclusive == task:
            self.exclusive = None
        self.rights.give_back(task, need)

    def drop(self, task: int) -> None:
        """Forget a ready task that will not start."""
        need = self.needs[task]
        if need is not None:
            self.rights.drop(task, need)

    # -------------------------------------------------------------- abandoned bodies

    def open_extra_slot(self, now: float) -> bool:
        """Open one more slot when abandoned bodies have held all for 5 s (RUN-23)."""
        if not self.retention.open_extra_slot(now):
            return False
        self.free_slots += 1
        return True

    def retaining(self, task: int) -> int | None:
        """Return the abandoned body without whose end this task cannot start (RUN-24)."""
        retained = self.retention.tasks
        need = self.needs[task]
        if self.exclusive is not None and self.exclusive in retained:
            return self.exclusive
        if need is None:
            return None
        if need.exclusive:
            return next(iter(retained))
        right = self.rights.retained_from(need)
        if right is None:
            return None
        return next(holder for holder in self.rights.holders(right) if holder in retained)
