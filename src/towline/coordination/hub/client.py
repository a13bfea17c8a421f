"""The worker's coordinator over a line to its hub."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from towline.coordination.checks import check_outcome, check_registration, check_status
from towline.coordination.contract import WorkerCoordinator
from towline.coordination.hub.line import Line
from towline.coordination.hub.messages import (
    AskRunState,
    Claim,
    Heartbeat,
    Hello,
    PublishAndClaim,
    PublishOutcome,
    Register,
    Release,
    SendEvents,
    WaitForOutcome,
    WaitForSignal,
    WaitForWork,
)
from towline.coordination.records import Closed, Lease, NoWork
from towline.errors.coordination import CoordinationError, MasterLostError, RecordRefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from towline.coordination.hub.line import OpenRequest
    from towline.coordination.hub.messages import Ask, ClaimAnswer, PublishedAndClaimed
    from towline.coordination.hub.wire import Wire
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

ABANDON_LIMIT_S = 1.0
"""How long a cancelled claim may take to give back what it was granted (COORD-C33)."""


class HubCoordinator(WorkerCoordinator):
    """Speaks for one session over one connection at a time; keeps what it holds over a break of the connection.

    For one event loop; :class:`~towline.coordination.hub.beside.BesideCoordinator` serves several from a thread.
    """

    def __init__(
        self,
        run_id: str,
        open_wire: Callable[[], Awaitable[Wire]],
        *,
        token: str | None = None,
        lost_after_s: float = 60.0,
        random: Random | None = None,
    ) -> None:
        self.run_id = run_id
        self._token = token
        self._line = Line(run_id, open_wire, self._greeting, lost_after_s=lost_after_s, random=random)
        self._registration: WorkerRegistration | None = None
        self._held: dict[tuple[str, int], LeaseRef] = {}
        self._claiming: dict[SessionRef, str] = {}
        self._completed = False

    def _greeting(self) -> Hello:
        """Say who this is and what it holds: the hub takes back whatever is not named (COORD-C10, H08)."""
        registration = self._registration
        if registration is not None:
            registration = msgspec.structs.replace(registration, held=tuple(self._held.values()))
        return Hello(
            library="" if registration is None else registration.library,
            run_id=self.run_id,
            registration=registration,
            token=self._token,
            claiming=None if registration is None else self._claiming.get(registration.ref),
        )

    # ------------------------------------------------------------------ session

    async def register(self, registration: WorkerRegistration) -> RunState:
        check_registration(registration, self.run_id)
        state: RunState = await self._line.ask(Register(registration))
        if self._registration is None or self._registration.ref != registration.ref:
            self._held = {(lease.task_id, lease.epoch): lease for lease in registration.held}
        self._registration = registration
        return self._noted(state)

    async def run_state(self) -> RunState:
        return self._noted(await self._line.ask(AskRunState()))

    def _noted(self, state: RunState) -> RunState:
        self._completed = state.state == "completed"
        if state.master_timeout_ms:
            self._line.lost_after_s = state.master_timeout_ms / 1000
        return state

    async def heartbeat(self, status: WorkerStatus) -> HeartbeatReply:
        check_status(status, 1 if self._registration is None else self._registration.parallelism)
        reply: HeartbeatReply = await self._line.ask(Heartbeat(status))
        self._completed |= reply.completed
        for lost in reply.lost:
            self._held.pop((lost.task_id, lost.epoch), None)
        return reply

    # ------------------------------------------------------------------ claims

    async def claim(self, worker: SessionRef, *, token: str, wait_s: float | None) -> ClaimReply:
        if worker in self._claiming:
            raise CoordinationError(f"{worker.worker_id} has a claim pending. Make one claim at a time per session.")
        self._claiming[worker] = token
        try:
            answer: ClaimAnswer = await self._ask_to_claim(worker, Claim(worker, token, wait_s), lambda found: found)
        except MasterLostError:
            return Closed("completed" if self._completed else "master_lost")  # COORD-H11
        finally:
            del self._claiming[worker]
        return self._taken(answer.reply)

    async def _ask_to_claim(self, worker: SessionRef, ask: Ask, claimed: Callable[[Any], ClaimAnswer]) -> Any:
        """Send a request that may be granted a lease; when it is cancelled, nobody is left holding that (COORD-C33)."""
        request = self._line.start(ask)
        try:
            await asyncio.wait([request.answer])
        except asyncio.CancelledError:
            await self._abandon(worker, request, claimed)
            raise
        return request.answer.result()

    async def _abandon(self, worker: SessionRef, request: OpenRequest, claimed: Callable[[Any], ClaimAnswer]) -> None:
        from anyio import CancelScope

        with CancelScope(shield=True) as scope:
            scope.deadline = asyncio.get_running_loop().time() + ABANDON_LIMIT_S
            self._line.cancel(request)
            await asyncio.wait([request.answer])
            if request.answer.exception() is None:
                lease = claimed(request.answer.result()).lease
                if lease is not None:
                    await self._line.ask(Release(worker, lease.ref, started=False))
        self._line.forget(request)

    def _taken(self, reply: ClaimReply) -> ClaimReply:
        if isinstance(reply, Lease):
            self._held[reply.task_id, reply.epoch] = reply.ref
        elif isinstance(reply, Closed):
            self._completed |= reply.why == "completed"
        return reply

    async def release(self, worker: SessionRef, lease: LeaseRef, *, started: bool) -> bool:
        released: bool = await self._line.ask(Release(worker, lease, started))
        self._held.pop((lease.task_id, lease.epoch), None)
        return released

    # ------------------------------------------------------------------ outcomes

    async def publish_outcome(
        self, outcome: OutcomeRecord, *, lease: LeaseRef | None, events: EventBatch | None = None
    ) -> PublishReply:
        outcome = self._checked(outcome, lease)
        assert lease is not None
        reply: PublishReply = await self._line.ask(PublishOutcome(outcome, lease, events))
        self._held.pop((lease.task_id, lease.epoch), None)
        return reply

    async def publish_and_claim(
        self,
        outcome: OutcomeRecord,
        *,
        lease: LeaseRef,
        events: EventBatch | None = None,
        worker: SessionRef,
        token: str,
    ) -> tuple[PublishReply, ClaimReply]:
        outcome = self._checked(outcome, lease)
        if worker in self._claiming:
            # Another slot of this worker is asking already: only one claim at a time (COORD-C35).
            return await self.publish_outcome(outcome, lease=lease, events=events), NoWork(-1)
        self._claiming[worker] = token
        ask = PublishAndClaim(outcome=outcome, lease=lease, events=events, worker=worker, token=token)
        try:
            both: PublishedAndClaimed = await self._ask_to_claim(worker, ask, lambda found: found.claim)
        finally:
            del self._claiming[worker]
        self._held.pop((lease.task_id, lease.epoch), None)
        return both.published, self._taken(both.claim.reply)

    def _checked(self, outcome: OutcomeRecord, lease: LeaseRef | None) -> OutcomeRecord:
        if lease is None:
            raise RecordRefusedError("lease", "missing", "only the master publishes without one")
        return check_outcome(outcome, lease)

    async def send_events(self, batch: EventBatch) -> EventsReply:
        reply: EventsReply = await self._line.ask(SendEvents(batch))
        return reply

    # ------------------------------------------------------------------ waits

    async def wait_for_work(self, *, seen: int) -> int:
        version: int = await self._line.ask(WaitForWork(seen))
        return version

    async def wait_for_outcome(self, task_id: str) -> OutcomeRecord:
        outcome: OutcomeRecord = await self._line.ask(WaitForOutcome(task_id))
        return outcome

    async def wait_for_signal(self, *, seen: Signal) -> Signal:
        signal: Signal = await self._line.ask(WaitForSignal(seen))
        return signal

    async def aclose(self) -> None:
        await self._line.aclose()
