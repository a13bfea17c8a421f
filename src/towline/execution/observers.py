"""Telling the user's observers, without letting them hold up the run (RUN-07, RUN-08)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from towline.events.log import DROPPABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from towline.events.records import Event
    from towline.execution.report import RunReport
    from towline.planning.plan import Plan

QUEUE_LIMIT = 10_000
"""Events that wait for one slow observer; beyond, logs and progress are dropped and counted."""

FINISH_LIMIT_S = 30.0


class Observer:
    """Override what you want to hear of. Callbacks get events after they are durable, in order."""

    async def run_started(self, plan: Plan) -> None:
        """Look at the plan before anything runs; raising refuses the run."""

    async def on_event(self, event: Event) -> None:
        """Hear of one event."""

    async def run_finished(self, report: RunReport) -> None:
        """Hear how the run ended; always comes, and has 30 seconds."""


class Observers:
    """Feeds each observer through a queue of its own, in its own asyncio task."""

    def __init__(self, observers: Sequence[Observer], warn: Callable[[str], None]) -> None:
        self._feeds = [_Feed(observer, warn) for observer in observers]
        self._warn = warn

    async def run_started(self, plan: Plan) -> None:
        """Ask each observer before the first dispatch.

        Raises:
            RunRefusedError: One of them raised.
        """
        from towline.errors.run import RunRefusedError

        for feed in self._feeds:
            try:
                await feed.observer.run_started(plan)
            except Exception as error:
                name = type(feed.observer).__name__
                raise RunRefusedError(name, f"{type(error).__name__}: {error}") from error

    def take(self, batch: Sequence[Event]) -> None:
        """Queue a batch for every observer that listens to events."""
        for feed in self._feeds:
            feed.take(batch)

    async def run_finished(self, report: RunReport) -> None:
        """Deliver what is queued and the report."""
        for feed in self._feeds:
            try:
                async with asyncio.timeout(FINISH_LIMIT_S):
                    await feed.finish()
                    await feed.observer.run_finished(report)
            except TimeoutError:
                self._warn(f"the observer {type(feed.observer).__name__} did not finish in {FINISH_LIMIT_S:g} s")
                feed.stop()
            except Exception as error:  # noqa: BLE001 - an observer never changes how a run ended
                self._warn(f"the observer {type(feed.observer).__name__} failed: {type(error).__name__}: {error}")


class _Feed:
    """One observer's queue."""

    def __init__(self, observer: Observer, warn: Callable[[str], None]) -> None:
        self.observer, self._warn, self._name = observer, warn, type(observer).__name__
        self._raised = 0
        self._listens = type(observer).on_event is not Observer.on_event
        self._queue: deque[Event] = deque()
        self._task: asyncio.Task[None] | None = None
        self._dropped = 0

    def take(self, batch: Sequence[Event]) -> None:
        if not self._listens:
            return
        for event in batch:
            if len(self._queue) >= QUEUE_LIMIT and event.kind in DROPPABLE:
                self._dropped += 1
                continue
            self._queue.append(event)
        if self._queue and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._deliver())

    async def _deliver(self) -> None:
        while self._queue:
            event = self._queue.popleft()
            try:
                await self.observer.on_event(event)
            except Exception as error:  # noqa: BLE001 - an observer that raises is logged and kept (RUN-07)
                self._raised += 1
                if self._raised == 1:  # the warning is an event as well: one for each would go on for ever
                    self._warn(f"the observer {self._name} raised at {event.kind}: {error}")

    async def finish(self) -> None:
        if self._task is not None:
            await self._task
        if self._raised > 1:
            self._warn(f"the observer {self._name} raised at {self._raised} events")
        if self._dropped:
            self._warn(f"the observer {self._name} was too slow: {self._dropped} events left out")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
