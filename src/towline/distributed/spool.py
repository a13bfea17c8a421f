"""A worker's events until the master's log has them (DIST-60 to 62, EVT-09 to 13)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from towline.coordination.records import EventBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.coordination.records import EventsReply, SessionRef
    from towline.events.records import Event

BATCH_LIMIT = 50
SPOOL_LIMIT = 100_000
DROPPABLE = frozenset({"log", "output", "progress", "command", "offload"})


class Spool:
    """Keeps events in order until they are acknowledged.

    At ``SPOOL_LIMIT`` the oldest are dropped; ``base`` then tells the receiver not to wait for them.
    """

    def __init__(self, worker: SessionRef, run_id: str) -> None:
        self._worker, self._run_id = worker, run_id
        self._events: deque[Event] = deque()
        self._base = 0
        self._sent = 0
        self.dropped = 0
        self.owner_epoch = 0

    def __len__(self) -> int:
        return len(self._events)

    def take(self, events: Sequence[Event]) -> None:
        """Add events made just now."""
        self._events.extend(events)
        while len(self._events) > SPOOL_LIMIT:
            self._base = self._events.popleft().n
            self.dropped += 1

    @property
    def has_unsent(self) -> bool:
        """Whether some events have not been sent even once."""
        return bool(self._events) and self._events[-1].n > self._sent

    def unsent(self) -> EventBatch | None:
        """Return the next events to go with an outcome, at most one batch; none when all were sent."""
        fresh = []
        for event in reversed(self._events):
            if event.n <= self._sent:
                break
            fresh.append(event)
        fresh.reverse()
        return self._batch(fresh[:BATCH_LIMIT]) if fresh else None

    def probe(self) -> EventBatch:
        """Return a batch of the next unsent events, or an empty one, whose reply tells what is stored."""
        return self.unsent() or self._batch([])

    def _batch(self, events: Sequence[Event]) -> EventBatch:
        if events:
            self._sent = events[-1].n
        return EventBatch(
            worker_id=self._worker.worker_id,
            session=self._worker.session,
            run_id=self._run_id,
            owner_epoch=self.owner_epoch,
            base=self._base,
            events=tuple(events),
        )

    def acknowledge(self, reply: EventsReply) -> None:
        """Forget what is stored; what was sent and is not stored goes again.

        A receiver that misses what it had acknowledged has lost its data, or it was cleaned up: it is told not to
        wait for that, else the rest would be sent for ever.
        """
        while self._events and self._events[0].n <= reply.acked:
            self._events.popleft()
        self._sent = reply.acked
        if reply.gap and self._events and self._events[0].n > reply.acked + 1:
            self._base = self._events[0].n - 1
