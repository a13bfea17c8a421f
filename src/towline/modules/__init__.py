"""Declaring modules: functions and classes, their settings and dependencies, and the context that bodies get."""

from towline.modules.annotations import resolve_types
from towline.modules.classes import ExpandedModule, Module
from towline.modules.context import Context, SyncContext
from towline.modules.functions import ExpandedFunction, FunctionModule, module
from towline.modules.markers import maybe_result_of, outcome_of, result_of
from towline.modules.reference import spec_of
from towline.modules.selectors import in_category, tagged
from towline.modules.spec import ModuleSpec

__all__ = [
    "Context",
    "ExpandedFunction",
    "ExpandedModule",
    "FunctionModule",
    "Module",
    "ModuleSpec",
    "SyncContext",
    "in_category",
    "maybe_result_of",
    "module",
    "outcome_of",
    "resolve_types",
    "result_of",
    "spec_of",
    "tagged",
]
