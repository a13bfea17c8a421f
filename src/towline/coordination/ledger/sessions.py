"""Worker sessions: who is alive, and what a heartbeat renews (COORD-C01 to C11, C42, C43)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from towline.coordination.ledger.leases import lose_lease, release_lease
from towline.coordination.ledger.queue import fits
from towline.coordination.ledger.runs import run_state
from towline.coordination.ledger.state import SessionRow
from towline.coordination.records import WIRE, HeartbeatReply, LostLease
from towline.errors.coordination import (
    ProgramMismatchError,
    SessionEndedError,
    SessionReplacedError,
    WorkerIdTakenError,
)

if TYPE_CHECKING:
    from towline.coordination.ledger.state import LedgerState, Step
    from towline.coordination.operations import Expel, Heartbeat, ReadStatuses, ReadWorkers, Register
    from towline.coordination.records import LeaseRef, LossReason, RunState, WorkerRegistration, WorkerStatus


def register(step: Step, operation: Register) -> RunState:
    """Open a session, reconnect it, or let it replace a silent one."""
    registration, state = operation.registration, step.state
    _check_program(step, registration)
    current = state.sessions.get(registration.worker_id)
    if current is not None and current.registration.session == registration.session:
        _reconnect(step, current, registration)
    else:
        if current is not None:
            _replace(step, current)
        _open(step, registration)
    return run_state(state, step.now_ms)


def _check_program(step: Step, registration: WorkerRegistration) -> None:
    run = step.run
    if registration.program != run.program:
        raise ProgramMismatchError("program", run.program, registration.program)
    if registration.fingerprint != run.fingerprint:
        raise ProgramMismatchError("fingerprint", run.fingerprint, registration.fingerprint)
    if registration.wire != WIRE:
        raise ProgramMismatchError("wire", str(WIRE), str(registration.wire))


def _open(step: Step, registration: WorkerRegistration) -> None:
    state = step.state
    capabilities = tuple(sorted({name.casefold() for name in registration.capabilities}))
    state.sessions[registration.worker_id] = SessionRow(
        registration=registration,
        alive_until_ms=step.now_ms + step.run.worker_timeout_ms,
        capabilities=capabilities,
        fits=[number for number, bucket in enumerate(state.buckets) if fits(bucket.clauses, capabilities)],
        unknown_held=_unknown_held(state, registration),
    )
    step.feed("registered", worker_id=registration.worker_id)


def _reconnect(step: Step, session: SessionRow, registration: WorkerRegistration) -> None:
    """Refresh life; what the worker no longer holds goes back, uncounted (COORD-C02, C10)."""
    if session.ended == "expelled":
        raise SessionEndedError(registration.worker_id, registration.session, True)
    held = {(lease.task_id, lease.epoch) for lease in registration.held}
    for task_id in _leases_of(step.state, registration.worker_id):
        if (task_id, step.state.leases[task_id].epoch) not in held:
            release_lease(step, task_id, started=True)
    session.unknown_held = _unknown_held(step.state, registration)
    session.alive_until_ms = step.now_ms + step.run.worker_timeout_ms
    if session.ended:
        session.ended = ""
        step.feed("registered", worker_id=registration.worker_id)


def _replace(step: Step, current: SessionRow) -> None:
    """End the session of a process that is gone; a living one keeps its id (COORD-C03, C04)."""
    holder = current.registration
    if current.is_live(step.now_ms):
        silent_ms = step.now_ms + step.run.worker_timeout_ms - current.alive_until_ms
        raise WorkerIdTakenError(holder.worker_id, holder.host, holder.pid, silent_ms / 1000)
    if not current.ended and not current.final:
        step.feed("worker_gone", worker_id=holder.worker_id, why="replaced")
    for task_id in _leases_of(step.state, holder.worker_id):
        lose_lease(step, task_id)


def _leases_of(state: LedgerState, worker_id: str) -> list[str]:
    return sorted(task_id for task_id, lease in state.leases.items() if lease.worker_id == worker_id)


def _unknown_held(state: LedgerState, registration: WorkerRegistration) -> list[LostLease]:
    return [
        LostLease(task_id=lease.task_id, epoch=lease.epoch, why="unknown")
        for lease in registration.held
        if not _holds(state, lease, registration.session)
    ]


def _holds(state: LedgerState, lease: LeaseRef, session: str) -> bool:
    row = state.leases.get(lease.task_id)
    return row is not None and row.epoch == lease.epoch and row.session == session


def heartbeat(step: Step, operation: Heartbeat) -> HeartbeatReply:
    """Refresh life and the listed leases; name the listed ones that are lost (COORD-C42, C43)."""
    status, state, run = operation.status, step.state, step.run
    session = state.sessions.get(status.worker_id)
    if session is not None and session.registration.session != status.session:
        raise SessionReplacedError(status.worker_id, status.session, session.registration.session)
    if session is None or session.ended:
        raise SessionEndedError(status.worker_id, status.session, session is not None and session.ended == "expelled")
    session.status = status
    session.alive_until_ms = step.now_ms + run.worker_timeout_ms
    lost = list(session.unknown_held)
    session.unknown_held = []
    told = {(entry.task_id, entry.epoch) for entry in lost}
    for lease in status.in_flight:
        if _holds(state, lease, status.session):
            state.leases[lease.task_id].expires_ms = step.now_ms + run.worker_timeout_ms
        elif (lease.task_id, lease.epoch) not in told:
            lost.append(LostLease(task_id=lease.task_id, epoch=lease.epoch, why=_loss(state, lease.task_id)))
    if status.is_final and not session.final:
        _end_politely(step, session)
    return HeartbeatReply(lost=tuple(lost), signal=state.signal, completed=state.completed)


def _loss(state: LedgerState, task_id: str) -> LossReason:
    if task_id in state.outcomes:
        return "finished"
    row = state.tasks.get(task_id)
    if row is None or row.state == "absent":
        return "unknown"
    return "taken" if row.state == "leased" else "expired"


def _end_politely(step: Step, session: SessionRow) -> None:
    """A worker said goodbye: what it still holds is queued again, uncounted (COORD-C06)."""
    session.final = True
    worker_id = session.registration.worker_id
    for task_id in _leases_of(step.state, worker_id):
        release_lease(step, task_id, started=True)
    step.feed("worker_gone", worker_id=worker_id, why="final")


def expel(step: Step, operation: Expel) -> bool:
    """End a session as if it were silent; its later calls are told so (COORD-C11)."""
    step.require_master(operation.owner_epoch)
    session = step.state.sessions.get(operation.worker_id)
    if session is None:
        return False
    if not session.ended and not session.final:
        step.feed("worker_gone", worker_id=operation.worker_id, why="expelled")
    session.ended = "expelled"
    for task_id in _leases_of(step.state, operation.worker_id):
        lose_lease(step, task_id)
    return True


def read_workers(step: Step, operation: ReadWorkers) -> tuple[WorkerRegistration, ...]:
    """Return the sessions that are alive or ended with a final status (COORD-C01, C05)."""
    step.require_master(operation.owner_epoch)
    return tuple(session.registration for session in _known(step))


def read_statuses(step: Step, operation: ReadStatuses) -> tuple[WorkerStatus, ...]:
    """Return the latest status of each of them, with how long it has been silent."""
    step.require_master(operation.owner_epoch)
    alive_ms = step.now_ms + step.run.worker_timeout_ms
    return tuple(
        msgspec.structs.replace(session.status, silent_ms=max(0, alive_ms - session.alive_until_ms))
        for session in _known(step)
        if session.status is not None
    )


def _known(step: Step) -> list[SessionRow]:
    sessions = step.state.sessions
    return [sessions[name] for name in sorted(sessions) if sessions[name].final or sessions[name].is_live(step.now_ms)]
