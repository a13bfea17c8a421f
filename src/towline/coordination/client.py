"""The whole coordinator contract over a link."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from towline.coordination import operations as ops
from towline.coordination.checks import check_assignment, check_outcome, check_registration, check_status
from towline.coordination.contract import MasterCoordinator
from towline.coordination.records import Closed, Lease, NoWork
from towline.errors.coordination import (
    CoordinationError,
    CoordinatorClosedError,
    MasterLostError,
    RecordRefusedError,
    RunUnknownError,
    SessionEndedError,
    SessionReplacedError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from towline.coordination.link import Link, Watch
    from towline.coordination.records import (
        Assignment,
        ClaimReply,
        EventBatch,
        EventsReply,
        FeedEntry,
        HeartbeatReply,
        LeaseRef,
        OutcomeRecord,
        PublishReply,
        RunOpening,
        RunState,
        SessionRef,
        WorkerRegistration,
        WorkerStatus,
    )
    from towline.coordination.signals import Signal

R = TypeVar("R")

ABANDON_LIMIT_S = 1.0
"""How long a cancelled claim may take to give back what it was granted (COORD-C33)."""

LATE_REPLIES = 3
"""How often a lease that was long on its way is asked for again; a server that is always so slow has to do."""


class LinkedCoordinator(MasterCoordinator):
    """A coordinator of one run, for a master or a worker.

    Waits are loops of: listen, read, wait for a notification or the poll bound. ``waiting`` counts the calls that
    have read and now wait, by name; tests look at it.
    """

    def __init__(self, link: Link, run_id: str) -> None:
        self.run_id = run_id
        self.waiting: Counter[str] = Counter()
        self._link = link
        self._closed = False
        self._owner_epoch = self._epoch_jumps = 0
        self._parallelism = 1
        self._claiming: set[SessionRef] = set()
        self._watches: set[Callable[[], None]] = set()

    # ------------------------------------------------------------------ worker

    async def register(self, registration: WorkerRegistration) -> RunState:
        check_registration(registration, self.run_id)
        self._parallelism = registration.parallelism
        return await self._call(ops.Register(registration=registration))

    async def claim(self, worker: SessionRef, *, token: str, wait_s: float | None) -> ClaimReply:
        if worker in self._claiming:
            raise CoordinationError(f"{worker.worker_id} has a claim pending. Make one claim at a time per session.")
        self._claiming.add(worker)
        operation = ops.Claim(worker=worker, token=token, waits=wait_s != 0)
        try:
            if wait_s == 0:
                return await self._claim_once(operation)
            return await self._claim_waiting(operation, wait_s)
        except asyncio.CancelledError:
            await self._abandon(worker, token)
            raise
        finally:
            self._claiming.discard(worker)

    async def _claim_once(self, operation: ops.Claim) -> ClaimReply:
        asked_at = asyncio.get_running_loop().time()
        return await self._living(await self._call(operation), operation, asked_at)

    async def _living(self, reply: ClaimReply, operation: ops.Claim, asked_at: float) -> ClaimReply:
        """Ask again when a lease was long on its way: nobody renewed it, so another may have it by now.

        A body that blocked this loop kept the reply unread; the same token gives the same lease if it is still ours.
        """
        now = asyncio.get_running_loop().time
        for _ in range(LATE_REPLIES):
            if not isinstance(reply, Lease) or (now() - asked_at) * 1000 < reply.expires_in_ms / 2:
                break
            asked_at = now()
            reply = await self._call(operation)
        return reply

    async def _claim_waiting(self, operation: ops.Claim, wait_s: float | None) -> ClaimReply:
        nothing = NoWork(0)

        async def ask() -> Lease | Closed | None:
            nonlocal nothing
            reply = await self._claim_once(operation)
            if isinstance(reply, NoWork):
                nothing = reply
                return None
            return reply

        return await self._wait("claim", f"work@{operation.worker.worker_id}", ask, wait_s) or nothing

    async def _abandon(self, worker: SessionRef, token: str) -> None:
        """Give back what the cancelled claim may have been granted, within its own time.

        When this fails, the lease runs out: nobody renews it.
        """
        from anyio import CancelScope

        if self._closed:
            return
        with CancelScope(shield=True) as scope:
            scope.deadline = asyncio.get_running_loop().time() + ABANDON_LIMIT_S
            try:
                await self._link.call(ops.AbandonClaim(worker=worker, token=token))
            except CoordinationError:
                return

    async def withdraw_claim(self, worker: SessionRef, *, token: str) -> None:
        await self._abandon(worker, token)

    async def wait_for_work(self, *, seen: int) -> int:
        async def ask() -> int | None:
            version = await self._call(ops.ReadWorkVersion())
            return version if version != seen else None

        return await self._wait_long("wait_for_work", "work", ask)

    async def release(self, worker: SessionRef, lease: LeaseRef, *, started: bool) -> bool:
        return await self._call(ops.Release(worker=worker, lease=lease, started=started))

    async def heartbeat(self, status: WorkerStatus) -> HeartbeatReply:
        check_status(status, self._parallelism)
        return await self._call(ops.Heartbeat(status=status))

    async def publish_outcome(
        self, outcome: OutcomeRecord, *, lease: LeaseRef | None, events: EventBatch | None = None
    ) -> PublishReply:
        return await self._call(self._publish(outcome, lease, events))

    def _publish(self, outcome: OutcomeRecord, lease: LeaseRef | None, events: EventBatch | None) -> ops.Publish:
        if lease is None and not self._owner_epoch:
            raise RecordRefusedError("lease", "missing", "only the master publishes without one")
        owner_epoch = self._owner_epoch if lease is None else None
        outcome = check_outcome(outcome, lease)
        return ops.Publish(outcome=outcome, lease=lease, events=events, owner_epoch=owner_epoch)

    async def publish_and_claim(
        self,
        outcome: OutcomeRecord,
        *,
        lease: LeaseRef,
        events: EventBatch | None = None,
        worker: SessionRef,
        token: str,
    ) -> tuple[PublishReply, ClaimReply]:
        publish = self._publish(outcome, lease, events)
        if worker in self._claiming:
            # Another slot of this worker is asking already: only one claim at a time (COORD-C35).
            return await self._call(publish), NoWork(-1)
        self._claiming.add(worker)
        try:
            operation = self._claim_on_outcome(worker, token)
            asked_at = asyncio.get_running_loop().time()
            published, reply = await self._call(ops.PublishAndClaim(publish=publish, claim=operation))
            try:
                return published, await self._living(reply, operation, asked_at)
            except (SessionEndedError, SessionReplacedError):
                return published, NoWork(-1)  # what became of the outcome is not lost with the claim
        except asyncio.CancelledError:
            await self._abandon(worker, token)
            raise
        finally:
            self._claiming.discard(worker)

    def _claim_on_outcome(self, worker: SessionRef, token: str) -> ops.Claim:
        """Return the claim that rides on an outcome; it waits where the next claim can go on with it."""
        return ops.Claim(worker=worker, token=token)

    async def wait_for_outcome(self, task_id: str) -> OutcomeRecord:
        async def ask() -> OutcomeRecord | None:
            return await self._call(ops.ReadOutcome(task_id=task_id))

        # Most are asked for when they are there: a subscription would be a round trip for nothing.
        found = await ask()
        return found if found is not None else await self._wait_long("wait_for_outcome", f"outcome:{task_id}", ask)

    async def wait_for_signal(self, *, seen: Signal) -> Signal:
        async def ask() -> Signal | None:
            state = await self._call(ops.ReadRun())
            if state.state == "unknown":
                raise RunUnknownError(self.run_id)
            return state.signal if state.signal > seen else None

        return await self._wait_long("wait_for_signal", "signal", ask)

    async def run_state(self) -> RunState:
        return await self._call(ops.ReadRun())

    async def send_events(self, batch: EventBatch) -> EventsReply:
        return await self._call(ops.SendEvents(batch=batch))

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        for notify in list(self._watches):
            notify()
        await self._link.aclose()

    # ------------------------------------------------------------------ master

    async def open_run(self, opening: RunOpening) -> RunState:
        if opening.run_id != self.run_id:
            raise RunUnknownError(opening.run_id)
        state = await self._call(ops.OpenRun(opening=opening))
        self._owner_epoch, self._epoch_jumps = opening.owner_epoch, opening.epoch_jumps
        return state

    async def beat(self) -> int:
        self._epoch_jumps = await self._call(ops.Beat(owner_epoch=self._owner_epoch))
        return self._epoch_jumps

    async def enqueue(self, assignments: Sequence[Assignment]) -> Sequence[bool]:
        for assignment in assignments:
            check_assignment(assignment)
        return await self._call(ops.Enqueue(owner_epoch=self._owner_epoch, assignments=tuple(assignments)))

    async def withdraw(self, task_ids: Sequence[str]) -> frozenset[str]:
        return await self._call(ops.Withdraw(owner_epoch=self._owner_epoch, task_ids=tuple(task_ids)))

    async def active_leases(self) -> Sequence[Lease]:
        return await self._call(ops.ActiveLeases(owner_epoch=self._owner_epoch))

    async def requeue_expired(self) -> Sequence[FeedEntry]:
        return await self._call(ops.RequeueExpired(owner_epoch=self._owner_epoch))

    async def expel(self, worker_id: str) -> bool:
        return await self._call(ops.Expel(owner_epoch=self._owner_epoch, worker_id=worker_id))

    async def workers(self) -> Sequence[WorkerRegistration]:
        return await self._call(ops.ReadWorkers(owner_epoch=self._owner_epoch))

    async def worker_statuses(self) -> Sequence[WorkerStatus]:
        return await self._call(ops.ReadStatuses(owner_epoch=self._owner_epoch))

    async def feed(self, *, after: int, limit: int, wait_s: float) -> Sequence[FeedEntry]:
        operation = ops.ReadFeed(owner_epoch=self._owner_epoch, after=after, limit=limit)
        return await self._read("feed", operation, wait_s) or ()

    async def trim_feed(self, *, up_to: int) -> None:
        operation = ops.TrimFeed(owner_epoch=self._owner_epoch, up_to=up_to, epoch_jumps=self._epoch_jumps)
        await self._call(operation)

    async def receive_events(self, *, limit: int, wait_s: float) -> Sequence[EventBatch]:
        operation = ops.ReceiveEvents(owner_epoch=self._owner_epoch, limit=limit)
        return await self._read("events", operation, wait_s) or ()

    async def acknowledge_events(self, worker: SessionRef, n: int) -> None:
        await self._call(ops.AcknowledgeEvents(owner_epoch=self._owner_epoch, worker=worker, n=n))

    async def send_signal(self, signal: Signal) -> Signal:
        return await self._call(ops.SendSignal(owner_epoch=self._owner_epoch, signal=signal))

    async def complete(self) -> None:
        await self._call(ops.Complete(owner_epoch=self._owner_epoch))

    # ------------------------------------------------------------------ waiting

    async def _call(self, operation: ops.Operation[R]) -> R:
        return await self._guarded(type(operation).__name__, self._link.call(operation))

    async def _guarded(self, name: str, call: Coroutine[Any, Any, R]) -> R:
        """Await a call of the link; say what it means that this coordinator is closed, or the run not there."""
        if self._closed:
            call.close()
            raise CoordinatorClosedError(name)
        try:
            return await call
        except CoordinationError as error:
            if self._closed:
                raise CoordinatorClosedError(name) from error
            if isinstance(error, RunUnknownError) and not error.run_id:
                raise RunUnknownError(self.run_id, error.coordinator) from None
            raise

    async def _read(self, key: str, operation: ops.Operation[tuple[R, ...]], wait_s: float) -> tuple[R, ...] | None:
        async def ask() -> tuple[R, ...] | None:
            return await self._call(operation) or None

        return await ask() if wait_s == 0 else await self._wait(key, key, ask, wait_s)

    async def _wait_long(self, name: str, key: str, ask: Callable[[], Awaitable[R | None]]) -> R:
        while True:
            found = await self._wait(name, key, ask, None)
            if found is not None:
                return found

    async def _wait(
        self, name: str, key: str, ask: Callable[[], Awaitable[R | None]], wait_s: float | None
    ) -> R | None:
        """Ask until there is an answer; ``None`` after ``wait_s``.

        Raises:
            MasterLostError: Nobody has led the run for the master timeout (COORD-C85).
            CoordinatorClosedError: This coordinator was closed meanwhile.
        """
        async with self._link.watch(key) as watch:
            return await self._wait_on(watch, name, ask, wait_s)

    async def _wait_on(
        self, watch: Watch, name: str, ask: Callable[[], Awaitable[R | None]], wait_s: float | None
    ) -> R | None:
        """As :meth:`_wait`, on a watch that is entered already."""
        now = asyncio.get_running_loop().time
        deadline = None if wait_s is None else now() + wait_s
        look_at_master = now() + self._link.poll_s
        self._watches.add(watch.notify)
        try:
            while True:
                found = await ask()
                if found is not None:
                    return found
                left = self._link.poll_s if deadline is None else min(self._link.poll_s, deadline - now())
                if left <= 0:
                    return None
                self.waiting[name] += 1
                try:
                    await watch.wait(left)
                finally:
                    self.waiting[name] -= 1
                if now() >= look_at_master:
                    look_at_master = now() + await self._check_master()
        finally:
            self._watches.discard(watch.notify)

    async def _check_master(self) -> float:
        """Raise when the master is lost; returns after how many seconds to look again."""
        state = await self._call(ops.ReadRun())
        if state.state == "lost":
            raise MasterLostError(self.run_id, state.master_silent_ms / 1000, state.master_timeout_ms / 1000)
        return max(self._link.poll_s, state.master_timeout_ms / 4000)
