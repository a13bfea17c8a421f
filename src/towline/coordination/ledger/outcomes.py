"""Final outcomes: which one counts (COORD-C50 to C56)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.coordination.ledger.events import store_events
from towline.coordination.ledger.queue import take_out
from towline.coordination.ledger.state import outcome_key
from towline.coordination.records import PublishReply

if TYPE_CHECKING:
    from towline.coordination.ledger.state import Step
    from towline.coordination.operations import Publish, ReadOutcome
    from towline.coordination.records import OutcomeRecord


def publish(step: Step, operation: Publish) -> PublishReply:
    """Store events and outcome and end the lease, or refuse the outcome."""
    if operation.lease is None and operation.owner_epoch is not None:
        step.require_master(operation.owner_epoch)
    step.require_run()
    if operation.events is not None:
        store_events(step, operation.events)
    outcome = operation.outcome
    final = step.state.outcomes.get(outcome.task_id)
    if final is not None:
        # The state counts too: a lost at-most-once task failed under its last holder's name (COORD-C45, C54).
        is_repeat = (final.epoch, final.worker_id, final.state) == (outcome.epoch, outcome.worker_id, outcome.state)
        return PublishReply(accepted=is_repeat, final_state=final.state, final_epoch=final.epoch)
    if operation.lease is not None and not _may_publish(step, outcome):
        return PublishReply(accepted=False)
    settle(step, outcome)
    return PublishReply(accepted=True, final_state=outcome.state, final_epoch=outcome.epoch)


def _may_publish(step: Step, outcome: OutcomeRecord) -> bool:
    """Say whether a worker's outcome counts (COORD-C52).

    Done work counts whoever holds the lease now; anything else only from the holder, so that a worker that
    lost its lease fails nothing.
    """
    row = step.state.tasks.get(outcome.task_id)
    if row is None:
        return False
    if outcome.state in ("succeeded", "skipped"):
        return 1 <= outcome.epoch <= max(row.last_epoch, row.assignment.epoch_floor)
    lease = step.state.leases.get(outcome.task_id)
    return lease is not None and (lease.epoch, lease.worker_id) == (outcome.epoch, outcome.worker_id)


def settle(step: Step, outcome: OutcomeRecord, *, why: str | None = None) -> None:
    """Make an outcome final; the queued copy or a newer lease ends in the same step (COORD-C53)."""
    state, task_id = step.state, outcome.task_id
    row = state.tasks.get(task_id)
    if row is not None:
        if row.state == "queued":
            take_out(state, row)
        row.state = "final"
    state.leases.pop(task_id, None)
    state.outcomes[task_id] = outcome
    step.feed("finished", task_id=task_id, epoch=outcome.epoch, worker_id=outcome.worker_id, why=why)
    step.wake(outcome_key(task_id))


def read_outcome(step: Step, operation: ReadOutcome) -> OutcomeRecord | None:
    """Return a final outcome, if there is one."""
    step.require_run()
    return step.state.outcomes.get(operation.task_id)
