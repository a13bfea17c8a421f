"""Claims, releases and losses: the life of a lease (COORD-C30 to C49)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.clock.clock import moment
from towline.coordination.ledger.events import with_outcome
from towline.coordination.ledger.outcomes import settle
from towline.coordination.ledger.queue import best_task, put_back, take_out
from towline.coordination.ledger.state import LastClaim, LeaseRow
from towline.coordination.losses import lost_outcome
from towline.coordination.records import Closed, Lease, NoWork
from towline.coordination.signals import Signal
from towline.errors.coordination import SessionEndedError, SessionReplacedError

if TYPE_CHECKING:
    from towline.coordination.ledger.state import SessionRow, Step, TaskRow
    from towline.coordination.losses import LossCode
    from towline.coordination.operations import AbandonClaim, ActiveLeases, Claim, Release, RequeueExpired
    from towline.coordination.records import ClaimReply, FeedEntry, SessionRef

EPOCHS_PER_JUMP = 2**20
"""By how much one jump lifts every epoch: above whatever a lost tail of the store may have granted (COORD-C48)."""


def require_session(step: Step, ref: SessionRef) -> SessionRow:
    """Return a session that may act.

    Raises:
        SessionReplacedError: The worker id belongs to a newer process.
        SessionEndedError: It is unknown, silent, swept or expelled.
    """
    session = step.state.sessions.get(ref.worker_id)
    if session is not None and session.registration.session != ref.session:
        raise SessionReplacedError(ref.worker_id, ref.session, session.registration.session)
    if session is None or session.ended or session.alive_until_ms <= step.now_ms:
        raise SessionEndedError(ref.worker_id, ref.session, session is not None and session.ended == "expelled")
    return session


def claim(step: Step, operation: Claim) -> ClaimReply:
    """Lease the best task, or say why there is none."""
    state, run = step.state, step.run
    if state.completed:
        return Closed("completed")
    if state.signal is Signal.STOPPED:
        return Closed("stopped")
    again = _repeated(step, operation)
    if again is not None:
        return again
    session = require_session(step, operation.worker)
    row = None if session.final else best_task(step, session)
    if row is None:
        return NoWork(state.work_version)
    take_out(state, row)
    row.state = "leased"
    assignment = row.assignment
    row.last_epoch = 1 + max(row.last_epoch, assignment.epoch_floor, EPOCHS_PER_JUMP * state.epoch_jumps)
    state.leases[assignment.task_id] = LeaseRow(
        epoch=row.last_epoch,
        worker_id=operation.worker.worker_id,
        session=operation.worker.session,
        token=operation.token,
        claimed_ms=step.now_ms,
        expires_ms=step.now_ms + run.worker_timeout_ms,
    )
    session.last_claim = LastClaim(operation.token, assignment.task_id, row.last_epoch)
    step.feed("claimed", task_id=assignment.task_id, epoch=row.last_epoch, worker_id=operation.worker.worker_id)
    lease = lease_of(step, assignment.task_id)
    step.effects.claims.append(lease)
    return lease


def _repeated(step: Step, operation: Claim | AbandonClaim) -> Lease | None:
    """Return what this token was given, while it is held (COORD-C35)."""
    state = step.state
    session = state.sessions.get(operation.worker.worker_id)
    if session is None or session.last_claim is None or session.registration.session != operation.worker.session:
        return None
    last = session.last_claim
    lease = state.leases.get(last.task_id)
    if last.token != operation.token or lease is None:
        return None
    held = lease.session == operation.worker.session and lease.epoch == last.epoch
    return lease_of(step, last.task_id) if held else None


def lease_of(step: Step, task_id: str) -> Lease:
    """Make the record of a held lease, with the time that is left to it."""
    lease = step.state.leases[task_id]
    return Lease(
        task_id=task_id,
        epoch=lease.epoch,
        worker_id=lease.worker_id,
        session=lease.session,
        assignment=step.state.tasks[task_id].assignment,
        claimed_at=moment(lease.claimed_ms / 1000),
        expires_in_ms=lease.expires_ms - step.now_ms,
    )


def abandon_claim(step: Step, operation: AbandonClaim) -> bool:
    """Give back the lease that a cancelled claim was granted, if any (COORD-C33)."""
    lease = _repeated(step, operation)
    if lease is None:
        return False
    release_lease(step, lease.task_id, started=False)
    return True


def release(step: Step, operation: Release) -> bool:
    """Give a lease back at its old place, uncounted (COORD-C49); a started at-most-once task fails (COORD-C45)."""
    step.require_run()
    require_session(step, operation.worker)
    lease = step.state.leases.get(operation.lease.task_id)
    if lease is None or lease.epoch != operation.lease.epoch or lease.session != operation.worker.session:
        return False
    release_lease(step, operation.lease.task_id, started=operation.started)
    return True


def release_lease(step: Step, task_id: str, *, started: bool) -> None:
    """End a lease without counting it as a loss."""
    state, row = step.state, step.state.tasks[task_id]
    lease = state.leases.pop(task_id)
    if started and row.assignment.at_most_once:
        row.lost_workers.append(lease.worker_id)
        _fail(step, row, lease.epoch, "lease_lost")
        return
    put_back(state, row)
    step.feed("released", task_id=task_id, epoch=lease.epoch, worker_id=lease.worker_id)
    step.raise_work_version()


def requeue_expired(step: Step, operation: RequeueExpired) -> tuple[FeedEntry, ...]:
    """End leases and sessions that were not renewed in time (COORD-C41)."""
    step.require_master(operation.owner_epoch)
    state, now_ms = step.state, step.now_ms
    if now_ms < state.requeue_after_ms:
        return ()
    first = state.feed_seq
    expired = sorted(
        (lease.expires_ms, task_id) for task_id, lease in state.leases.items() if lease.expires_ms <= now_ms
    )
    for _, task_id in expired:
        lose_lease(step, task_id)
    silent = sorted(
        (session.alive_until_ms, worker_id)
        for worker_id, session in state.sessions.items()
        if session.alive_until_ms <= now_ms and not session.final and not session.ended
    )
    for _, worker_id in silent:
        state.sessions[worker_id].ended = "silent"
        step.feed("worker_gone", worker_id=worker_id, why="silent")
    return tuple(with_outcome(state, entry) for entry in state.feed[len(state.feed) - (state.feed_seq - first) :])


def lose_lease(step: Step, task_id: str) -> None:
    """Count a lease as lost: the task goes back to its place, or fails (COORD-C44, C45)."""
    state, row, run = step.state, step.state.tasks[task_id], step.run
    lease = state.leases.pop(task_id)
    row.lost_workers.append(lease.worker_id)
    if row.assignment.at_most_once:
        _fail(step, row, lease.epoch, "lease_lost")
    elif len(row.lost_workers) > run.requeue_limit:
        _fail(step, row, lease.epoch, "requeue_limit")
    else:
        row.avoid, row.avoid_until_ms = lease.worker_id, step.now_ms + run.worker_timeout_ms
        put_back(state, row)
        step.feed("requeued", task_id=task_id, epoch=lease.epoch, worker_id=lease.worker_id, why="expired")
        step.raise_work_version()


def _fail(step: Step, row: TaskRow, epoch: int, code: LossCode) -> None:
    outcome = lost_outcome(row.assignment.task_id, epoch, code, row.lost_workers, step.now_ms)
    settle(step, outcome, why=code)


def active_leases(step: Step, operation: ActiveLeases) -> tuple[Lease, ...]:
    """Return all leases, sorted by task."""
    step.require_master(operation.owner_epoch)
    return tuple(lease_of(step, task_id) for task_id in sorted(step.state.leases))
