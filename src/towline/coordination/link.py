"""The seam between the contract and a store: one call, and a way to be told that something changed.

Memory, document and Redis are links; :class:`~towline.coordination.client.LinkedCoordinator` is the whole contract
over any of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from towline.coordination.operations import Operation

R = TypeVar("R")


class Watch:
    """One waiter's own notification (COORD-R10). Enter it, *then* read, then wait: nothing can be missed.

    A notification carries no data; whoever waits reads again (COORD-R09). On Redis it may carry a lease (COORD-R11).
    """

    def __init__(self) -> None:
        self._happened = asyncio.Event()

    def notify(self) -> None:
        """Something changed; wakes the waiter, now or at its next wait."""
        self._happened.set()

    async def wait(self, timeout_s: float) -> bool:
        """Return true when notified, false when ``timeout_s`` have passed."""
        if not self._happened.is_set():
            # A timer that sets the event, for wait_for may lose a cancellation (DESIGN decision 1).
            timer = asyncio.get_running_loop().call_later(timeout_s, self._happened.set)
            try:
                await self._happened.wait()
            finally:
                timer.cancel()
            timed_out = asyncio.get_running_loop().time() >= timer.when()
        else:
            timed_out = False
        self._happened.clear()
        return not timed_out

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening."""


class Link(Protocol):
    """Executes operations on one run, atomically each, somewhere."""

    poll_s: float
    """Longest time between two reads of a waiter, should a notification be lost."""

    def call(self, operation: Operation[R]) -> Coroutine[Any, Any, R]:
        """Execute one operation; cancelling it stops the wait, not always the operation (COORD-C80)."""
        ...

    def watch(self, key: str) -> Watch:
        """Return an object that is notified when ``key`` changes while it is entered.

        Keys: ``work`` and ``work@<worker id>``, ``signal``, ``feed``, ``events``, ``outcome:<task id>``.
        """
        ...

    async def aclose(self) -> None:
        """Close connections; calls in flight raise."""
        ...
