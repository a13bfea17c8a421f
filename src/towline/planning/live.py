"""The plan in memory, and the one function by which a journal record changes it, live and in replay. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from towline.planning.children import children_of
from towline.planning.records import (
    FINAL_STATES,
    ExpandRecord,
    JournalRecord,
    PlanDocument,
    PlannedTask,
    ProgressRecord,
    RunRecord,
    StateRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class LivePlan:
    """The document of a run, and where each task stands in it.

    ``document.tasks`` are the tasks of this run as scheduler and runner count them: those of the program in
    topological order, then children of ``each`` modules as they came. ``held`` are children whose source
    has to run again: they keep their rows until their join is expanded anew (PLAN-61). They are in the
    snapshot, behind the others, but in no run.
    """

    __slots__ = ("document", "held", "index")

    def __init__(self, document: PlanDocument) -> None:
        """Take over a document as it was read or made; held children leave its list of tasks."""
        self.document = document
        expanded = {task.id for task in document.tasks if task.join and task.source_digest is not None}
        self.held: dict[str, PlannedTask] = {
            task.id: task for task in document.tasks if task.parent is not None and task.parent not in expanded
        }
        if self.held:
            document.tasks[:] = [task for task in document.tasks if task.id not in self.held]
        self.index: dict[str, int] = {task.id: place for place, task in enumerate(document.tasks)}

    def row(self, task: str) -> PlannedTask:
        """Return the row of a task; ``KeyError`` for one that this run does not have."""
        return self.document.tasks[self.index[task]]

    def snapshot(self) -> PlanDocument:
        """Return the document as it is to be written: held children included, rows shared with this plan."""
        if not self.held:
            return self.document
        return msgspec.structs.replace(self.document, tasks=[*self.document.tasks, *self.held.values()])

    def held_of(self, join: str) -> Iterator[PlannedTask]:
        """Give the children that an ``each`` module had before its source was asked again."""
        return (task for task in self.held.values() if task.parent == join)


def apply(plan: LivePlan, record: JournalRecord) -> tuple[PlannedTask, ...]:
    """Change the plan as one journal record says; the only way in which a run changes it.

    Live and in replay the same records in the same order give the same rows.

    Args:
        plan: Changed in place; children of an ``each`` module are put at the end of its tasks.
        record: The next record; it fits the plan.

    Returns:
        The rows that changed; for an ``ExpandRecord`` the children, in item order.
    """
    document = plan.document
    document.applied_seq = record.seq
    if type(record) is StateRecord:
        row = document.tasks[plan.index[record.task]]
        _set_state(row, record)
        return (row,)
    match record:
        case ProgressRecord():
            row = plan.row(record.task)
            row.done, row.checkpoint_at = record.done, record.at
            if record.total is not None:
                row.total = record.total
            return (row,)
        case ExpandRecord():
            return _expand(plan, record)
        case RunRecord():
            document.run_id, document.run_state, document.updated_at = record.run_id, record.run_state, record.at
    # A ReconcileRecord tells what the snapshot written after it holds already: replayed over the snapshot
    # before it, it changes nothing, and the next resume comes to the same classes again (PLAN-40).
    return ()


def apply_all(plan: LivePlan, records: Sequence[JournalRecord]) -> None:
    """Apply the records of one journal line, in their order: what :func:`apply` does, without its answer."""
    tasks, index = plan.document.tasks, plan.index
    for record in records:
        if type(record) is StateRecord:
            _set_state(tasks[index[record.task]], record)
        else:
            apply(plan, record)
    if records:
        plan.document.applied_seq = records[-1].seq


def _set_state(row: PlannedTask, record: StateRecord) -> None:
    """Write a transition into its row. Reason, error and moments belong to the state; the rest stays unless given.

    Two reads cost less than one write, and most fields of most transitions are as they were.
    """
    state = row.state = record.state
    if record.reason is not row.reason:
        row.reason = record.reason
    if record.reason_text is not row.reason_text:
        row.reason_text = record.reason_text
    if record.blocked_by is not row.blocked_by:
        row.blocked_by = record.blocked_by
    if record.error is not row.error:
        row.error = record.error
    if record.ignored is not row.ignored:
        row.ignored = record.ignored
    if state == "running":
        row.started_at = record.at
        if row.finished_at is not None:
            row.finished_at = None
    elif state in FINAL_STATES:
        row.finished_at = record.at
    elif state == "pending":
        row.started_at = row.finished_at = None
    if record.epoch is not None:
        row.epoch = record.epoch
    if record.attempts is not None:
        row.attempts = record.attempts
    if record.worker is not None:
        row.worker = record.worker
    if record.done is not None:
        row.done = record.done
    if record.total is not None:
        row.total = record.total
    if record.findings is not None:
        row.findings = record.findings or None
    if record.result_digest is not None:
        row.result_digest, row.result_at = record.result_digest, record.result_at
    if record.artifacts is not None:
        row.artifacts = record.artifacts
    if record.unstored is not row.unstored and state in FINAL_STATES:
        row.unstored = record.unstored


def _expand(plan: LivePlan, record: ExpandRecord) -> tuple[PlannedTask, ...]:
    """Put the children of a join behind the other tasks; those that are as before keep their rows (PLAN-61)."""
    tasks, join = plan.document.tasks, plan.row(record.join)
    above = [plan.row(name).closure_digest for name in join.depends_on if name != join.source]
    before = {task.id: task for task in plan.held_of(join.id)}
    for name in before:
        del plan.held[name]
    children = children_of(join, record.keys, record.items, above, before)
    for child in children:
        plan.index[child.id] = len(tasks)
        tasks.append(child)
    join.state, join.reason, join.reason_text, join.blocked_by = "running", None, None, None
    join.source_digest = record.source_digest
    return children
