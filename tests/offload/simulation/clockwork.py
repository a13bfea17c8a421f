"""Time that a simulation turns by hand: the part of an event loop that the shells need."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any


class Handle:
    """A callback that may be cancelled."""

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.callback, self.args, self.cancelled = callback, args, False

    def cancel(self) -> None:
        self.cancelled = True


class Deadlock(Exception):
    """Nothing is ready and no timer is set, and the world has not come to its end."""


class Clockwork:
    """Runs callbacks in the order of their moments, ties in the order in which they were asked for."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._heap: list[tuple[float, int, Handle]] = []
        self._ready: deque[Handle] = deque()
        self._count = 0
        self.events = 0

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Handle:
        handle = Handle(callback, args)
        self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Handle:
        handle = Handle(callback, args)
        self._count += 1
        heapq.heappush(self._heap, (max(when, self._now), self._count, handle))
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Handle:
        return self.call_at(self._now + delay, callback, *args)

    def run_until(self, done: Callable[[], bool], limit_s: float) -> None:
        """Run until ``done``; raises ``Deadlock`` when nothing is left to run, ``TimeoutError`` at the limit."""
        end = self._now + limit_s
        while not done():
            if not self._step(end):
                raise TimeoutError(f"not done after {limit_s:g} virtual seconds")

    def run_for(self, seconds: float) -> None:
        end = self._now + seconds
        while self._step(end):
            pass
        self._now = end

    def _step(self, end: float) -> bool:
        if self._ready:
            handle = self._ready.popleft()
        else:
            while self._heap and self._heap[0][2].cancelled:
                heapq.heappop(self._heap)
            if not self._heap:
                raise Deadlock("nothing is ready and no timer is set")
            if self._heap[0][0] > end:
                return False
            self._now, _, handle = heapq.heappop(self._heap)
        if not handle.cancelled:
            self.events += 1
            handle.callback(*handle.args)
        return True


class PausedClock:
    """The clockwork as one process sees it that is stopped now and then: its callbacks wait until it goes on."""

    def __init__(self, clock: Clockwork) -> None:
        self._clock = clock
        self.paused_until = 0.0

    def time(self) -> float:
        return self._clock.time()

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Handle:
        return self._clock.call_soon(self._guard(callback), *args)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Handle:
        return self._clock.call_at(when, self._guard(callback), *args)

    def _guard(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> None:
            if self._clock.time() < self.paused_until:
                self._clock.call_at(self.paused_until, run, *args)
            else:
                callback(*args)

        return run
