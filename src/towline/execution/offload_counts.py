"""What the kernel calls of each task came to, gathered from the events of its attempts (OFF-909)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from towline.events.records import Event


class OffloadCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Kernel calls of one task over all its attempts. ``declined`` counts those that stayed on its node, by reason."""

    offloaded: int = 0
    declined: dict[str, int] = {}
    redispatched: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0

    def plus(self, detail: Mapping[str, Any]) -> OffloadCounts:
        """Add what one attempt left when it closed; what it does not say counts as none."""
        declined = dict(self.declined)
        for reason, count in detail.get("declined", {}).items():
            declined[reason] = declined.get(reason, 0) + count
        return OffloadCounts(
            offloaded=self.offloaded + detail.get("offloaded", 0),
            declined=declined,
            redispatched=self.redispatched + detail.get("redispatched", 0),
            bytes_sent=self.bytes_sent + detail.get("bytes_sent", 0),
            bytes_received=self.bytes_received + detail.get("bytes_received", 0),
        )


class OffloadTally:
    """Listens to the events of a run, those of its workers too, and adds to ``by_task``."""

    def __init__(self, by_task: dict[str, OffloadCounts]) -> None:
        self.by_task = by_task

    def __call__(self, batch: Sequence[Event]) -> None:
        """Take a batch of events."""
        for event in batch:
            detail = closed_attempt(event)
            if detail is not None and event.task is not None:
                self.by_task[event.task] = self.by_task.get(event.task, OffloadCounts()).plus(detail)


def closed_attempt(event: Event) -> Mapping[str, Any] | None:
    """Return the counts that an event brings, if it is the one that an attempt leaves when its offload closes."""
    if event.kind != "offload" or event.data.get("event") != "attempt_closed":
        return None
    detail: Mapping[str, Any] = event.data["detail"]
    return detail
