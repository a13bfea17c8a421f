"""When a dependency lets its dependent go on: one rule for planner, scheduler and resume (PLAN-08)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.planning.records import FINAL_STATES

if TYPE_CHECKING:
    from towline.planning.records import EdgeUse, TaskState


def satisfied(use: EdgeUse, state: TaskState, *, ignored: bool = False) -> bool | None:
    """Say whether an edge is satisfied: ``True``, ``False`` for ever, or ``None`` while it is not decided.

    ``value`` takes only ``succeeded``; ``order`` also a failure that was ignored; ``optional`` and
    ``outcome`` any final state.
    """
    if state not in FINAL_STATES:
        return None
    if use in ("optional", "outcome") or state == "succeeded":
        return True
    return use == "order" and ignored
