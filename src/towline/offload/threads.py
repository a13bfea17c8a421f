"""Kernels in threads of this process: a fixed set, fed by one queue, that wakes the loop once per batch (OFF-112, OFF-113).

Kernels that have proven to be shorter than the way to a thread and back run in the loop, between two of its turns.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

from towline.clock import SystemClock
from towline.offload.messages import ErrorReport
from towline.offload.quick import QuickKernels
from towline.offload.work import Work, run_here

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from towline.offload.arrays import Array


TURN_S = 0.002
"""How long quick kernels may hold one turn of the loop."""


class ThreadRunner:
    """Runs work in up to ``count`` threads, in the order in which it was started; quick kernels overtake.

    Work may be queued beyond the number of threads. A run that passes its limit is given up: its thread
    cannot be killed, so its slot is gone, which ``on_slot_lost`` is told.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int, on_slot_lost: Callable[[], None]) -> None:
        self._loop, self._count, self._on_slot_lost = loop, count, on_slot_lost
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._done: deque[tuple[Work, list[Array] | ErrorReport, float]] = deque()
        self._started: dict[int, tuple[Work, float]] = {}
        self._quick = QuickKernels()
        self._here: deque[Work] = deque()
        self._here_asked = False
        self._threads = 0
        self._abandoned = 0
        self._woken = False
        self._closed = False

    def start(self, work: Work) -> None:
        """Queue a run."""
        if self._quick.is_quick(work):
            self._here.append(work)
            self._ask_here()
            return
        if self._threads < max(self._count, self._abandoned + 1):
            self._threads += 1
            threading.Thread(target=self._serve, name=f"towline-kernel-{self._threads}", daemon=True).start()
        if work.limit_s is not None:
            self._loop.call_later(work.limit_s, self._check_limit, work)
        self._queue.put(work)

    def stop(self, work: Work) -> None:
        """Tell the kernel; a thread cannot be ended."""
        work.cancel.set()

    def close(self) -> None:
        """Let the threads end when they are idle; what they still bring is dropped."""
        self._closed = True
        self._here.clear()
        for _ in range(self._threads):
            self._queue.put(None)

    def _ask_here(self) -> None:
        if not self._here_asked:
            self._here_asked = True
            self._loop.call_soon(self._run_here)

    def _run_here(self) -> None:
        """Run quick kernels; those that their results let start are among them, as long as the turn lasts."""
        clock = SystemClock.monotonic
        turn_began = clock()
        while self._here and not self._closed:
            work = self._here.popleft()
            began = clock()
            outcome = run_here(work)
            ended = clock()
            self._quick.observe(work, ended - began, in_loop=True)
            self._tell(work, outcome, ended - began)
            if ended - turn_began > TURN_S:
                break
        self._here_asked = False
        if self._here:
            self._ask_here()

    def _serve(self) -> None:
        clock, queue, done, started = SystemClock.monotonic, self._queue, self._done, self._started
        me = threading.get_ident()
        while (work := queue.get()) is not None:
            began = clock()
            if work.limit_s is not None:
                started[me] = (work, clock())
            outcome = run_here(work)
            done.append((work, outcome, clock() - began))
            if work.limit_s is not None:
                started.pop(me, None)
            del work, outcome  # this thread may wait for long: it must not keep the arrays of its last run
            # One wake-up serves all that ends before the loop comes round. Setting the flag before the
            # call means that at worst one wake-up finds nothing; the other order could lose one.
            if not self._woken:
                self._woken = True
                try:
                    self._loop.call_soon_threadsafe(self._drain)
                except RuntimeError:  # the loop is closed: nobody waits for this any more
                    return

    def _drain(self) -> None:
        self._woken = False
        while self._done:
            work, outcome, seconds = self._done.popleft()
            if work.settled:
                self._abandoned -= 1  # it came back after all
            if work.settled or self._closed:
                continue
            self._quick.observe(work, seconds, in_loop=False)
            self._tell(work, outcome, seconds)

    def _tell(self, work: Work, outcome: list[Array] | ErrorReport, seconds: float) -> None:
        work.settled = True
        if isinstance(outcome, ErrorReport):
            work.on_failed(outcome, seconds)
        else:
            work.on_done(outcome, seconds)

    def _check_limit(self, work: Work) -> None:
        if work.settled or self._closed:
            return
        began = next((at for running, at in list(self._started.values()) if running is work), None)
        assert work.limit_s is not None
        if began is None:  # it waited in the queue; its time begins when it does
            self._loop.call_later(work.limit_s, self._check_limit, work)
            return
        elapsed = SystemClock.monotonic() - began
        if elapsed < work.limit_s:
            self._loop.call_later(work.limit_s - elapsed, self._check_limit, work)
            return
        work.cancel.set()
        work.settled = True
        self._abandoned += 1  # its slot is gone; if it was the last one, another thread takes its place
        self._on_slot_lost()
        work.on_failed(
            ErrorReport("time_limit", "TimeLimit", f"its thread was abandoned after {elapsed:.3f} s"), elapsed
        )
