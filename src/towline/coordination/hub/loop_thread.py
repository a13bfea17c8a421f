"""An event loop on a thread of its own, and calls to it from any other."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from towline.errors.coordination import CoordinatorClosedError

if TYPE_CHECKING:
    from collections.abc import Coroutine

R = TypeVar("R")


class LoopCall(Generic[R]):
    """Something that runs on another loop; its result can be awaited from any."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, R]) -> None:
        self.ended: Future[R] = Future()
        self.ended.set_running_or_notify_cancel()  # who awaits it may be cancelled, which is not the end of it
        self._loop, self._work = loop, work
        self._task: asyncio.Task[R] | None = None
        loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[R]) -> None:
        error = CoordinatorClosedError("a call") if task.cancelled() else task.exception()
        if error is None:
            self.ended.set_result(task.result())
        else:
            self.ended.set_exception(error)

    def cancel(self) -> None:
        """Cancel it; it has ended when ``ended`` says so."""
        try:
            self._loop.call_soon_threadsafe(lambda: self._task is not None and self._task.cancel())
        except RuntimeError:
            return  # the loop is closed, and whatever ran there has ended


class LoopThread:
    """An event loop on a thread of its own; it starts with the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def call(self, work: Coroutine[Any, Any, R]) -> LoopCall[R]:
        """Begin something there; from any thread."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return LoopCall(self._loop, work)

    async def stop(self) -> None:
        """End the loop and join its thread; twice without harm, and before the first call."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()
