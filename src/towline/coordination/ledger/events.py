"""The master's feed, and workers' events on their way to its log (COORD-C70 to C73)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from towline.coordination.ledger.state import EVENTS
from towline.coordination.records import EventsReply

if TYPE_CHECKING:
    from towline.coordination.ledger.state import LedgerState, Step
    from towline.coordination.operations import AcknowledgeEvents, ReadFeed, ReceiveEvents, SendEvents, TrimFeed
    from towline.coordination.records import EventBatch, FeedEntry


def read_feed(step: Step, operation: ReadFeed) -> tuple[FeedEntry, ...]:
    """Return entries after a position, in order, with the outcomes that they speak of."""
    step.require_master(operation.owner_epoch)
    state = step.state
    kept_from = state.feed_seq - len(state.feed)
    start = max(0, operation.after - kept_from)
    return tuple(with_outcome(state, entry) for entry in state.feed[start : start + operation.limit])


def with_outcome(state: LedgerState, entry: FeedEntry) -> FeedEntry:
    """Fill in the outcome of a ``finished`` entry; the feed itself does not keep a second copy."""
    if entry.kind != "finished" or entry.task_id is None:
        return entry
    return msgspec.structs.replace(entry, outcome=state.outcomes[entry.task_id])


def trim_feed(step: Step, operation: TrimFeed) -> None:
    """Drop entries up to a position; not in a run that was opened anew since, which numbers them anew."""
    step.require_master(operation.owner_epoch)
    state = step.state
    if operation.epoch_jumps != state.epoch_jumps:
        return
    kept_from = state.feed_seq - len(state.feed)
    del state.feed[: max(0, operation.up_to - kept_from)]


def send_events(step: Step, operation: SendEvents) -> EventsReply:
    """Store what is new in a batch."""
    step.require_run()
    return store_events(step, operation.batch)


def session_key(worker_id: str, session: str) -> str:
    """Name a session in the table of stored numbers; ids hold no slash."""
    return f"{worker_id}/{session}"


def store_events(step: Step, batch: EventBatch) -> EventsReply:
    """Store each (session, n) once, without gaps, up to the backlog (COORD-C71, C73)."""
    state = step.state
    key = session_key(batch.worker_id, batch.session)
    stored = state.events_stored.get(key, 0)
    if batch.owner_epoch < step.run.owner_epoch:
        return EventsReply(acked=stored, superseded=True)
    known = max(stored, batch.base)  # what the sender dropped from its spool will never come
    fresh = tuple(event for event in batch.events if event.n > known)
    if fresh and fresh[0].n > known + 1:
        return EventsReply(acked=stored, gap=True)
    if not fresh or state.events_pending + len(fresh) > step.run.event_backlog:
        return EventsReply(acked=stored)
    state.events.append(msgspec.structs.replace(batch, events=fresh))
    state.events_pending += len(fresh)
    state.events_stored[key] = fresh[-1].n
    step.wake(EVENTS)
    return EventsReply(acked=fresh[-1].n)


def receive_events(step: Step, operation: ReceiveEvents) -> tuple[EventBatch, ...]:
    """Return unacknowledged batches in the order of their arrival (COORD-C72)."""
    step.require_master(operation.owner_epoch)
    return tuple(step.state.events[: operation.limit])


def acknowledge_events(step: Step, operation: AcknowledgeEvents) -> None:
    """Drop the batches of a session that end at or before ``n``."""
    step.require_master(operation.owner_epoch)
    state, worker = step.state, operation.worker

    def is_done(batch: EventBatch) -> bool:
        own = batch.worker_id == worker.worker_id and batch.session == worker.session
        return own and batch.events[-1].n <= operation.n

    state.events_pending -= sum(len(batch.events) for batch in state.events if is_done(batch))
    state.events = [batch for batch in state.events if not is_done(batch)]
