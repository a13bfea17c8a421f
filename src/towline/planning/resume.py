"""What a resume makes of the rows that it finds: the second table of ``planning.md`` 4.3 (PLAN-29, 33, 37, 53). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from towline.planning.children import join_state
from towline.planning.records import FINAL_STATES, PlannedTask

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

FailedTasks: TypeAlias = Literal["default", "retry", "keep"]
"""What becomes of failed tasks: no flag, ``--retry-failed``, ``--keep-failed``."""

Fate: TypeAlias = Literal["kept", "again", "lost"]
"""``again``: back to ``pending``. ``lost``: it ran when the last run ended and may not start twice."""

FAILED_STATES = frozenset({"failed", "timed_out"})
LASTING_SKIPS = frozenset({"condition", "module_skipped"})
"""Skips that were decided by the task itself; all others follow from the graph and are decided anew."""


class Carried(msgspec.Struct, kw_only=True):
    """What was done to the rows of a plan that goes on. Lists of task ids, in plan order.

    ``again``: were entered or decided before and are pending now. ``lost``: failed by the stop of the last
    run. ``reset``: succeeded, but their result is gone (PLAN-37). ``started_over``: of those above, the
    ones whose cursor, steps and result no longer count.
    """

    again: list[str] = []
    lost: list[str] = []
    reset: list[str] = []
    started_over: list[str] = []


def fate_of(task: PlannedTask, failed: FailedTasks = "default") -> Fate:
    """Return what becomes of one task of unchanged closure, by its state alone."""
    state = task.state
    if state == "succeeded":
        return "kept"
    if state in FAILED_STATES:
        if failed == "retry":
            return "again"
        if failed == "keep" or task.ignored or (task.at_most_once and task.attempts > 0):
            return "kept"
        return "again"
    if state == "running" and task.at_most_once and failed != "retry" and not task.join:
        return "lost"
    if state == "skipped" and task.reason in LASTING_SKIPS:
        return "kept"
    return "again"


def tasks_left(tasks: Iterable[PlannedTask], failed: FailedTasks = "default", missing: Container[str] = ()) -> int:
    """Count the tasks that a resume would run or decide anew; ``missing`` as in ``carry_on``."""
    return sum(
        1 for task in tasks if not task.join and (fate_of(task, failed) == "again" or _is_missing(task, missing))
    )


def unstored_and_needed(tasks: Sequence[PlannedTask], failed: FailedTasks = "default") -> frozenset[str]:
    """Find succeeded tasks whose value was never stored and which something that runs again reads (SER-03).

    ``tasks``: the rows as found, those of the program in topological order, then children.
    """
    if not any(task.unstored for task in tasks):
        return frozenset()
    rows = {task.id: task for task in tasks}
    needed: set[str] = set()
    for task in reversed(tasks):
        if task.id not in needed and fate_of(task, failed) != "again":
            continue
        for name in task.depends_on:
            above = rows[name]
            if (task.edges or {}).get(name, "value") == "order":
                continue
            if above.join:
                needed.update(child.id for child in tasks if child.parent == name and child.unstored)
            elif above.unstored and above.state == "succeeded":
                needed.add(name)
    return frozenset(needed)


def has_failure(tasks: Iterable[PlannedTask]) -> bool:
    """Say whether a failure counts against the run (exit 1)."""
    return any(task.state in FAILED_STATES and not task.ignored for task in tasks)


def carry_on(tasks: Sequence[PlannedTask], failed: FailedTasks = "default", missing: Container[str] = ()) -> Carried:
    """Prepare the rows of a plan, as found, for the next run.

    Args:
        tasks: All rows, those of the program in topological order, then children. Changed in place: a
            join whose source runs again loses its ``source_digest``, so that it is expanded anew.
        failed: What becomes of failed tasks.
        missing: Ids of succeeded tasks whose stored result is gone, empty or cut short.
    """
    carried = Carried()
    rows = {task.id: task for task in tasks}
    children: dict[str, list[PlannedTask]] = {}
    for task in tasks:
        if task.parent is not None:
            children.setdefault(task.parent, []).append(task)
        if not task.join and (task.state != "succeeded" or task.id in missing):
            _carry(task, failed, missing, carried)
    touched: set[str] = set()
    for task in tasks:
        above = bool(touched) and not touched.isdisjoint((*task.depends_on, *(task.gates or ())))
        if task.always_run and above and task.state in FINAL_STATES and not task.join:
            _start_over(task)
            carried.again.append(task.id)
            carried.started_over.append(task.id)
        if task.join:
            own = children.get(task.id, ())
            _derive(task, rows, own, failed)
            above = above or any(child.state not in FINAL_STATES for child in own)
        if above or task.state not in FINAL_STATES:
            touched.add(task.id)
    for task in tasks:  # children stand behind their joins, so the rule for always-run tasks met them later
        if task.join and task.always_run:
            _derive(task, rows, children.get(task.id, ()), failed)
    return carried


def _carry(task: PlannedTask, failed: FailedTasks, missing: Container[str], carried: Carried) -> None:
    """Apply the table to one task."""
    fate = fate_of(task, failed)
    if task.state == "succeeded":  # its result is missing
        _pend(task)
        task.result_digest = task.result_at = None
        carried.reset.append(task.id)
    elif fate == "lost":
        task.state, task.reason, task.error, task.blocked_by = "failed", "lease_lost", None, None
        task.reason_text = "it was running when the last run ended, and at_most_once forbids a second start"
        carried.lost.append(task.id)
    elif fate == "again":
        if task.state == "pending" and task.reason in (None, "interrupted") and task.started_at is None:
            return  # as a resume leaves it: never touched, or sent back by an earlier one
        if task.gate and task.reason == "blocked" and task.state == "pending":
            _start_over(task)  # it judges anew, from its start (PLAN-53)
            carried.started_over.append(task.id)
        else:
            interrupted = task.state == "running"
            _pend(task)
            task.reason = "interrupted" if interrupted else None
        carried.again.append(task.id)


def _is_missing(task: PlannedTask, missing: Container[str]) -> bool:
    return task.state == "succeeded" and task.id in missing


def _pend(task: PlannedTask) -> None:
    """Return a task to ``pending``; attempts, epoch and counts stay, for it goes on at its cursor (PLAN-29)."""
    task.state, task.ignored = "pending", False
    task.reason = task.reason_text = task.blocked_by = task.error = None
    task.started_at = task.finished_at = task.findings = None


def _start_over(task: PlannedTask) -> None:
    """Return a task to ``pending`` as if it had never come anywhere; tries still count over the life of the plan."""
    _pend(task)
    task.done = task.total = task.checkpoint_at = None
    task.result_digest = task.result_at = task.artifacts = None


def _derive(
    join: PlannedTask, rows: dict[str, PlannedTask], children: Sequence[PlannedTask], failed: FailedTasks
) -> None:
    """Give a join the state that its source and its children have now (PLAN-61)."""
    source = rows.get(join.source) if join.source is not None else None
    source_is_open = source is not None and source.state != "succeeded"
    if join.source_digest is None or source_is_open:
        if source_is_open or fate_of(join, failed) != "kept":
            _pend(join)
        join.source_digest = None
        return
    state = join_state([child.state for child in children])
    if join.state != state:
        _pend(join)
        join.state = state
