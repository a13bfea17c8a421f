"""Operations as script arguments, and script replies as what the operation promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from towline.coordination import operations as ops
from towline.coordination.checks import CRITICAL_PATH_LIMIT_MS
from towline.coordination.ledger.queue import bucket_key
from towline.coordination.records import (
    WIRE,
    Assignment,
    EventsReply,
    HeartbeatReply,
    Lease,
    LostLease,
    SessionRef,
    WorkerRegistration,
    WorkerStatus,
)
from towline.coordination.redis import replies
from towline.coordination.signals import Signal
from towline.planning.records import FINAL_STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from towline.coordination.records import EventBatch, LeaseRef, RunOpening

R = TypeVar("R")
Argument = str | bytes | int

BROUGHT_LIMIT = 4
"""Outcomes that come along with a lease at most; whoever depends on more has most of them from earlier tasks."""

_encode = msgspec.json.encode
_NOBODY = SessionRef("", "")


def _flag(value: bool) -> int:
    return 1 if value else 0


def _pairs(leases: Iterable[LeaseRef]) -> list[Argument]:
    return [part for lease in leases for part in (lease.task_id, lease.epoch)]


def _events(batch: EventBatch) -> list[Argument]:
    header = msgspec.structs.replace(batch, events=())
    arguments: list[Argument] = [f"{batch.worker_id}/{batch.session}", batch.owner_epoch, batch.base, _encode(header)]
    for event in batch.events:
        arguments += (event.n, _encode(event))
    return arguments


def _opening(opening: RunOpening, server: str) -> list[Argument]:
    head: list[Argument] = [opening.master_id, opening.owner_epoch]
    head += ["" if opening.replaces is None else opening.replaces, opening.program, opening.fingerprint]
    head += [opening.epoch_jumps, server, _encode(opening)]
    for name in (
        "worker_timeout_ms",
        "master_timeout_ms",
        "master_lease_ms",
        "requeue_limit",
        "key_life_ms",
        "event_backlog",
    ):
        head += (name, getattr(opening, name))
    return head


def _registration(registration: WorkerRegistration) -> list[Argument]:
    capabilities = ",".join(sorted({name.casefold() for name in registration.capabilities}))
    head: list[Argument] = [registration.worker_id, registration.session, registration.program]
    head += [registration.fingerprint, registration.wire, WIRE, capabilities, _encode(registration)]
    return head + _pairs(registration.held)


def task_arguments(assignment: Assignment) -> list[Argument]:
    """Return the arguments of one task of an enqueue."""
    place = f"{999 - assignment.priority:04d}:{CRITICAL_PATH_LIMIT_MS - assignment.critical_path_ms:012d}"
    return [
        assignment.task_id,
        bucket_key(assignment.requires, False),
        _flag(assignment.always_run),
        len(assignment.requires),
        _flag(assignment.at_most_once),
        assignment.epoch_floor,
        place,
        _inputs(assignment),
        _encode(assignment),
    ]


def _inputs(assignment: Assignment) -> str:
    """Name the outcomes that are to come along with a lease, each after its length; none when they are many."""
    needed = [one.task_id for one in assignment.dependencies if one.state in FINAL_STATES]
    if len(needed) > BROUGHT_LIMIT:
        return ""
    return "".join(f"{len(task_id.encode())}:{task_id}" for task_id in needed)


def _publish(operation: ops.Publish, *between: Argument) -> list[Argument]:
    outcome = operation.outcome
    arguments: list[Argument] = [_flag(operation.lease is not None), outcome.task_id, outcome.epoch, outcome.worker_id]
    arguments += [outcome.state, _encode(outcome), *between, _flag(operation.events is not None)]
    return arguments if operation.events is None else arguments + _events(operation.events)


def _claim(operation: ops.Claim | ops.AbandonClaim) -> list[Argument]:
    waits = [_flag(operation.waits)] if isinstance(operation, ops.Claim) else []
    return [operation.worker.worker_id, operation.worker.session, operation.token, *waits]


def _heartbeat(status: WorkerStatus) -> list[Argument]:
    return [status.worker_id, status.session, _flag(status.is_final), _encode(status), *_pairs(status.in_flight)]


def arguments_of(operation: ops.Operation[Any], server: str = "") -> tuple[str, list[Argument]]:
    """Return the script's name and its arguments after the two that all scripts share."""
    match operation:
        case ops.Claim():
            return "claim", _claim(operation)
        case ops.PublishAndClaim(publish=publish, claim=claim):
            return "publish_and_claim", _publish(publish, *_claim(claim))
        case ops.Publish():
            return "publish", _publish(operation)
        case ops.Heartbeat(status=status):
            return "heartbeat", _heartbeat(status)
        case ops.Register(registration=registration):
            return "register", _registration(registration)
        case ops.AbandonClaim():
            return "abandon_claim", _claim(operation)
        case ops.Release(worker=worker, lease=lease, started=started):
            return "release", [worker.worker_id, worker.session, lease.task_id, lease.epoch, _flag(started)]
        case ops.SendEvents(batch=batch):
            return "send_events", _events(batch)
        case ops.ReadOutcome(task_id=task_id):
            return "read_outcome", [task_id]
        case ops.OpenRun(opening=opening):
            return "open_run", _opening(opening, server)
        case ops.Enqueue(assignments=assignments):
            return "enqueue", [part for assignment in assignments for part in task_arguments(assignment)]
        case ops.Withdraw(task_ids=task_ids):
            return "withdraw", list(task_ids)
        case ops.Expel(worker_id=worker_id):
            return "expel", [worker_id]
        case ops.ReadFeed(after=after, limit=limit):
            return "read_feed", [after, limit]
        case ops.TrimFeed(up_to=up_to, epoch_jumps=epoch_jumps):
            return "trim_feed", [up_to, epoch_jumps]
        case ops.ReceiveEvents(limit=limit):
            return "receive_events", [limit]
        case ops.AcknowledgeEvents(worker=worker, n=n):
            return "acknowledge_events", [f"{worker.worker_id}/{worker.session}", n]
        case ops.SendSignal(signal=signal):
            return "send_signal", [signal.value]
        case _:
            return _BARE[type(operation)], []


_BARE: dict[type[ops.Operation[Any]], str] = {
    ops.ReadRun: "read_run",
    ops.ReadWorkVersion: "read_work_version",
    ops.Beat: "beat",
    ops.Complete: "complete",
    ops.ActiveLeases: "active_leases",
    ops.RequeueExpired: "requeue_expired",
    ops.ReadWorkers: "read_workers",
    ops.ReadStatuses: "read_workers",
}


def caller_of(operation: ops.Operation[Any]) -> SessionRef:
    """Return whose call it is, for the text of a refusal; nobody's for the master's."""
    match operation:
        case ops.Claim(worker=worker) | ops.AbandonClaim(worker=worker) | ops.Release(worker=worker):
            return worker
        case ops.PublishAndClaim(claim=claim):
            return claim.worker
        case ops.Register(registration=registration):
            return registration.ref
        case ops.Heartbeat(status=status):
            return SessionRef(status.worker_id, status.session)
        case _:
            return _NOBODY


def owner_epoch_of(operation: ops.Operation[Any]) -> int | None:
    """Return the fence of a master's operation."""
    match operation:
        case ops.MasterOperation(owner_epoch=epoch) | ops.Publish(owner_epoch=epoch):
            return epoch
        case ops.PublishAndClaim(publish=publish):
            return publish.owner_epoch
        case _:
            return None


def reply_of(operation: ops.Operation[R], reply: Sequence[Any], run_id: str) -> R:
    """Read a script's reply.

    Raises:
        CoordinationError: The script refused; as the ledger does.
        SerializationError: A stored record does not decode.
    """
    code, parts = reply[0].decode(), reply[1:]
    if code not in ("ok", "no_work", "closed", "lease"):
        replies.raise_refusal(code, parts, run_id, caller_of(operation), owner_epoch_of(operation))
    result: R = _READERS[type(operation)](operation, code, parts)
    return result


def _read_fused(operation: ops.PublishAndClaim, _: str, parts: Sequence[bytes]) -> Any:
    published = replies.publish_reply(parts[:3])
    return published, replies.claim_reply(parts[3].decode(), parts[4:], operation.claim.worker)


def _read_heartbeat(_: ops.Heartbeat, __: str, parts: Sequence[bytes]) -> HeartbeatReply:
    signal, completed, *lost = parts
    return HeartbeatReply(
        lost=tuple(
            LostLease(task_id=task.decode(), epoch=int(epoch), why=why.decode())  # type: ignore[arg-type]
            for task, epoch, why in zip(lost[::3], lost[1::3], lost[2::3], strict=True)
        ),
        signal=Signal.read(signal.decode()),
        completed=completed == b"1",
    )


def _read_events(_: ops.SendEvents, __: str, parts: Sequence[bytes]) -> EventsReply:
    acked, gap, superseded = parts
    return EventsReply(acked=int(acked), gap=gap == b"1", superseded=superseded == b"1")


def _read_leases(_: ops.ActiveLeases, __: str, parts: Sequence[bytes]) -> tuple[Lease, ...]:
    from towline.clock.clock import moment

    rows = [parts[start : start + 7] for start in range(0, len(parts), 7)]
    leases = [
        Lease(
            task_id=task.decode(),
            epoch=int(epoch),
            worker_id=worker.decode(),
            session=session.decode(),
            assignment=replies.decode(Assignment, payload, f"payload[{task.decode()}]"),
            claimed_at=moment(int(claimed) / 1000),
            expires_in_ms=int(left),
        )
        for task, epoch, claimed, worker, session, left, payload in rows
    ]
    return tuple(sorted(leases, key=lambda lease: lease.task_id))


def _read_workers(_: ops.ReadWorkers, __: str, parts: Sequence[bytes]) -> tuple[WorkerRegistration, ...]:
    workers = [replies.decode(WorkerRegistration, data, "workers") for data in parts[::3]]
    return tuple(sorted(workers, key=lambda worker: worker.worker_id))


def _read_statuses(_: ops.ReadStatuses, __: str, parts: Sequence[bytes]) -> tuple[WorkerStatus, ...]:
    statuses = [
        msgspec.structs.replace(replies.decode(WorkerStatus, data, "status"), silent_ms=int(silent))
        for data, silent in zip(parts[1::3], parts[2::3], strict=True)
        if data
    ]
    return tuple(sorted(statuses, key=lambda status: status.worker_id))


_READERS: dict[type[ops.Operation[Any]], Callable[[Any, str, Sequence[Any]], Any]] = {
    ops.Claim: lambda operation, code, parts: replies.claim_reply(code, parts, operation.worker),
    ops.PublishAndClaim: _read_fused,
    ops.Publish: lambda _, __, parts: replies.publish_reply(parts),
    ops.Heartbeat: _read_heartbeat,
    ops.Register: lambda _, __, parts: replies.run_state(parts),
    ops.OpenRun: lambda _, __, parts: replies.run_state(parts),
    ops.ReadRun: lambda _, __, parts: replies.run_state(parts),
    ops.AbandonClaim: lambda _, __, parts: parts[0] == b"1",
    ops.Release: lambda _, __, parts: parts[0] == b"1",
    ops.Expel: lambda _, __, parts: parts[0] == b"1",
    ops.SendEvents: _read_events,
    ops.ReadOutcome: lambda operation, _, parts: (
        replies.stored_outcome(operation.task_id, parts[0]) if parts and parts[0] is not None else None
    ),
    ops.ReadWorkVersion: lambda _, __, parts: int(parts[0]),
    ops.Beat: lambda _, __, parts: int(parts[0]),
    ops.Enqueue: lambda _, __, parts: tuple(part == b"1" for part in parts),
    ops.Withdraw: lambda _, __, parts: frozenset(part.decode() for part in parts),
    ops.ActiveLeases: _read_leases,
    ops.ReadWorkers: _read_workers,
    ops.ReadStatuses: _read_statuses,
    ops.RequeueExpired: lambda _, __, parts: tuple(replies.feed_entry(*entry) for entry in parts[0]),
    ops.ReadFeed: lambda _, __, parts: tuple(replies.feed_entry(*entry) for entry in parts[0]),
    ops.ReceiveEvents: lambda _, __, parts: tuple(replies.event_batch(flat) for _, flat in parts[0]),
    ops.TrimFeed: lambda *_: None,
    ops.AcknowledgeEvents: lambda *_: None,
    ops.Complete: lambda *_: None,
    ops.SendSignal: lambda _, __, parts: Signal.read(parts[0].decode()),
}
