"""What goes over the line: requests, replies and refusals as JSON text, one message a frame (COORD-H).

The operations are the methods of ``WorkerCoordinator`` by name, besides ``hello`` and ``cancel``. Those of a master do
not exist here (COORD-H05). Records are those of ``coordination.records``, so one codec serves disk, Redis and hub.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import msgspec

from towline.coordination.records import (
    WIRE,
    ClaimReply,
    Closed,
    EventBatch,
    EventsReply,
    HeartbeatReply,
    Lease,
    LeaseRef,
    NoWork,
    OutcomeRecord,
    PublishReply,
    RunState,
    SessionRef,
    WorkerRegistration,
    WorkerStatus,
)
from towline.coordination.signals import Signal
from towline.errors.coordination import RecordRefusedError

A = TypeVar("A")

NOTHING = msgspec.Raw(b"{}")


class Request(msgspec.Struct, frozen=True):
    """A worker asks. ``id`` grows with each request of a connection (COORD-H02)."""

    id: int
    op: str
    args: msgspec.Raw = NOTHING


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no answer; ``fields`` rebuild the error that ``code`` stands for."""

    code: str
    message: str
    fields: dict[str, Any] = {}


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The hub answers one request, with ``ok`` or with ``error``."""

    id: int
    ok: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: Refusal | None = None


class ClaimAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of three: a lease, nothing now, nothing ever more."""

    lease: Lease | None = None
    no_work: NoWork | None = None
    closed: Closed | None = None

    @classmethod
    def of(cls, reply: ClaimReply) -> ClaimAnswer:
        """Write a reply."""
        if isinstance(reply, Lease):
            return cls(lease=reply)
        return cls(no_work=reply) if isinstance(reply, NoWork) else cls(closed=reply)

    @property
    def reply(self) -> ClaimReply:
        """Read it."""
        return self.lease or self.no_work or self.closed or NoWork(0)


class PublishedAndClaimed(msgspec.Struct, frozen=True):
    """What became of the outcome, and the next task."""

    published: PublishReply
    claim: ClaimAnswer


class Ask(msgspec.Struct, frozen=True):
    """The arguments of one operation; ``reply`` is the type of its answer."""

    op: ClassVar[str]
    reply: ClassVar[Any]


class Hello(Ask, frozen=True, omit_defaults=True):
    """The first message. ``claiming``: the token of a claim whose answer a former connection may have lost (COORD-H09)."""

    op, reply = "hello", RunState
    wire: int = WIRE
    library: str = ""
    run_id: str | None = None
    registration: WorkerRegistration | None = None
    token: str | None = None
    claiming: str | None = None


class Register(Ask, frozen=True):
    op, reply = "register", RunState
    registration: WorkerRegistration


class Claim(Ask, frozen=True):
    op, reply = "claim", ClaimAnswer
    worker: SessionRef
    token: str
    wait_s: float | None = None


class WaitForWork(Ask, frozen=True):
    op, reply = "wait_for_work", int
    seen: int


class Release(Ask, frozen=True):
    op, reply = "release", bool
    worker: SessionRef
    lease: LeaseRef
    started: bool


class Heartbeat(Ask, frozen=True):
    op, reply = "heartbeat", HeartbeatReply
    status: WorkerStatus


class PublishOutcome(Ask, frozen=True):
    op, reply = "publish_outcome", PublishReply
    outcome: OutcomeRecord
    lease: LeaseRef
    events: EventBatch | None = None


class PublishAndClaim(Ask, frozen=True, kw_only=True):
    op, reply = "publish_and_claim", PublishedAndClaimed
    outcome: OutcomeRecord
    lease: LeaseRef
    events: EventBatch | None = None
    worker: SessionRef
    token: str


class WaitForOutcome(Ask, frozen=True):
    op, reply = "wait_for_outcome", OutcomeRecord
    task_id: str


class WaitForSignal(Ask, frozen=True):
    op, reply = "wait_for_signal", Signal
    seen: Signal


class AskRunState(Ask, frozen=True):
    op, reply = "run_state", RunState


class SendEvents(Ask, frozen=True):
    op, reply = "send_events", EventsReply
    batch: EventBatch


class Cancel(Ask, frozen=True):
    """End an open request; it is answered with ``cancelled``, or with its result when that was ready."""

    op, reply = "cancel", None
    id: int


ASKS: dict[str, type[Ask]] = {
    kind.op: kind
    for kind in (
        Hello,
        Register,
        Claim,
        WaitForWork,
        Release,
        Heartbeat,
        PublishOutcome,
        PublishAndClaim,
        WaitForOutcome,
        WaitForSignal,
        AskRunState,
        SendEvents,
        Cancel,
    )
}

_DECODERS: dict[object, msgspec.json.Decoder[Any]] = {}
_encode = msgspec.json.encode


def encode(message: Any) -> bytes:
    """Write a message."""
    return _encode(message)


def decode(kind: type[A], data: bytes | msgspec.Raw) -> A:
    """Read a message strictly.

    Raises:
        RecordRefusedError: It is no JSON, too deep, or a field is missing or ill-typed; with the path (COORD-H20).
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        found: A = decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        text = str(error)
        raise RecordRefusedError("message", text[:400], f"it must be a {_name(kind)}") from error
    return found


def _name(kind: object) -> str:
    return getattr(kind, "__name__", str(kind))


def reply_with(request_id: int, kind: Any, result: Any) -> bytes:
    """Write an answer of an operation whose reply has this type."""
    ok = _encode(ClaimAnswer.of(result) if kind is ClaimAnswer else result)
    return _encode(Reply(request_id, ok=msgspec.Raw(ok)))
