"""Abandoned bodies: their slots and rights stay taken until they end (RUN-23, RUN-24)."""

from __future__ import annotations

from typing import Final

EXTRA_SLOT_AFTER_S: Final = 5.0
"""How long abandoned bodies may hold every slot before one more is opened."""

FAIL_WAITERS_AFTER_S: Final = 60.0
"""How long a task waits for a right that only an abandoned body can give back."""

LOOK_EVERY_S: Final = 1.0
"""How often the waiting tasks are looked through: each look costs as many steps as there are of them."""


class Retention:
    """Which bodies were abandoned, and what is owed to the others because of them.

    ``tasks`` are the abandoned ones; ``extra_slots`` were opened in their stead.
    """

    def __init__(self, parallelism: int) -> None:
        self.tasks: dict[int, float] = {}
        self.extra_slots = 0
        self._parallelism = parallelism
        self._full_since: float | None = None
        self._noticed: dict[int, float] = {}
        self._look_at = 0.0

    def add(self, task: int, now: float) -> None:
        """Note an abandoned body."""
        self.tasks[task] = now
        if self._full_since is None and len(self.tasks) >= self._parallelism + self.extra_slots:
            self._full_since = now

    def end(self, task: int) -> int | None:
        """Note that a body has ended at last; returns the slots that this frees, ``None`` if it was not abandoned.

        An extra slot is closed instead, if there is one.
        """
        if self.tasks.pop(task, None) is None:
            return None
        self._full_since = None
        if self.extra_slots:
            self.extra_slots -= 1
            return 0
        return 1

    def open_extra_slot(self, now: float) -> bool:
        """Open one more slot if all have been held by abandoned bodies for 5 s."""
        if self._full_since is None or now < self._full_since + EXTRA_SLOT_AFTER_S:
            return False
        self._full_since = None
        self.extra_slots += 1
        return True

    def must_look(self, now: float, is_idle: bool) -> bool:
        """Say whether it is time to look for tasks that wait in vain."""
        if not self.tasks or (now < self._look_at and not is_idle):
            return False
        self._look_at = now + LOOK_EVERY_S
        return True

    def waits_in_vain(self, task: int, now: float) -> bool:
        """Say whether a task that needs retained rights has waited long enough; the first call starts its time."""
        return now >= self._noticed.setdefault(task, now) + FAIL_WAITERS_AFTER_S

    def wake_at(self, now: float) -> float:
        """Return when something may be due next."""
        look_at = max(now, self._look_at)
        if self._full_since is None:
            return look_at
        return min(look_at, self._full_since + EXTRA_SLOT_AFTER_S)
