"""What a task waits for, in words, for views and ``towline why`` (CTL-17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.execution.links import dependencies
from towline.execution.scheduler_states import (
    BLOCKED,
    DISPATCHED,
    EXPANDED,
    EXPANDING,
    FINAL,
    OUTSIDE,
    READY,
    UNEXPANDED,
    WAITING,
)

if TYPE_CHECKING:
    from towline.execution.standing import Standing


def dependency_waits(task: int, standing: Standing) -> str:
    """Name the dependencies of a task that are still open: the first, and how many more."""
    row = standing.rows[task]
    open_names = [
        name for name, _ in dependencies(row) if standing.states[standing.places[name]] not in (FINAL, OUTSIDE)
    ]
    if not open_names:
        outside = [name for name, _ in dependencies(row) if standing.states[standing.places[name]] == OUTSIDE]
        return f"waits for {outside[0]}, which is no part of this run" if outside else "waits for nothing"
    more = f" and {len(open_names) - 1} more" if len(open_names) > 1 else ""
    return f"waits for {open_names[0]}{more}"


def waits_for(task: int, standing: Standing, right: str | None, at_exclusive: int | None, is_parked: bool) -> str:
    """Say what a task waits for, or nothing where it does not wait.

    Args:
        task: Its place.
        standing: Where all tasks stand.
        right: The right at which it waits, in words.
        at_exclusive: The task that must be alone, if that is what keeps this one; itself if it is that task.
        is_parked: Whether it waits for an earlier tier.
    """
    state = standing.states[task]
    if state in (FINAL, OUTSIDE):
        return ""
    if state == BLOCKED:
        return "blocked by its own findings"
    if task in standing.gates.held:
        return f"waits for {standing.ids[standing.gates.held[task]]}, which is blocked"
    if state == EXPANDING:
        return "waits for its items"
    if state == EXPANDED:
        return "waits for its children"
    if state == DISPATCHED:
        return "waits for a worker"
    if state == READY:
        if is_parked:
            return "waits for an earlier tier"
        if right is not None:
            return f"waits for {right}"
        if at_exclusive == task:
            return "waits until nothing else runs"
        if at_exclusive is not None:
            return f"waits for {standing.ids[at_exclusive]}, which runs alone"
        return "waits for a slot"
    return dependency_waits(task, standing) if state in (WAITING, UNEXPANDED) else ""
