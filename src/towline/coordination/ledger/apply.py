"""One door for all operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from towline.coordination import operations as ops
from towline.coordination.ledger import events, leases, outcomes, queue, runs, sessions
from towline.coordination.ledger.state import Step
from towline.coordination.records import NoWork
from towline.errors.coordination import SessionEndedError, SessionReplacedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.coordination.ledger.state import Effects, LedgerState
    from towline.coordination.records import ClaimReply, PublishReply

R = TypeVar("R")


def apply(state: LedgerState, operation: ops.Operation[R], now_ms: int) -> tuple[R, Effects]:
    """Change the state by one operation at a moment of the back end's clock, in place.

    Reads no clock, draws no randomness, and iterates only what is ordered: the same operations and times give the
    same replies.

    Raises:
        CoordinationError: The operation is refused; then the state is unchanged.
    """
    step = Step(state, now_ms)
    reply: R = _HANDLERS[type(operation)](step, operation)
    return reply, step.effects


def _publish_and_claim(step: Step, operation: ops.PublishAndClaim) -> tuple[PublishReply, ClaimReply]:
    published = outcomes.publish(step, operation.publish)
    try:
        return published, leases.claim(step, operation.claim)
    except (SessionEndedError, SessionReplacedError):
        # The outcome is stored, its reply must not be lost; a claim of its own will say what is wrong.
        return published, NoWork(step.state.work_version)


_HANDLERS: dict[type[ops.Operation[Any]], Callable[[Step, Any], Any]] = {
    ops.OpenRun: runs.open_run,
    ops.Beat: runs.beat,
    ops.SendSignal: runs.send_signal,
    ops.Complete: runs.complete,
    ops.ReadRun: runs.read_run,
    ops.ReadWorkVersion: runs.read_work_version,
    ops.Register: sessions.register,
    ops.Heartbeat: sessions.heartbeat,
    ops.Expel: sessions.expel,
    ops.ReadWorkers: sessions.read_workers,
    ops.ReadStatuses: sessions.read_statuses,
    ops.Enqueue: queue.enqueue,
    ops.Withdraw: queue.withdraw,
    ops.Claim: leases.claim,
    ops.AbandonClaim: leases.abandon_claim,
    ops.Release: leases.release,
    ops.RequeueExpired: leases.requeue_expired,
    ops.ActiveLeases: leases.active_leases,
    ops.Publish: outcomes.publish,
    ops.PublishAndClaim: _publish_and_claim,
    ops.ReadOutcome: outcomes.read_outcome,
    ops.ReadFeed: events.read_feed,
    ops.TrimFeed: events.trim_feed,
    ops.SendEvents: events.send_events,
    ops.ReceiveEvents: events.receive_events,
    ops.AcknowledgeEvents: events.acknowledge_events,
}
