"""The seam between a master and the run that it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from towline.coordination.records import EventBatch, OutcomeRecord
    from towline.distributed.dispatch import Sent


class MasterHost(Protocol):
    """What the master needs of the run around it."""

    async def outcome_record_of(self, task_id: str) -> OutcomeRecord | None:
        """Return the outcome of a task that ended before, or without, the coordinator; ``None`` if it has none."""
        ...

    async def cached(self, sent: Sent) -> OutcomeRecord | None:
        """Look into the master's cache for a task; ``None``: a worker has to run it (DIST-37)."""
        ...

    async def make_durable(self) -> None:
        """Return once all that was heard from the feed so far is in the journal."""
        ...

    async def with_value(self, record: OutcomeRecord) -> OutcomeRecord:
        """Return the outcome with the value that it refers to (COORD-C57)."""
        ...

    def take_events(self, batch: EventBatch) -> None:
        """Write a worker's events into the run's log."""
        ...

    def note(self, sent: Sent, text: str) -> None:
        """Write a line into the log of a task that is with the workers."""
        ...

    def warn(self, text: str) -> None:
        """Tell the operator."""
        ...

    def is_lost(self, error: Exception) -> None:
        """Mastership or coordinator are lost: the run ends here, with this error."""
        ...
