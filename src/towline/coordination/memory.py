"""The ledger behind asyncio: a coordinator for one process, under real or virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from towline.clock.clock import SystemClock
from towline.coordination.client import LinkedCoordinator
from towline.coordination.ledger.apply import apply
from towline.coordination.ledger.state import LedgerState
from towline.coordination.link import Watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.clock.clock import Clock
    from towline.coordination.operations import Operation

R = TypeVar("R")

POLL_S = 2.0
TICK_S, STALL_S = 1.0, 3.0
"""How often a hub says that its loop turns, and after how long without that its time has stood still."""


class MemoryRun:
    """One run's ledger, its time, and those who wait on it. Operations are atomic: nothing here suspends.

    Time is the wall time of the start plus the loop's own, so that a stepped wall clock expires no lease
    (COORD-C07) and a virtual loop governs everything. For workers of other processes it stands still while this loop
    does, blocked or stopped: what they sent meanwhile is unread, and they must not lose their leases by that (COORD-C47).
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.state = LedgerState()
        self._clock = clock or SystemClock()
        self._epoch_ms: float | None = None
        self._ticked_ms: float | None = None
        self._stood_ms = 0.0
        self._watches: dict[str, dict[MemoryWatch, None]] = {}

    def now_ms(self) -> int:
        """Return the back end's time in milliseconds."""
        loop_ms = asyncio.get_running_loop().time() * 1000
        if self._epoch_ms is None:
            self._epoch_ms = self._clock.now() * 1000 - loop_ms
        if self._ticked_ms is not None:
            self._tick(loop_ms)
        return int(self._epoch_ms + loop_ms - self._stood_ms)

    def tick(self) -> None:
        """Say that the loop turns; once begun, every :data:`TICK_S`."""
        self._tick(asyncio.get_running_loop().time() * 1000)

    def _tick(self, loop_ms: float) -> None:
        gap_ms = 0.0 if self._ticked_ms is None else loop_ms - self._ticked_ms
        if gap_ms > STALL_S * 1000:
            self._stood_ms += gap_ms
        self._ticked_ms = loop_ms

    def apply(self, operation: Operation[R]) -> R:
        """Execute one operation and wake whom it concerns, in the order of their arrival."""
        reply, effects = apply(self.state, operation, self.now_ms())
        for key in effects.wake:
            for watch in self._watches.get(key, ()):
                watch.notify()
        return reply

    def listen(self, watch: MemoryWatch) -> None:
        """Add a waiter."""
        self._watches.setdefault(watch.key, {})[watch] = None

    def unlisten(self, watch: MemoryWatch) -> None:
        """Remove a waiter; twice without harm."""
        others = self._watches.get(watch.key)
        if others is not None:
            others.pop(watch, None)
            if not others:
                del self._watches[watch.key]


class MemoryWatch(Watch):
    """A waiter of this process."""

    def __init__(self, run: MemoryRun, key: str) -> None:
        super().__init__()
        self.key = "work" if key.startswith("work@") else key
        self._run = run

    async def __aenter__(self) -> MemoryWatch:
        self._run.listen(self)
        return self

    def close(self) -> None:
        self._run.unlisten(self)


class MemoryLink:
    """Calls the ledger of this process."""

    def __init__(self, run: MemoryRun, poll_s: float = POLL_S) -> None:
        self.poll_s = poll_s
        self._run = run

    async def call(self, operation: Operation[R]) -> R:
        """Apply at once."""
        return self._run.apply(operation)

    def watch(self, key: str) -> Watch:
        """Listen to the run's changes."""
        return MemoryWatch(self._run, key)

    async def aclose(self) -> None:
        """Nothing is open."""


class MemoryCoordinators:
    """The ``memory:`` factory: master and workers of one process share its runs. For one event loop."""

    def __init__(self, clock: Clock | None = None, *, poll_s: float = POLL_S) -> None:
        self._clock, self._poll_s = clock, poll_s
        self._runs: dict[str, MemoryRun] = {}

    def run(self, run_id: str) -> MemoryRun:
        """Return the ledger of a run, made on first use."""
        if run_id not in self._runs:
            self._runs[run_id] = MemoryRun(self._clock)
        return self._runs[run_id]

    async def create_master(self, run_id: str) -> LinkedCoordinator:
        """Make the master's coordinator."""
        return LinkedCoordinator(MemoryLink(self.run(run_id), self._poll_s), run_id)

    async def create_worker(self, run_id: str) -> LinkedCoordinator:
        """Make a worker's coordinator."""
        return LinkedCoordinator(MemoryLink(self.run(run_id), self._poll_s), run_id)

    async def live_runs(self, program: str) -> Sequence[str]:
        """Return the open runs of a program, oldest first."""
        return [
            run_id
            for run_id, run in self._runs.items()
            if run.state.opening is not None and run.state.opening.program == program and not run.state.completed
        ]
