"""The plan as users get it: a copy that nothing changes, and its texts (PLAN-11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from towline.modules.outcomes import Reason
from towline.planning.records import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from towline.planning import records

Verdict: TypeAlias = Literal["run", "skip", "kept", "unknown"]
"""What the next run does with a task: ``unknown`` when that hangs on a result or a node."""


class PlannedTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a plan, as shown. ``estimate_s``: seconds it is expected to need, ``None`` without history.

    ``items_of``: of an ``each`` module, the task whose items it runs for, while their number is not known.
    """

    id: str
    module: str
    key: str | None = None
    phase: str | None = None
    tier: int = 0
    depends_on: tuple[str, ...] = ()
    state: TaskState = "pending"
    reason: Reason | None = None
    decision: Verdict | None = None
    estimate_s: float | None = None
    items_of: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of a pipeline in the order of the plan: by tier, ties by id; children of ``each`` behind.

    ``reconciled``: of a resume whose program has changed, the ids by class: ``changed``, ``stale``, ``added``,
    ``removed``, ``code_changed``, ``reset``, ``kept`` (PLAN-35). ``refused``: why a run would be refused, with
    what to do; the tasks are those of a new plan then.
    """

    pipeline: str
    tasks: tuple[PlannedTask, ...]
    phases: tuple[str, ...] = ()
    reconciled: Mapping[str, tuple[str, ...]] = {}
    refused: str | None = None

    def by_phase(self) -> list[tuple[str | None, list[PlannedTask]]]:
        """Return the tasks per phase: those of none first, then the phases in their order, without empty ones."""
        per_phase: dict[str | None, list[PlannedTask]] = {phase: [] for phase in (None, *self.phases)}
        for task in self.tasks:
            per_phase.setdefault(task.phase, []).append(task)
        return [(phase, tasks) for phase, tasks in per_phase.items() if tasks]

    def to_text(self, format: Literal["text", "json", "mermaid", "dot"] = "text", *, width: int = 80) -> str:
        """Return the plan as a text: a table for people, JSON for programs, a graph for ``mermaid`` or Graphviz.

        width: columns of the table, at least 40.

        Raises:
            ValueError: An unknown format.
        """
        from towline.planning import graphs, rendering

        match format:
            case "text":
                return rendering.plan_text(self, width)
            case "json":
                return rendering.plan_json(self)
            case "mermaid":
                return graphs.mermaid(self)
            case "dot":
                return graphs.dot(self)
            case _:
                raise ValueError(f"{format!r} is no format of a plan: use text, json, mermaid or dot")


def shown_plan(
    pipeline: str,
    rows: Iterable[records.PlannedTask],
    *,
    phases: Iterable[str] = (),
    decisions: Mapping[str, Verdict] | None = None,
    reasons: Mapping[str, Reason] | None = None,
    estimates: Mapping[str, float] | None = None,
    reconciled: Mapping[str, tuple[str, ...]] | None = None,
    refused: str | None = None,
) -> Plan:
    """Copy rows into a plan to show.

    Args:
        pipeline: Its name.
        rows: The rows, in plan order.
        phases: Names of the phases, in order.
        decisions: By task id, what a forecast says of it; a task without one shows its state.
        reasons: By task id, why a forecast skips it; a row's own reason otherwise.
        estimates: Seconds by task id, else by module name.
        reconciled: What became of an earlier plan, ids by class.
        refused: Why a run would be refused.
    """
    decided, why, seconds = decisions or {}, reasons or {}, estimates or {}
    tasks = tuple(
        PlannedTask(
            id=row.id,
            module=row.module,
            key=row.key,
            phase=row.phase,
            tier=row.tier,
            depends_on=row.depends_on,
            state=row.state,
            reason=why.get(row.id) or _reason(row),
            decision=decided.get(row.id),
            estimate_s=seconds.get(row.id, seconds.get(row.module)),
            items_of=row.source if row.join and row.source_digest is None else None,
        )
        for row in rows
    )
    return Plan(pipeline=pipeline, tasks=tasks, phases=tuple(phases), reconciled=reconciled or {}, refused=refused)


def _reason(row: records.PlannedTask) -> Reason | None:
    if row.reason is None:
        return None
    return Reason(code=row.reason, text=row.reason_text or "", blocked_by=row.blocked_by)
