"""Actors and records that the cases share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from towline.coordination.records import (
    Assignment,
    Clauses,
    EventBatch,
    Lease,
    LeaseRef,
    NoWork,
    OutcomeRecord,
    RunOpening,
    WorkerRegistration,
    WorkerStatus,
)
from towline.events.records import Event

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from towline.coordination.contract import MasterCoordinator, WorkerCoordinator
    from towline.coordination.records import ClaimReply, HeartbeatReply, PublishReply, SessionRef
    from towline.planning.records import TaskState
    from towline.testing.coordinator_contract import CoordinatorEnv

T = TypeVar("T")

PATIENCE_S = 10.0
"""Longest that a case waits for what must happen: only a broken back end takes it."""


def opening_of(run_id: str, worker_timeout_s: float, **fields: Any) -> RunOpening:
    """Make an opening with short, ordinary limits."""
    defaults: dict[str, Any] = {
        "run_id": run_id,
        "pipeline": "p",
        "program": "p.py:p",
        "fingerprint": "sha256:f",
        "params": msgspec.Raw(b'{"region": "eu"}'),
        "master_id": "m-1",
        "owner_epoch": 1,
        "worker_timeout_ms": round(worker_timeout_s * 1000),
        "master_timeout_ms": round(worker_timeout_s * 4000),
        "master_lease_ms": round(worker_timeout_s * 500),
    }
    return RunOpening(**{**defaults, **fields})


def registration_of(env: CoordinatorEnv, worker_id: str, session: str = "s1", **fields: Any) -> WorkerRegistration:
    """Make a registration for the env's run."""
    defaults: dict[str, Any] = {
        "worker_id": worker_id,
        "session": session,
        "run_id": env.run_id,
        "program": "p.py:p",
        "fingerprint": "sha256:f",
        "parallelism": 4,
        "host": "box",
        "pid": 4711,
    }
    return WorkerRegistration(**{**defaults, **fields})


def task(task_id: str, requires: Clauses = (), **fields: Any) -> Assignment:
    """Make an assignment."""
    return Assignment(task_id=task_id, module=task_id, requires=requires, **fields)


def outcome_of(
    lease: Lease | LeaseRef, state: TaskState = "succeeded", value: object = 1, **fields: Any
) -> OutcomeRecord:
    """Make the outcome of a held lease."""
    return OutcomeRecord(
        task_id=lease.task_id,
        epoch=lease.epoch,
        worker_id=lease.worker_id,
        state=state,
        value=msgspec.Raw(msgspec.json.encode(value)) if state == "succeeded" else msgspec.UNSET,
        reason=None if state == "succeeded" else state,
        **fields,
    )


def value_of(outcome: OutcomeRecord) -> object:
    """Decode an outcome's value."""
    assert isinstance(outcome.value, msgspec.Raw), outcome
    return msgspec.json.decode(outcome.value)


def events_of(env: CoordinatorEnv, actor: Actor, first: int, last: int, **fields: Any) -> EventBatch:
    """Make a batch of events ``first`` to ``last``."""
    events = tuple(
        Event(n=n, at="2026-03-01T10:00:00.000Z", kind="log", data={"text": f"line {n}"})
        for n in range(first, last + 1)
    )
    defaults: dict[str, Any] = {"run_id": env.run_id, "owner_epoch": 1, "events": events}
    return EventBatch(worker_id=actor.ref.worker_id, session=actor.ref.session, **{**defaults, **fields})


class Actor:
    """A registered worker with its own coordinator."""

    def __init__(self, coordinator: WorkerCoordinator, registration: WorkerRegistration) -> None:
        self.coordinator, self.registration = coordinator, registration
        self.ref: SessionRef = registration.ref
        self._claims = 0

    def token(self) -> str:
        """Return a claim token that was not used before."""
        self._claims += 1
        return f"{self.ref.session}-{self._claims}"

    async def ask(self, *, token: str | None = None) -> ClaimReply:
        """Claim once, without waiting."""
        return await self.coordinator.claim(self.ref, token=token or self.token(), wait_s=0)

    async def claim(self) -> Lease:
        """Claim once; there must be work."""
        reply = await self.ask()
        assert isinstance(reply, Lease), f"{self.ref.worker_id} got {reply} where a task waits for it"
        return reply

    async def finds_nothing(self) -> None:
        """Claim once; there must be none."""
        reply = await self.ask()
        assert isinstance(reply, NoWork), f"{self.ref.worker_id} got {reply} where there is nothing for it"

    def start_claim(self) -> asyncio.Task[ClaimReply]:
        """Start a claim that waits."""
        return asyncio.ensure_future(self.coordinator.claim(self.ref, token=self.token(), wait_s=None))

    async def beat(self, *leases: Lease | LeaseRef, **fields: Any) -> HeartbeatReply:
        """Send a heartbeat that lists these leases."""
        refs = tuple(lease.ref if isinstance(lease, Lease) else lease for lease in leases)
        status = WorkerStatus(worker_id=self.ref.worker_id, session=self.ref.session, in_flight=refs, **fields)
        return await self.coordinator.heartbeat(status)

    async def publish(
        self, lease: Lease, state: TaskState = "succeeded", value: object = 1, **fields: Any
    ) -> PublishReply:
        """Publish the outcome of a lease."""
        return await self.coordinator.publish_outcome(outcome_of(lease, state, value, **fields), lease=lease.ref)

    async def release(self, lease: Lease, *, started: bool = True) -> bool:
        """Give a lease back."""
        return await self.coordinator.release(self.ref, lease.ref, started=started)


async def join(env: CoordinatorEnv, worker_id: str, session: str = "s1", **fields: Any) -> Actor:
    """Register a worker."""
    coordinator = await env.worker()
    registration = registration_of(env, worker_id, session, **fields)
    await coordinator.register(registration)
    return Actor(coordinator, registration)


async def soon(awaited: Awaitable[T]) -> T:
    """Await what must come without any further help."""
    done, _ = await asyncio.wait([asyncio.ensure_future(awaited)], timeout=PATIENCE_S)
    assert done, f"nothing came within {PATIENCE_S:g} s"
    return done.pop().result()


async def expire(env: CoordinatorEnv, master: MasterCoordinator) -> None:
    """Let every lease that is not renewed run out, and have it noticed."""
    await env.pass_time(env.worker_timeout_s * 1.1)
    await master.beat()
    await master.requeue_expired()


async def refused(awaited: Awaitable[object], *kinds: type[Exception]) -> Exception:
    """Await what must raise one of these errors; returns it."""
    try:
        result = await awaited
    except kinds as error:
        return error
    raise AssertionError(f"expected {' or '.join(kind.__name__ for kind in kinds)}, got {result!r}")


async def cancel(waiter: asyncio.Task[Any]) -> None:
    """Cancel a waiter; it must end at once, as cancelled."""
    waiter.cancel()
    await asyncio.wait([waiter], timeout=PATIENCE_S)
    assert waiter.cancelled(), f"a cancelled call ended as {waiter}"
