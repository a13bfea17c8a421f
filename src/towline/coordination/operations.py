"""The calls of the contract as data: what ledger, memory, document and Redis execute alike.

``owner_epoch`` on an operation is the master's fence (COORD-C65). Each class names the type of its reply.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from towline.coordination.records import (
    Assignment,
    ClaimReply,
    EventBatch,
    EventsReply,
    FeedEntry,
    HeartbeatReply,
    Lease,
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


class Operation(msgspec.Struct, Generic[R], frozen=True, kw_only=True, tag=True):
    """One atomic step whose reply is an ``R``."""


class MasterOperation(Operation[R], Generic[R], frozen=True, kw_only=True):
    """A step that only the master in force may take."""

    owner_epoch: int


# ------------------------------------------------------------------ workers


class Register(Operation[RunState], frozen=True, kw_only=True):
    registration: WorkerRegistration


class Claim(Operation[ClaimReply], frozen=True, kw_only=True):
    """``waits``: the caller will wait when there is no work, and wants to be woken."""

    worker: SessionRef
    token: str
    waits: bool = False


class AbandonClaim(Operation[bool], frozen=True, kw_only=True):
    """Give back what a cancelled claim may have been granted: nobody saw that lease (COORD-C33)."""

    worker: SessionRef
    token: str


class Release(Operation[bool], frozen=True, kw_only=True):
    worker: SessionRef
    lease: LeaseRef
    started: bool


class Heartbeat(Operation[HeartbeatReply], frozen=True, kw_only=True):
    status: WorkerStatus


class Publish(Operation[PublishReply], frozen=True, kw_only=True):
    """``owner_epoch`` is set when the master publishes without a lease."""

    outcome: OutcomeRecord
    lease: LeaseRef | None
    events: EventBatch | None = None
    owner_epoch: int | None = None


class PublishAndClaim(Operation[tuple[PublishReply, ClaimReply]], frozen=True, kw_only=True):
    publish: Publish
    claim: Claim


class SendEvents(Operation[EventsReply], frozen=True, kw_only=True):
    batch: EventBatch


class ReadOutcome(Operation[OutcomeRecord | None], frozen=True, kw_only=True):
    task_id: str


class ReadRun(Operation[RunState], frozen=True, kw_only=True):
    pass


class ReadWorkVersion(Operation[int], frozen=True, kw_only=True):
    pass


# ------------------------------------------------------------------ master


class OpenRun(Operation[RunState], frozen=True, kw_only=True):
    opening: RunOpening


class Beat(MasterOperation[int], frozen=True, kw_only=True):
    pass


class Enqueue(MasterOperation[tuple[bool, ...]], frozen=True, kw_only=True):
    assignments: tuple[Assignment, ...]


class Withdraw(MasterOperation[frozenset[str]], frozen=True, kw_only=True):
    task_ids: tuple[str, ...]


class ActiveLeases(MasterOperation[tuple[Lease, ...]], frozen=True, kw_only=True):
    pass


class RequeueExpired(MasterOperation[tuple[FeedEntry, ...]], frozen=True, kw_only=True):
    pass


class Expel(MasterOperation[bool], frozen=True, kw_only=True):
    worker_id: str


class ReadWorkers(MasterOperation[tuple[WorkerRegistration, ...]], frozen=True, kw_only=True):
    pass


class ReadStatuses(MasterOperation[tuple[WorkerStatus, ...]], frozen=True, kw_only=True):
    pass


class ReadFeed(MasterOperation[tuple[FeedEntry, ...]], frozen=True, kw_only=True):
    after: int
    limit: int


class TrimFeed(MasterOperation[None], frozen=True, kw_only=True):
    """``epoch_jumps``: those that the master knew; a run that was opened anew meanwhile numbers its feed anew."""

    up_to: int
    epoch_jumps: int


class ReceiveEvents(MasterOperation[tuple[EventBatch, ...]], frozen=True, kw_only=True):
    limit: int


class AcknowledgeEvents(MasterOperation[None], frozen=True, kw_only=True):
    worker: SessionRef
    n: int


class SendSignal(MasterOperation[Signal], frozen=True, kw_only=True):
    signal: Signal


class Complete(MasterOperation[None], frozen=True, kw_only=True):
    pass
