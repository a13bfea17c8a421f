"""Seeing from another thread that a body blocks the loop, and what may be done about it (RUN-27, RUN-28)."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from towline.clock import Clock
    from towline.execution.taskrun import TaskRun

FRAMES_SHOWN = 12


class Watchdog:
    """Asks the loop to answer and reports when it does not.

    While C code holds the interpreter's lock no thread of the process runs, this one included: then it
    reports afterwards. ``warn`` is called from the watchdog's thread. ``expire`` is called, likewise, when
    the blocking body is past its timeout plus ``grace_s``; ``None`` where the process is not ours to end.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        runs: Mapping[str, TaskRun],
        clock: Clock,
        warning_s: float,
        grace_s: float,
        warn: Callable[[str], None],
        expire: Callable[[TaskRun, str], None] | None,
    ) -> None:
        self._loop, self._runs, self._clock = loop, runs, clock
        self._warning_s, self._grace_s, self._warn, self._expire = warning_s, grace_s, warn, expire
        self._loop_thread = threading.get_ident()
        self._answered = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watch from now on; 0 seconds means never."""
        if self._warning_s > 0:
            self._thread = threading.Thread(target=self._watch, name="towline-watchdog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop watching; harmless twice and before the start."""
        self._stopping.set()
        self._answered.set()

    def _watch(self) -> None:
        while not self._stopping.wait(self._warning_s / 2):
            self._answered.clear()
            try:
                self._loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:  # the loop is closed
                return
            asked_at = self._clock.monotonic()
            limit_s = self._warning_s
            while not self._answered.wait(limit_s):
                self._report(self._clock.monotonic() - asked_at)
                limit_s *= 2  # at doubling intervals, so that a long block does not flood the log

    def _report(self, blocked_s: float) -> None:
        run = self._blocking_run()
        stack = self._stack()
        who = f"{run.row.id} has" if run is not None else "something has"
        self._warn(
            f"{who} blocked the event loop for {blocked_s:.1f} s: nothing else runs meanwhile. Make the body "
            f'await, or declare it as a plain function (a thread) or with isolation="process". It is at:\n{stack}'
        )
        if run is None or self._expire is None or not run.kind.timeout_s or run.started_at is None:
            return
        ran_s = self._clock.now() - run.started_at
        if ran_s > run.kind.timeout_s + self._grace_s:
            self._expire(run, stack)

    def _blocking_run(self) -> TaskRun | None:
        current = asyncio.current_task(self._loop)
        return next((run for run in tuple(self._runs.values()) if run.asyncio_task is current), None)

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return "(the loop's thread is gone)"
        return "".join(traceback.format_list(traceback.extract_stack(frame)[-FRAMES_SHOWN:])).rstrip()
