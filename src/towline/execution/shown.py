"""The plan as events show it: all tasks, in parts (EVT-03)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from towline.planning.records import PlannedTask

TASKS_PER_PART = 1_000
SHOWN = (
    "key",
    "phase",
    "reason",
    "reason_text",
    "blocked_by",
    "worker",
    "started_at",
    "finished_at",
    "done",
    "total",
    "checkpoint_at",
    "findings",
    "parent",
)


def shown_task(row: PlannedTask) -> dict[str, Any]:
    """Return what whoever looks may know of one task: no digest, no value."""
    data: dict[str, Any] = {
        "id": row.id,
        "module": row.module,
        "tier": row.tier,
        "state": row.state,
        "depends_on": row.depends_on,
        "attempts": row.attempts,
        "epoch": row.epoch,
    }
    for name in SHOWN:
        value = getattr(row, name)
        if value is not None:
            data[name] = value
    if row.gate:
        data["gate"] = True
    if row.join:
        data["join"] = True
    if row.always_run:
        data["always_run"] = True
    return data


def parts_of(rows: Sequence[PlannedTask]) -> Iterator[dict[str, Any]]:
    """Cut the tasks into event data of at most 1,000 each; an empty plan is one empty part."""
    parts = max(1, -(-len(rows) // TASKS_PER_PART))
    for part in range(parts):
        tasks = [shown_task(row) for row in rows[part * TASKS_PER_PART : (part + 1) * TASKS_PER_PART]]
        yield {"part": part + 1, "parts": parts, "tasks": tasks}
