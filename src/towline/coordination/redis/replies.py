"""What scripts answer, as records; refusals as the errors that the ledger raises."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NoReturn

import hiredis
import msgspec

from towline.clock.clock import moment
from towline.coordination.losses import LossCode, lost_outcome
from towline.coordination.records import (
    Assignment,
    ClaimReply,
    Closed,
    EventBatch,
    FeedEntry,
    Lease,
    NoWork,
    OutcomeRecord,
    PublishReply,
    RunOpening,
    RunState,
    SessionRef,
    WorkerRegistration,
)
from towline.coordination.signals import Signal
from towline.errors.coordination import (
    CoordinationError,
    MasterAliveError,
    MasterReplacedError,
    ProgramMismatchError,
    RunIdUsedError,
    RunUnknownError,
    SessionEndedError,
    SessionReplacedError,
    TooManyRequirementsError,
    WorkerIdTakenError,
)
from towline.errors.values import SerializationError
from towline.events.records import Event

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

Parts = "Sequence[Any]"

_DECODERS: dict[object, msgspec.json.Decoder[Any]] = {}


def decode(kind: type[T], data: bytes, where: str) -> T:
    """Decode a stored record.

    Raises:
        SerializationError: It was altered, cut, or is of another version; ``where`` names its key.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        record: T = decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SerializationError(where, str(error)) from error
    return record


def raise_refusal(
    code: str, parts: Sequence[bytes], run_id: str, worker: SessionRef, owner_epoch: int | None
) -> NoReturn:
    """Raise the error that a script's refusal stands for."""
    text = [part.decode() for part in parts[:3]]
    match code:
        case "run_unknown":
            raise RunUnknownError("")
        case "master_replaced":
            raise MasterReplacedError(run_id, owner_epoch or 0, int(text[0]))
        case "master_alive":
            raise MasterAliveError(run_id, text[0], int(text[1]), int(text[2]) / 1000)
        case "program_mismatch":
            raise ProgramMismatchError(text[0], text[1], text[2])
        case "run_id_used":
            raise RunIdUsedError(run_id)
        case "session_replaced":
            raise SessionReplacedError(worker.worker_id, worker.session, text[0])
        case "session_ended":
            raise SessionEndedError(worker.worker_id, worker.session, text[0] == "1")
        case "worker_id_taken":
            holder = decode(WorkerRegistration, parts[1], f"workers[{worker.worker_id}]")
            raise WorkerIdTakenError(holder.worker_id, holder.host, holder.pid, int(text[0]) / 1000)
        case "too_many_requirements":
            raise TooManyRequirementsError(int(text[0]), int(text[1]))
        case _:
            raise CoordinationError(f"the server answered {code!r}, which this version does not know")


def run_state(parts: Sequence[bytes]) -> RunState:
    """Read the answer about a run."""
    if parts[0] == b"unknown":
        return RunState(state="unknown")
    state, signal, silent, opening_json = parts
    opening = decode(RunOpening, opening_json, "meta.opening")
    return RunState(
        state=state.decode(),  # type: ignore[arg-type]
        signal=Signal.read(signal.decode()),
        owner_epoch=opening.owner_epoch,
        master_silent_ms=int(silent),
        master_timeout_ms=opening.master_timeout_ms,
        worker_timeout_ms=opening.worker_timeout_ms,
        program=opening.program,
        fingerprint=opening.fingerprint,
        params=opening.params,
        state_id=opening.state_id,
        plan_id=opening.plan_id,
    )


def claim_reply(code: str, parts: Sequence[bytes], worker: SessionRef) -> ClaimReply:
    """Read what a claim got."""
    if code == "no_work":
        return NoWork(int(parts[0]))
    if code == "closed":
        return Closed(parts[0].decode())  # type: ignore[arg-type]
    task_id, epoch, claimed_ms, left_ms, payload, *brought = parts
    return Lease(
        task_id=task_id.decode(),
        epoch=int(epoch),
        worker_id=worker.worker_id,
        session=worker.session,
        assignment=decode(Assignment, payload, f"payload[{task_id.decode()}]"),
        claimed_at=moment(int(claimed_ms) / 1000),
        expires_in_ms=int(left_ms),
        brought=_brought(brought),
    )


def _brought(parts: Sequence[bytes]) -> tuple[OutcomeRecord, ...]:
    """Read the outcomes that came along; one that does not decode is left to its own read, which fails the task."""
    found: list[OutcomeRecord] = []
    for task_id, stored in zip(parts[::2], parts[1::2], strict=True):
        with contextlib.suppress(SerializationError):
            found.append(stored_outcome(task_id.decode(), stored))
    return tuple(found)


def granted(message: bytes, worker: SessionRef, token: str) -> Lease | None:
    """Read the lease that came with a wake-up; ``None`` when it was made for another claim, whose caller has gone."""
    reader = hiredis.Reader()
    reader.feed(message)
    session, claim, code, *parts = reader.gets()
    if session.decode() != worker.session or claim.decode() != token:
        return None
    reply = claim_reply(code.decode(), parts, worker)
    return reply if isinstance(reply, Lease) else None


def publish_reply(parts: Sequence[bytes]) -> PublishReply:
    """Read whether an outcome was accepted."""
    accepted, state, epoch = parts
    return PublishReply(
        accepted=accepted == b"1",
        final_state=state.decode() or None,  # type: ignore[arg-type]
        final_epoch=int(epoch) if epoch else None,
    )


def stored_outcome(task_id: str, stored: bytes) -> OutcomeRecord:
    """Read an outcome as it is stored: ``state|epoch|worker|`` and JSON, or the marker of a loss (COORD-R07)."""
    _, epoch, _, text = stored.split(b"|", 3)
    if text.startswith(b"!"):
        code, workers, at_ms = text[1:].decode().split("|")
        loss: LossCode = "lease_lost" if code == "lease_lost" else "requeue_limit"
        return lost_outcome(task_id, int(epoch), loss, workers.split(","), int(at_ms))
    return decode(OutcomeRecord, text, f"outcomes[{task_id}]")


def feed_entry(entry_id: bytes, flat: Sequence[bytes]) -> FeedEntry:
    """Read an entry of the feed; one without its outcome gets it later, by :func:`stored_outcome`."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))

    def text(name: bytes) -> str | None:
        value = fields.get(name)
        return None if value is None else value.decode()

    epoch, outcome = fields.get(b"e"), fields.get(b"o")
    return FeedEntry(
        seq=int(entry_id.split(b"-")[0]),
        kind=fields[b"k"].decode(),  # type: ignore[arg-type]
        task_id=text(b"t"),
        epoch=None if epoch is None else int(epoch),
        worker_id=text(b"w"),
        outcome=None if outcome is None else decode(OutcomeRecord, outcome, f"feed[{entry_id.decode()}]"),
        why=text(b"y"),
        at_ms=int(fields[b"a"]),
        has_events=fields.get(b"v") != b"0",
    )


def event_batch(flat: Sequence[bytes]) -> EventBatch:
    """Read a stored batch of events."""
    header = decode(EventBatch, flat[7], "events.header")
    events = tuple(decode(Event, data, "events.event") for data in flat[9::2])
    return msgspec.structs.replace(header, events=events)
