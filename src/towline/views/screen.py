"""What a view shows, folded from events alone: the same events give the same rows everywhere (CTL-15). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.execution.offload_counts import OffloadCounts, closed_attempt
from towline.planning.nesting import stands_for_itself

if TYPE_CHECKING:
    from collections.abc import Iterable

    from towline.events.records import Event

OPEN_STATES = frozenset({"pending", "queued", "running"})
STATES = ("pending", "queued", "running", "succeeded", "failed", "timed_out", "skipped", "cancelled")


class Row(msgspec.Struct, kw_only=True):
    """One task on a screen. Moments are UTC text."""

    id: str
    module: str
    phase: str | None = None
    tier: int = 0
    depends_on: tuple[str, ...] = ()
    state: str = "pending"
    reason: str | None = None
    reason_text: str | None = None
    blocked_by: str | None = None
    done: int | None = None
    total: int | None = None
    attempt: int = 0
    worker: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    saved_at: str | None = None
    next_save_at: str | None = None
    is_join: bool = False
    is_gate: bool = False
    is_cancelling: bool = False
    error: str | None = None
    offload: OffloadCounts | None = None


class Screen(msgspec.Struct, kw_only=True):
    """Everything a view needs to draw. ``counts`` leave joins out that have tasks (PLAN-62): ``expanded``."""

    pipeline: str = ""
    run_id: str = ""
    run_state: str = "planning"
    exit_code: int | None = None
    resumed_from: str | None = None
    rows: dict[str, Row] = {}
    running: dict[str, None] = {}
    """Ids of the tasks that run, in the order of their starts: drawing them must not search the rows."""
    counts: dict[str, int] = {}
    expanded: set[str] = set()
    phases: dict[str, tuple[int, int]] = {}
    """Final tasks and all tasks by phase, in the order of the plan."""
    findings: dict[str, int] = {}
    failed: list[str] = []
    """Failed and timed out tasks in the order of the log: the first is the root."""
    started_at: str | None = None
    ended_at: str | None = None

    @property
    def total(self) -> int:
        """All tasks."""
        return sum(self.counts.values())

    @property
    def done(self) -> int:
        """The tasks in a final state."""
        return sum(count for state, count in self.counts.items() if state not in OPEN_STATES)

    def current_phase(self) -> str | None:
        """The phase of the first running task, else the first that is not over (CTL-18)."""
        for task in self.running:
            phase = self.rows[task].phase
            if phase is not None:
                return phase
        return next((phase for phase, (done, total) in self.phases.items() if done < total), None)


def advance(screen: Screen, event: Event) -> Screen:
    """Apply one event to a screen, in place, and return it. Unknown kinds change nothing."""
    fold = _FOLDS.get(event.kind)
    if fold is not None:
        fold(screen, event)
    return screen


def _run_started(screen: Screen, event: Event) -> None:
    data = event.data
    screen.pipeline, screen.run_id = data["pipeline"], data.get("run_id", "")
    screen.resumed_from = data.get("resumed_from")
    screen.run_state, screen.started_at = "running", event.at


def _plan(screen: Screen, event: Event) -> None:
    if event.data["part"] == 1:
        screen.rows, screen.running, screen.phases, screen.expanded = {}, {}, {}, set()
        screen.counts = dict.fromkeys(STATES, 0)
    _add(screen, event.data["tasks"])


def _tasks_added(screen: Screen, event: Event) -> None:
    _add(screen, event.data["tasks"])


def _add(screen: Screen, tasks: Iterable[dict[str, Any]]) -> None:
    for task in tasks:
        row = Row(
            id=task["id"],
            module=task["module"],
            phase=task.get("phase"),
            tier=task["tier"],
            depends_on=tuple(task["depends_on"]),
            state=task["state"],
            reason=task.get("reason"),
            reason_text=task.get("reason_text"),
            blocked_by=task.get("blocked_by"),
            done=task.get("done"),
            total=task.get("total"),
            attempt=task.get("attempts", 0),
            worker=task.get("worker"),
            saved_at=task.get("checkpoint_at"),
            is_join=task.get("join", False),
            is_gate=task.get("gate", False),
        )
        screen.rows[row.id] = row
        if row.id != row.module and row.module not in screen.expanded:
            join = screen.rows.get(row.module)
            if join is not None and join.is_join:
                _count(screen, join, -1)
            screen.expanded.add(row.module)
        _count(screen, row, 1)


def _count(screen: Screen, row: Row, by: int) -> None:
    """Count a row in, or out again, as it stands now."""
    state = row.state
    if row.is_join and not stands_for_itself(state, is_expanded=row.module in screen.expanded):
        return
    screen.counts[state] = screen.counts.get(state, 0) + by
    _count_phase(screen, row, final=by * (state not in OPEN_STATES), all=by)


def _count_phase(screen: Screen, row: Row, *, final: int = 0, all: int = 0) -> None:
    if row.phase is not None:
        before = screen.phases.get(row.phase, (0, 0))
        screen.phases[row.phase] = (before[0] + final, before[1] + all)


def _task_state(screen: Screen, event: Event) -> None:
    row = screen.rows.get(event.task or "")
    if row is None:
        return
    data = event.data
    _count(screen, row, -1)
    row.state = data["to"]
    _count(screen, row, 1)
    if row.state == "running" and not row.is_join:
        screen.running[row.id] = None
    else:
        screen.running.pop(row.id, None)
    row.reason, row.reason_text = data.get("reason"), data.get("reason_text")
    row.blocked_by = data.get("blocked_by")
    row.is_cancelling = False
    row.done, row.total = data.get("done", row.done), data.get("total", row.total)
    if row.state == "running":
        row.started_at, row.worker = event.at, data.get("worker", row.worker)
        row.attempt = event.attempt or row.attempt
    elif row.state not in ("pending", "queued"):
        row.ended_at = event.at
        row.attempt = event.attempt or row.attempt
    error = data.get("error")
    row.error = f"{error['type']}: {error['text']}" if error else None
    if row.state in ("failed", "timed_out") and not data.get("ignored"):
        screen.failed.append(row.id)


def _progress(screen: Screen, event: Event) -> None:
    row = screen.rows.get(event.task or "")
    if row is None:
        return
    data = event.data
    row.done, row.total = data["done"], data.get("total")
    row.saved_at = data.get("last_checkpoint_at", row.saved_at)
    row.next_save_at = data.get("next_checkpoint_at")


def _attempt(screen: Screen, event: Event) -> None:
    row = screen.rows.get(event.task or "")
    if row is not None and event.attempt:
        row.attempt = event.attempt


def _offload(screen: Screen, event: Event) -> None:
    row, detail = screen.rows.get(event.task or ""), closed_attempt(event)
    if row is not None and detail is not None:
        row.offload = (row.offload or OffloadCounts()).plus(detail)


def _finding(screen: Screen, event: Event) -> None:
    severity = event.data["severity"]
    screen.findings[severity] = screen.findings.get(severity, 0) + 1


def _cancel_requested(screen: Screen, event: Event) -> None:
    for row in screen.rows.values():
        if row.state == "running" and event.data.get("task") in (None, row.id):
            row.is_cancelling = True


def _run_ended(screen: Screen, event: Event) -> None:
    screen.run_state, screen.exit_code = event.data["run_state"], event.data["exit_code"]
    screen.ended_at = event.at


_FOLDS = {
    "run_started": _run_started,
    "plan": _plan,
    "tasks_added": _tasks_added,
    "task_state": _task_state,
    "progress": _progress,
    "attempt": _attempt,
    "finding": _finding,
    "offload": _offload,
    "cancel_requested": _cancel_requested,
    "run_ended": _run_ended,
}
