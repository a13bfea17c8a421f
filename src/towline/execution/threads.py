"""Body threads: daemon threads that no exit waits for (RUN-22 to 26)."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Callable

T = TypeVar("T")

_here = threading.local()


class ThreadBody(Generic[T]):
    """One call under way in a thread.

    ``done`` belongs to the loop that started it. It is set when the call ends, however late, and its
    error counts as seen: an abandoned body that fails in the end is not reported by asyncio.
    ``clock_hold`` is the claim on a virtual clock, where the loop has one: a body that waits for its loop
    gives the clock back meanwhile (``clock_hold.pause()``), and the loop resumes it before it answers.
    """

    __slots__ = ("_call", "_context", "_loop", "_thread_id", "clock_hold", "done")

    def __init__(
        self, call: Callable[[], T], context: contextvars.Context, loop: asyncio.AbstractEventLoop, clock_hold: Any
    ) -> None:
        self._call, self._context, self._loop = call, context, loop
        self.clock_hold = clock_hold
        self.done: asyncio.Future[T] = loop.create_future()
        self._thread_id: int | None = None

    def is_alive(self) -> bool:
        """Whether the call has not ended."""
        return not self.done.done()

    def top_frame(self) -> str:
        """Say where the thread is now: ``file:line in function``; empty if it has not begun or has ended."""
        ident = self._thread_id
        frame = sys._current_frames().get(ident) if ident is not None else None
        if frame is None:
            return ""
        return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"

    def run(self, free: Callable[[], None]) -> bool:
        """Make the call on this thread and tell the loop; false when the loop is gone."""
        self._thread_id = threading.get_ident()
        _here.body = self
        error: BaseException | None = None
        value: T | None = None
        try:
            value = self._context.run(self._call)
        except BaseException as raised:  # noqa: BLE001 - whatever a body raises belongs to who awaits it
            error = raised
        self._thread_id, _here.body = None, None
        try:
            self._loop.call_soon_threadsafe(self._end, value, error, free)
        except RuntimeError:  # the loop was closed: nobody waits any more
            return False
        finally:
            if self.clock_hold is not None:
                self.clock_hold.release()
        return True

    def _end(self, value: Any, error: BaseException | None, free: Callable[[], None]) -> None:
        free()
        if self.done.cancelled():
            return
        if error is None:
            self.done.set_result(value)
            return
        if isinstance(error, StopIteration):  # no future can carry it
            wrapped = RuntimeError("the body raised StopIteration")
            wrapped.__cause__ = error
            error = wrapped
        self.done.set_exception(error)
        self.done.exception()


def current_body() -> ThreadBody[Any] | None:
    """Return the body that runs on this thread, or ``None`` on any other thread."""
    return getattr(_here, "body", None)


class _Worker(threading.Thread):
    """A thread that makes one call after the other until it is told to leave."""

    def __init__(self, number: int, idle: list[_Worker]) -> None:
        super().__init__(name=f"towline-body-{number}", daemon=True)
        self.bodies: queue.SimpleQueue[ThreadBody[Any] | None] = queue.SimpleQueue()
        self._idle = idle

    def run(self) -> None:
        while (body := self.bodies.get()) is not None:
            if not body.run(self._free):
                return
            del body  # else it would keep the last result until the next call

    def _free(self) -> None:
        self._idle.append(self)


class ThreadPool:
    """Starts calls on daemon threads and uses the threads again.

    They stand outside ``concurrent.futures``, whose exit handler joins its threads: a body that never ends
    would keep the process (RUN-26). There is no queue and no limit: who starts bodies counts slots.
    Use it on the loop's thread only.
    """

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._count = 0

    def start(self, call: Callable[[], T], context: contextvars.Context) -> ThreadBody[T]:
        """Run ``call`` in ``context`` on a thread of its own; returns at once.

        On a loop with virtual time the thread holds the clock while it runs (``hold_clock``).
        """
        loop = asyncio.get_running_loop()
        hold_clock = getattr(loop, "hold_clock", None)
        body = ThreadBody(call, context, loop, hold_clock("a thread body") if hold_clock is not None else None)
        if self._idle:
            worker = self._idle.pop()
        else:
            self._count += 1
            worker = _Worker(self._count, self._idle)
            worker.start()
        worker.bodies.put(body)
        return body

    def close(self) -> None:
        """Let idle threads leave; those with a body leave when their loop is gone. Twice does no harm."""
        while self._idle:
            self._idle.pop().bodies.put(None)
