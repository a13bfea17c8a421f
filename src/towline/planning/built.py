"""The plan of a program before any state: tasks, and by place in the plan what each receives. Cheap arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from towline.modules.spec import ModuleSpec
from towline.planning.records import EdgeUse, PlannedTask

if TYPE_CHECKING:
    from towline.planning.records import PlanOwner


class TaskInput(msgspec.Struct, frozen=True, gc=False):
    """One parameter of a task and the tasks whose values it gets.

    ``many``: the value is a list, in the order of ``tasks``; a join among them stands for its children, in
    item order. Otherwise ``tasks`` has one place, or none for an optional module that the plan lacks.
    """

    param: str
    use: EdgeUse
    tasks: tuple[int, ...]
    many: bool = False


class ArtifactInput(msgspec.Struct, frozen=True, gc=False):
    """One artifact that a task consumes. ``many``: one folder per key under ``into`` (ART-02)."""

    artifact: str
    into: str
    tasks: tuple[int, ...]
    many: bool = False


class BuiltPlan(msgspec.Struct, kw_only=True):
    """What ``build_plan`` returns. Every list is indexed by a task's place in ``tasks``.

    ``tasks`` stand in topological order: by tier, ties by id. A resume writes into these rows what earlier
    runs have reached; children of ``each`` modules stand behind them, in the running plan alone
    (``LivePlan``), and receive what their join receives.

    ``depends_on`` has the places of ``PlannedTask.depends_on``, in that order; ``gates`` those of its gates.
    ``matrix`` has the values per axis of those tasks that have some. ``demanded``: for a producer, each
    artifact that must exist, with the modules that take it (ART-03).
    """

    pipeline: str
    program: str
    phases: tuple[str, ...]
    params_digest: str
    param_digests: dict[str, str]
    graph_digest: str
    specs: dict[str, ModuleSpec]
    tasks: list[PlannedTask]
    index: dict[str, int]
    tasks_of: dict[str, tuple[int, ...]]
    """Module name to its tasks, in key order."""
    depends_on: list[tuple[int, ...]]
    gates: list[tuple[int, ...]]
    inputs: list[tuple[TaskInput, ...]]
    artifacts: list[tuple[ArtifactInput, ...]]
    matrix: dict[int, Mapping[str, object]]
    demanded: dict[int, dict[str, tuple[str, ...]]]

    def spec_of(self, task: PlannedTask) -> ModuleSpec:
        """Return the module of a task of this plan, also of a child that came later."""
        return self.specs[task.module]

    def document_fields(self, *, plan_id: str, run_id: str, now: str, owner: PlanOwner | None) -> dict[str, object]:
        """Return the header fields of a new plan document of this program."""
        return {
            "pipeline": self.pipeline,
            "plan_id": plan_id,
            "program": self.program,
            "graph_digest": self.graph_digest,
            "params_digest": self.params_digest,
            "param_digests": self.param_digests,
            "owner": owner,
            "run_id": run_id,
            "phases": self.phases,
            "created_at": now,
            "updated_at": now,
        }
