"""What a view may ask of a run under way, beyond its events: what tasks wait for, and how long it will take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from towline.execution.forecast import Eta


class RunLook(Protocol):
    """Asked in the loop's thread, between turns of the engine. Changes nothing."""

    def waits_for(self, task: str) -> str:
        """Say what a task waits for: ``waits for lock db``; empty if it does not wait (CTL-17)."""
        ...

    def eta(self) -> Eta:
        """Simulate what is left. Costs time in proportion to the open tasks: ask rarely (CTL-19, CTL-20)."""
        ...
