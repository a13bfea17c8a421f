"""Plans: built from declared dependencies, kept as a document, carried over a resume. Decides; never waits.

What only some processes need is imported by its file: ``graph`` builds a plan, ``deciding``, ``resume``,
``reconcile``, ``selection``, ``loading``, ``document``, ``live`` serve a run.
"""

from towline.planning.built import ArtifactInput, BuiltPlan, TaskInput
from towline.planning.plan import Plan, PlannedTask, shown_plan

__all__ = ["ArtifactInput", "BuiltPlan", "Plan", "PlannedTask", "TaskInput", "shown_plan"]
