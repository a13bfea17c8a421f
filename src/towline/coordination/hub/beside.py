"""A hub coordinator on a thread of its own, for callers on any loop (DIST-21).

The worker's loop and that of its heartbeats share one connection, for a session has one (COORD-H06); and a body that
blocks the worker's loop keeps neither from being heard (RUN-29).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from towline.coordination.contract import WorkerCoordinator
from towline.coordination.hub.client import ABANDON_LIMIT_S
from towline.coordination.records import Lease
from towline.errors.coordination import CoordinationError, CoordinatorClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from towline.coordination.hub.client import HubCoordinator
    from towline.coordination.hub.loop_thread import LoopCall, LoopThread
    from towline.coordination.records import (
        ClaimReply,
        EventBatch,
        EventsReply,
        HeartbeatReply,
        LeaseRef,
        OutcomeRecord,
        PublishReply,
        RunState,
        SessionRef,
        WorkerRegistration,
        WorkerStatus,
    )
    from towline.coordination.signals import Signal

R = TypeVar("R")

LATE_REPLIES = 3
"""How often a lease that lay unread is asked for again."""


class BesideCoordinator(WorkerCoordinator):
    """Calls a :class:`HubCoordinator` on its thread. One of several doors to it, each closed by its own user."""

    def __init__(
        self, hub: HubCoordinator, thread: LoopThread, closed: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._hub, self._thread, self._on_closed = hub, thread, closed
        self._closing = asyncio.Event()

    async def _run(self, work: Coroutine[Any, Any, R]) -> R:
        return await self._finish(self._begin(work))

    def _begin(self, work: Coroutine[Any, Any, R]) -> LoopCall[R]:
        if self._closing.is_set():
            work.close()
            raise CoordinatorClosedError("a call")
        return self._thread.call(work)

    async def _finish(self, call: LoopCall[R]) -> R:
        """Return a call's result; cancel it when its caller is cancelled, or this door is closed."""
        answer: asyncio.Future[Any] = asyncio.wrap_future(call.ended)
        answer.add_done_callback(_seen)
        closing: asyncio.Future[Any] = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([answer, closing], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise CoordinatorClosedError("a call")
            result: R = answer.result()
            return result
        finally:
            closing.cancel()
            if not answer.done():
                answer.cancel()
                call.cancel()

    async def register(self, registration: WorkerRegistration) -> RunState:
        return await self._run(self._hub.register(registration))

    # ------------------------------------------------------------------ claims

    async def claim(self, worker: SessionRef, *, token: str, wait_s: float | None) -> ClaimReply:
        async def ask() -> tuple[ClaimReply, float]:
            return await self._hub.claim(worker, token=token, wait_s=wait_s), _now()

        reply, answered_at = await self._finish_claim(worker, self._begin(ask()), lambda found: found[0])
        return await self._living(worker, token, reply, answered_at)

    async def publish_and_claim(
        self,
        outcome: OutcomeRecord,
        *,
        lease: LeaseRef,
        events: EventBatch | None = None,
        worker: SessionRef,
        token: str,
    ) -> tuple[PublishReply, ClaimReply]:
        async def ask() -> tuple[PublishReply, ClaimReply, float]:
            both = await self._hub.publish_and_claim(outcome, lease=lease, events=events, worker=worker, token=token)
            return *both, _now()

        call = self._begin(ask())
        published, reply, answered_at = await self._finish_claim(worker, call, lambda found: found[1])
        return published, await self._living(worker, token, reply, answered_at)

    async def _living(self, worker: SessionRef, token: str, reply: ClaimReply, answered_at: float) -> ClaimReply:
        """Ask again for a lease that lay unread while a body blocked this loop: another may have it by now."""
        for _ in range(LATE_REPLIES):
            if not isinstance(reply, Lease) or (_now() - answered_at) * 1000 < reply.expires_in_ms / 2:
                break
            call = self._begin(self._hub.claim(worker, token=token, wait_s=0))
            answered_at = _now()
            reply = await self._finish_claim(worker, call, lambda found: found)
        return reply

    async def _finish_claim(self, worker: SessionRef, call: LoopCall[R], reply_of: Callable[[R], ClaimReply]) -> R:
        """Return a claim's result; when its caller is cancelled, a lease that was granted meanwhile is given back."""
        try:
            return await self._finish(call)
        except asyncio.CancelledError:
            from anyio import CancelScope

            with CancelScope(shield=True) as scope:
                scope.deadline = asyncio.get_running_loop().time() + 2 * ABANDON_LIMIT_S
                await self._give_back(worker, call, reply_of)
            raise

    async def _give_back(self, worker: SessionRef, call: LoopCall[R], reply_of: Callable[[R], ClaimReply]) -> None:
        """A claim that was cancelled in time has done this itself; one whose answer crossed the cancel has not."""
        try:
            reply = reply_of(await asyncio.wrap_future(call.ended))
            if isinstance(reply, Lease):
                await self._run(self._hub.release(worker, reply.ref, started=False))
        except CoordinationError:
            return  # nothing was granted, or it runs out: nobody renews it

    async def release(self, worker: SessionRef, lease: LeaseRef, *, started: bool) -> bool:
        return await self._run(self._hub.release(worker, lease, started=started))

    # ------------------------------------------------------------------ the rest

    async def heartbeat(self, status: WorkerStatus) -> HeartbeatReply:
        return await self._run(self._hub.heartbeat(status))

    async def publish_outcome(
        self, outcome: OutcomeRecord, *, lease: LeaseRef | None, events: EventBatch | None = None
    ) -> PublishReply:
        return await self._run(self._hub.publish_outcome(outcome, lease=lease, events=events))

    async def send_events(self, batch: EventBatch) -> EventsReply:
        return await self._run(self._hub.send_events(batch))

    async def wait_for_work(self, *, seen: int) -> int:
        return await self._run(self._hub.wait_for_work(seen=seen))

    async def wait_for_outcome(self, task_id: str) -> OutcomeRecord:
        return await self._run(self._hub.wait_for_outcome(task_id))

    async def wait_for_signal(self, *, seen: Signal) -> Signal:
        return await self._run(self._hub.wait_for_signal(seen=seen))

    async def run_state(self) -> RunState:
        return await self._run(self._hub.run_state())

    async def aclose(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        await self._on_closed()


def _now() -> float:
    """Return the time of any loop: all of them show the same."""
    return asyncio.get_running_loop().time()


def _seen(answer: asyncio.Future[Any]) -> None:
    """Look at an answer that its caller may not await any more, so that nobody is warned of it."""
    if not answer.cancelled():
        answer.exception()
