"""What the master tells workers of a task: its assignment, and references to what it depends on (DIST-17, COORD-C31)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.coordination.checks import CRITICAL_PATH_LIMIT_MS
from towline.coordination.records import Assignment, DependencyRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.execution.scheduler import Scheduler
    from towline.execution.taskrun import TaskRun
    from towline.execution.values import Values
    from towline.planning.built import BuiltPlan


class Assignments:
    """Makes assignments from the plan, as it stands when a task is queued."""

    def __init__(self, built: BuiltPlan, values: Values, scheduler: Scheduler) -> None:
        self._built, self._values, self._scheduler = built, values, scheduler

    def assignment_of(self, run: TaskRun) -> Assignment:
        """Describe a task to whoever will claim it."""
        row, kind = run.row, run.kind
        settings = kind.spec.settings
        return Assignment(
            task_id=row.id,
            module=row.module,
            key=row.key,
            requires=settings.requires or (),
            always_run=settings.always_run,
            at_most_once=settings.at_most_once,
            priority=settings.priority,
            critical_path_ms=min(CRITICAL_PATH_LIMIT_MS, round(self._scheduler.critical_path_s(run.position) * 1000)),
            timeout_ms=round(kind.timeout_s * 1000),
            attempts_allowed=kind.retry.count + 1,
            epoch_floor=row.epoch,
            dependencies=tuple(self._reference(one) for one in self._needed_by(run.position)),
            required_artifacts=tuple(self._built.demanded.get(self._values.joined(run.position), ())),
            params_digest=self._built.params_digest,
            parent=row.parent,
            item=row.item,
            item_digest=row.item_digest,
            attempts_before=row.attempts,
        )

    def _needed_by(self, position: int) -> Sequence[int]:
        """The tasks whose values or artifacts a task gets, children in place of their join, each once."""
        place = self._values.joined(position)
        wanted = [one for use in self._built.inputs[place] for one in use.tasks]
        wanted += [one for use in self._built.artifacts[place] for one in use.tasks]
        row = self._values.task(position)
        if row.parent is not None:
            source = self._values.task(self._built.index[row.parent]).source
            if source is not None:
                wanted.append(self._built.index[source])
        spread = [child for one in wanted for child in (self._values.children_of(one) or (one,))]
        return list(dict.fromkeys(spread))

    def _reference(self, position: int) -> DependencyRef:
        row = self._values.task(position)
        is_child = row.parent is not None
        return DependencyRef(
            task_id=row.id,
            state=row.state,
            has_value=row.result_digest is not None,
            parent=row.parent,
            module=row.module if is_child else None,
            key=row.key if is_child else None,
            item=row.item,
        )
