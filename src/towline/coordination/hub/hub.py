"""The hub: hosts a run's ledger and answers the workers that are connected, whatever carries their messages."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from towline.coordination import operations as ops
from towline.coordination.client import LinkedCoordinator
from towline.coordination.hub.conversation import Close, Conversation, Say, Start, Stop
from towline.coordination.hub.frames import BAD_MESSAGES, GOING_AWAY, TAKEN_OVER, TRY_LATER
from towline.coordination.hub.messages import (
    AskRunState,
    Claim,
    ClaimAnswer,
    Heartbeat,
    Hello,
    PublishAndClaim,
    PublishedAndClaimed,
    PublishOutcome,
    Register,
    Release,
    SendEvents,
    WaitForOutcome,
    WaitForSignal,
    WaitForWork,
)
from towline.coordination.hub.presence import Presence
from towline.coordination.memory import TICK_S, MemoryLink
from towline.coordination.records import Closed, Lease, LeaseRef, SessionRef
from towline.errors.coordination import CoordinationError
from towline.errors.hub import HubRefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from towline.coordination.hub.conversation import Action
    from towline.coordination.hub.messages import Ask
    from towline.coordination.hub.wire import Wire
    from towline.coordination.memory import MemoryRun

_log = logging.getLogger("towline.hub")

HELLO_WITHIN_S = 5.0
"""How long a connection may stay without a greeting (COORD-H03)."""
QUEUE_LIMIT_BYTES = 8 * 1024 * 1024
"""Replies that wait for a slow reader before its connection is closed (COORD-H21)."""


class Hub:
    """Serves the workers of one run from a ledger in this process.

    Args:
        token: What each greeting must carry; ``None`` where the transport has checked it.
        record_claim: Returns once a claim is durable; its answer waits for that (COORD-H27). False: it cannot be made
            durable any more. The lease is taken back then, and its worker told to stop.
    """

    def __init__(
        self,
        run: MemoryRun,
        run_id: str,
        *,
        token: str | None,
        poll_s: float = 2.0,
        record_claim: Callable[[Lease], Awaitable[bool]] | None = None,
        presence: Presence | None = None,
    ) -> None:
        self.run, self.run_id, self.poll_s = run, run_id, poll_s
        self.token, self.record_claim = token, record_claim
        self.presence = presence or Presence()
        self._numbers = itertools.count(1)
        self._connections: dict[int, _Connection] = {}

    async def serve(self, wire: Wire) -> None:
        """Answer one connection until it ends. Its session and leases outlive it (COORD-H07)."""
        number = next(self._numbers)
        too_many = self.presence.came(number)
        if too_many is not None:
            wire.close(TRY_LATER, too_many)
            return
        connection = self._connections[number] = _Connection(self, number, wire)
        try:
            await connection.answer()
        finally:
            del self._connections[number]
            self.presence.left(number)

    async def keep_time(self) -> None:
        """Notice when this loop is held up, until cancelled."""
        while True:
            self.run.tick()
            await asyncio.sleep(TICK_S)

    def replace(self, number: int) -> None:
        """Close a connection whose session speaks through a newer one (COORD-H06)."""
        connection = self._connections.get(number)
        if connection is not None:
            connection.wire.close(TAKEN_OVER, "the session has a newer connection")

    def close(self) -> None:
        """Send everybody home; twice without harm."""
        for connection in list(self._connections.values()):
            connection.wire.close(GOING_AWAY, "the run has ended here")

    @property
    def waiting(self) -> Counter[str]:
        """How many requests have read and wait now, by name; tests look at it."""
        return sum((one.coordinator.waiting for one in self._connections.values()), Counter[str]())


class _Connection:
    """Carries out what a conversation decides."""

    def __init__(self, hub: Hub, number: int, wire: Wire) -> None:
        self.wire = wire
        self.coordinator = LinkedCoordinator(MemoryLink(hub.run, hub.poll_s), hub.run_id)
        self._hub, self._number = hub, number
        self._conversation = Conversation(hub.run_id, hub.token)
        self._open: dict[int, asyncio.Task[None]] = {}
        self._stopped: set[int] = set()

    async def answer(self) -> None:
        greeting = asyncio.get_running_loop().call_later(HELLO_WITHIN_S, self._check_greeted)
        try:
            while (text := await self.wire.receive()) is not None:
                self._carry_out(self._conversation.heard(text))
        finally:
            greeting.cancel()
            self.wire.close(GOING_AWAY, "")
            await self._drop_requests()

    async def _drop_requests(self) -> None:
        requests = list(self._open.values())
        for request in requests:
            request.cancel()
        if requests:
            await asyncio.wait(requests)
        await self.coordinator.aclose()

    def _check_greeted(self) -> None:
        if not self._conversation.is_greeted:
            self.wire.close(BAD_MESSAGES, f"no hello within {HELLO_WITHIN_S:g} s")

    def _carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Say(text):
                    self.wire.send(text)
                case Start(request_id, ask):
                    task = asyncio.get_running_loop().create_task(self._request(request_id, ask))
                    self._open[request_id] = task
                case Stop(request_id):
                    self._stopped.add(request_id)
                    self._open[request_id].cancel()
                case Close(code, reason):
                    self.wire.close(code, reason)
        if self.wire.queued_bytes > QUEUE_LIMIT_BYTES:
            self.wire.close(TRY_LATER, "replies are not read")

    async def _request(self, request_id: int, ask: Ask) -> None:
        conversation = self._conversation
        try:
            result = await self._execute(ask)
            actions = conversation.finished(request_id, ask, result)
            self._note_speaker(ask)
        except CoordinationError as error:
            actions = conversation.failed(request_id, ask, error)
        except asyncio.CancelledError:
            if request_id not in self._stopped:
                raise  # the connection ended; what was granted is asked for again by its token (COORD-H09)
            self._abandon(ask)
            actions = conversation.stopped(request_id)
        except Exception as error:  # noqa: BLE001 - no exception of a request reaches the loop
            _log.exception("a request of a worker failed: %s", ask.op)
            actions = conversation.failed(request_id, ask, HubRefusedError("internal", type(error).__name__, ask.op))
        finally:
            self._open.pop(request_id, None)
            self._stopped.discard(request_id)
        self._carry_out(actions)

    def _note_speaker(self, ask: Ask) -> None:
        presence = self._hub.presence
        if isinstance(ask, Hello):
            presence.greeted(self._number)
        if isinstance(ask, Hello | Register) and ask.registration is not None:
            older = presence.speaks(self._number, ask.registration.ref)
            if older is not None:
                self._hub.replace(older)

    def _abandon(self, ask: Ask) -> None:
        """Take back what a claim may have been granted while its answer was held (COORD-C33)."""
        if isinstance(ask, Claim | PublishAndClaim):
            try:
                self._hub.run.apply(ops.AbandonClaim(worker=ask.worker, token=ask.token))
            except CoordinationError as error:
                _log.debug("nothing to take back: %s", error)

    # ------------------------------------------------------------------ operations

    async def _execute(self, ask: Ask) -> Any:
        hosted = self.coordinator
        match ask:
            case Claim(worker, token, wait_s):
                return await self._recorded(await hosted.claim(worker, token=token, wait_s=wait_s))
            case PublishAndClaim(outcome=outcome, lease=lease, events=events, worker=worker, token=token):
                published, reply = await hosted.publish_and_claim(
                    outcome, lease=lease, events=events, worker=worker, token=token
                )
                return PublishedAndClaimed(published, ClaimAnswer.of(await self._recorded(reply)))
            case PublishOutcome(outcome, lease, events):
                return await hosted.publish_outcome(outcome, lease=lease, events=events)
            case Heartbeat(status):
                return await hosted.heartbeat(status)
            case WaitForWork(seen):
                return await hosted.wait_for_work(seen=seen)
            case WaitForOutcome(task_id):
                return await hosted.wait_for_outcome(task_id)
            case WaitForSignal(signal):
                return await hosted.wait_for_signal(seen=signal)
            case SendEvents(batch):
                return await hosted.send_events(batch)
            case Release(worker, lease, started):
                return await hosted.release(worker, lease, started=started)
            case Register(registration):
                return await hosted.register(registration)
            case Hello():
                return await self._greet(ask)
            case AskRunState():
                return await hosted.run_state()
            case _:
                raise HubRefusedError("unknown_op", f"there is no operation {ask.op!r}", ask.op)

    async def _greet(self, hello: Hello) -> Any:
        registration = hello.registration
        if registration is None:
            return await self.coordinator.run_state()
        claimed = self._claimed_by(hello)
        if claimed is not None and claimed not in registration.held:
            registration = msgspec.structs.replace(registration, held=(*registration.held, claimed))
        return await self.coordinator.register(registration)

    def _claimed_by(self, hello: Hello) -> LeaseRef | None:
        """Find the lease whose grant a broken connection did not deliver: its worker asks for it again (COORD-H09)."""
        session = None if hello.registration is None else self._hub.run.state.sessions.get(hello.registration.worker_id)
        if session is None or session.last_claim is None or session.last_claim.token != hello.claiming:
            return None
        last = session.last_claim
        return LeaseRef(task_id=last.task_id, epoch=last.epoch, worker_id=session.registration.worker_id)

    async def _recorded(self, reply: Any) -> Any:
        if not isinstance(reply, Lease) or self._hub.record_claim is None or await self._hub.record_claim(reply):
            return reply
        await self.coordinator.release(SessionRef(reply.worker_id, reply.session), reply.ref, started=False)
        return Closed("stopped")
