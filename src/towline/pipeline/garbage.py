"""Keeping the garbage collector off what lives as long as a run."""

from __future__ import annotations

import atexit
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def collections_paused() -> Iterator[None]:
    """Hold collections while modules are loaded or a plan is built: each would walk all of it, and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


LARGE_PLAN_TASKS = 1_000
"""Below it a full collection costs less than a millisecond."""


class HeapAside:
    """Takes a large plan out of the collector's sight while it runs: it lives to the end anyway.

    Each full collection would walk all of it, 5 µs per task, and find nothing (``gc.freeze``).
    """

    def __init__(self) -> None:
        self._is_ours = False

    def take(self, tasks: int) -> None:
        """Set aside what exists by now, for a plan of so many tasks; nothing if other code has frozen the heap.

        Belongs at the end of a pause: the first collection after it would walk everything that is new.
        """
        if tasks >= LARGE_PLAN_TASKS and (self._is_ours or not gc.get_freeze_count()):
            self._is_ours = True
            gc.freeze()
            # The modules of a large plan live to the end of the process, whose last collections find nothing either.
            atexit.unregister(gc.freeze)
            atexit.register(gc.freeze)

    def give_back(self) -> None:
        """Let the collector see everything again; a second call does nothing."""
        if self._is_ours:
            self._is_ours = False
            gc.unfreeze()
