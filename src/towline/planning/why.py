"""Why a task is as it is, told from the rows of the plan alone. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from towline.planning.edges import satisfied
from towline.planning.records import FINAL_STATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from towline.planning.records import PlanDocument, PlannedTask

SUMMARIES = {
    "condition": "its condition did not hold",
    "deselected": "it was left out by the flags of the run",
    "requirement_unmet": "the machine lacks what it requires",
    "dependency_failed": "something that it needs failed",
    "dependency_skipped": "something that it needs was skipped",
    "module_skipped": "its body said that there is nothing to do",
    "cached": "its result came from the cache: nothing that counts for it has changed",
    "pipeline_failed": "another task failed, and the run stops at the first failure (--keep-going would go on)",
    "always_run_budget": "it could not start within the always-run budget after the failure",
    "interrupted": "the run was interrupted; a resume runs it",
    "operator": "an operator cancelled it",
    "stopped": "the run was stopped",
    "blocked": "a gate recorded blocking findings: act on them, then resume",
    "lease_lost": "it was running when the run died; at_most_once forbids a second start unless --retry-failed",
    "expansion_failed": "its items could not be turned into tasks",
    "right_abandoned": "a lock, pool or slot that it needs is held by a body that would not end",
}


class TaskStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One task of an expanded module and its state."""

    task: str
    state: str


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``towline why`` and of ``GET /jobs/{id}/why``. ``facts`` are sentences from recorded fields."""

    task: str
    state: str
    summary: str
    waits_for: tuple[str, ...] = ()
    reason: str | None = None
    reason_text: str | None = None
    blocked_by: str | None = None
    facts: tuple[str, ...] = ()
    tasks: tuple[TaskStanding, ...] = ()
    """Of an ``each`` module: its tasks, in the order of its items."""


class WhyMany(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for a module that a matrix expands: it has no row of its own."""

    module: str
    summary: str
    tasks: tuple[TaskStanding, ...]


def explain_module(module: str, rows: Sequence[PlannedTask]) -> WhyMany:
    """Say how the tasks of an expanded module stand, in the order of the plan."""
    counts = Counter(row.state.replace("_", " ") for row in rows)
    counted = ", ".join(f"{count} {state}" for state, count in counts.items())
    return WhyMany(module=module, summary=f"{_tasks(len(rows))}: {counted}", tasks=_standings(rows))


def _standings(rows: Iterable[PlannedTask]) -> tuple[TaskStanding, ...]:
    return tuple(TaskStanding(task=row.id, state=row.state) for row in rows)


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count:,} tasks"


def explain_task(document: PlanDocument, row: PlannedTask, *, is_living: bool = True) -> Why:
    """Explain one task of a plan.

    ``is_living``: whether the process of the run may still be there; a plan of a dead one says ``running`` too.
    """
    runs = is_living and document.run_state in ("planning", "running", "cancelling")
    rows = {task.id: task for task in document.tasks}
    children = tuple(task for task in document.tasks if task.parent == row.id) if row.join else ()
    waits = tuple(_waits(row, rows)) if row.state not in FINAL_STATES and row.state != "running" else ()
    return Why(
        task=row.id,
        state=row.state,
        summary=_join_summary(row, children) or _summary(document, row, waits, runs=runs),
        waits_for=waits,
        reason=row.reason,
        reason_text=row.reason_text,
        blocked_by=row.blocked_by,
        facts=tuple(_facts(document, row, rows)),
        tasks=_standings(children),
    )


def _join_summary(join: PlannedTask, children: Sequence[PlannedTask]) -> str:
    """Say how the children of an ``each`` module stand; nothing where its own reason says more."""
    if not children or join.reason in SUMMARIES:
        return ""
    done = sum(1 for child in children if child.state == "succeeded")
    if done == len(children):
        return f"all of its {_tasks(done)} succeeded"
    return f"{done:,} of its {_tasks(len(children))} succeeded"


def _summary(document: PlanDocument, row: PlannedTask, waits: tuple[str, ...], *, runs: bool) -> str:
    if row.reason in SUMMARIES:
        return SUMMARIES[row.reason]
    if row.state == "succeeded":
        if _is_kept(document, row):
            return f"run {document.run_id} kept it from an earlier run: nothing that it comes from has changed"
        return "its body ran and gave a result"
    if row.state in ("failed", "timed_out"):
        what = f"{row.error.type.rpartition('.')[2]}: {row.error.text}" if row.error else row.reason_text or "it failed"
        return f"{what} (ignored: the run may go on)" if row.ignored else what
    if row.state == "running":
        return "its body runs" if runs else "it was running when the run ended; a resume goes on with it"
    if waits:
        return "what it needs is not there yet"
    if runs:
        return "everything it needs is there: it waits for a slot, a lock or a pool"
    return "no run has reached it yet"


def _waits(row: PlannedTask, rows: dict[str, PlannedTask]) -> list[str]:
    waits = []
    for name in row.depends_on:
        above = rows[name]
        use = (row.edges or {}).get(name, "value")
        if satisfied(use, above.state, ignored=above.ignored) is not True:
            waits.append(f"{name} ({above.state.replace('_', ' ')})")
    waits += [
        f"gate {name} ({rows[name].state.replace('_', ' ')})"
        for name in row.gates or ()
        if rows[name].state != "succeeded"
    ]
    return waits


def _facts(document: PlanDocument, row: PlannedTask, rows: dict[str, PlannedTask]) -> list[str]:
    facts = []
    if row.reason_text and row.reason_text != SUMMARIES.get(row.reason or ""):
        facts.append(row.reason_text)
    if row.blocked_by:
        cause = rows.get(row.blocked_by)
        error = (
            f": {cause.error.type.rpartition('.')[2]}: {cause.error.text}" if cause is not None and cause.error else ""
        )
        facts.append(f"the cause is {row.blocked_by}{error}")
    if row.error and row.error.where:
        facts.append(f"at {row.error.where}")
    if row.findings:
        counted = ", ".join(f"{count} {severity}" for severity, count in sorted(row.findings.items()))
        facts.append(f"it recorded findings: {counted}")
    if row.done is not None:
        of = f" of {row.total:,}" if row.total is not None else ""
        saved = f", saved at {row.checkpoint_at}" if row.checkpoint_at else ""
        facts.append(f"it has done {row.done:,}{of} items{saved}")
    if row.attempts:
        facts.append(
            f"{row.attempts} attempt{'s' if row.attempts > 1 else ''}, claimed {row.epoch} time{'s' if row.epoch != 1 else ''}"
        )
    if row.finished_at and row.started_at:
        facts.append(f"it ran from {row.started_at} to {row.finished_at}")
    return facts


def _is_kept(document: PlanDocument, row: PlannedTask) -> bool:
    return document.owner is not None and row.finished_at is not None and row.finished_at < document.owner.since
