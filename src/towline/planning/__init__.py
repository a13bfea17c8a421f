"""Plans: built from declared dependencies, kept as a document, carried over a resume. Decides; never waits.

What only some starts need is imported by its file: ``deciding``, ``resume``, ``reconcile``, ``selection``,
``loading``, ``document``, ``live``.
"""

from towline.planning.built import ArtifactInput, BuiltPlan, TaskInput
from towline.planning.graph import build_plan
from towline.planning.plan import Plan, PlannedTask, shown_plan

__all__ = ["ArtifactInput", "BuiltPlan", "Plan", "PlannedTask", "TaskInput", "build_plan", "shown_plan"]
