"""Pipelines that must finish: typed modules, a durable plan, resume after any crash, one machine or many.

Every public name is imported when it is first asked for: a child process that runs one body, or a worker,
pays for what it uses and not for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from towline.artifacts.records import ArtifactRef
    from towline.errors.commands import CommandFailedError
    from towline.errors.declaration import DeclarationError, UndeclaredDependencyError
    from towline.errors.root import TowlineError
    from towline.errors.run import PipelineBlockedError, PipelineCancelledError, PipelineFailedError
    from towline.errors.state import LeaseLostError
    from towline.events.records import Event
    from towline.execution.backend import ExecutionBackend, ExecutionContext, ExecutionRequest
    from towline.execution.observers import Observer
    from towline.execution.options import Options
    from towline.execution.report import RunReport
    from towline.masking.secret import Secret
    from towline.modules.artifacts import Artifacts, SyncArtifacts
    from towline.modules.capabilities import Capability, any_of, cap
    from towline.modules.classes import ExpandedModule, Module
    from towline.modules.commands import CommandOptions, CommandResult
    from towline.modules.conditions import (
        Condition,
        ConditionLike,
        changed,
        command_exists,
        env,
        file_exists,
        on_platform,
        param,
    )
    from towline.modules.context import Context, SyncContext
    from towline.modules.durations import Duration
    from towline.modules.facts import TaskFacts
    from towline.modules.functions import ExpandedFunction, FunctionModule, module
    from towline.modules.kinds import AnyModule, Axes, Items, ManyModule, ManyTasks, OneModule, OneTask
    from towline.modules.markers import maybe_result_of, outcome_of, result_of
    from towline.modules.outcomes import Cancelled, Failed, Finding, Outcome, Reason, Skipped, Succeeded, TimedOut
    from towline.modules.retry import Retry, Skip
    from towline.modules.selectors import Selector, in_category, tagged
    from towline.modules.settings import ArtifactRequest, Cache, Pool, Settings
    from towline.pipeline.pipeline import Pipeline
    from towline.planning.plan import Plan, PlannedTask
    from towline.planning.records import TaskState
    from towline.serialization.errors_record import ErrorRecord
    from towline.state.cursors import Batch, Cursor, CursorKey, Query, SyncCursor
    from towline.state.id_maps import IdMap, SqlIdMap
    from towline.state.sql_cursor import SqlCursor
    from towline.state.sql_dialect import DbConnection
    from towline.state.steps import Step

_HOMES = {
    "artifacts.records": "ArtifactRef",
    "errors.commands": "CommandFailedError",
    "errors.declaration": "DeclarationError UndeclaredDependencyError",
    "errors.root": "TowlineError",
    "errors.run": "PipelineBlockedError PipelineCancelledError PipelineFailedError",
    "errors.state": "LeaseLostError",
    "events.records": "Event",
    "execution.backend": "ExecutionBackend ExecutionContext ExecutionRequest",
    "execution.observers": "Observer",
    "execution.options": "Options",
    "execution.report": "RunReport",
    "masking.secret": "Secret",
    "modules.artifacts": "Artifacts SyncArtifacts",
    "modules.capabilities": "Capability any_of cap",
    "modules.classes": "ExpandedModule Module",
    "modules.commands": "CommandOptions CommandResult",
    "modules.conditions": "Condition ConditionLike changed command_exists env file_exists on_platform param",
    "modules.context": "Context SyncContext",
    "modules.durations": "Duration",
    "modules.facts": "TaskFacts",
    "modules.functions": "ExpandedFunction FunctionModule module",
    "modules.kinds": "AnyModule Axes Items ManyModule ManyTasks OneModule OneTask",
    "modules.markers": "maybe_result_of outcome_of result_of",
    "modules.outcomes": "Cancelled Failed Finding Outcome Reason Skipped Succeeded TimedOut",
    "modules.retry": "Retry Skip",
    "modules.selectors": "Selector in_category tagged",
    "modules.settings": "ArtifactRequest Cache Pool Settings",
    "state.steps": "Step",
    "pipeline.pipeline": "Pipeline",
    "planning.plan": "Plan PlannedTask",
    "planning.records": "TaskState",
    "serialization.errors_record": "ErrorRecord",
    "state.cursors": "Batch Cursor CursorKey Query SyncCursor",
    "state.id_maps": "IdMap SqlIdMap",
    "state.sql_cursor": "SqlCursor",
    "state.sql_dialect": "DbConnection",
}
"""Where each public name is defined; the imports above say the same to type checkers."""

__all__ = [
    "AnyModule",
    "ArtifactRef",
    "ArtifactRequest",
    "Artifacts",
    "Axes",
    "Batch",
    "Cache",
    "Cancelled",
    "Capability",
    "CommandFailedError",
    "CommandOptions",
    "CommandResult",
    "Condition",
    "ConditionLike",
    "Context",
    "Cursor",
    "CursorKey",
    "DbConnection",
    "DeclarationError",
    "Duration",
    "ErrorRecord",
    "Event",
    "ExecutionBackend",
    "ExecutionContext",
    "ExecutionRequest",
    "ExpandedFunction",
    "ExpandedModule",
    "Failed",
    "Finding",
    "FunctionModule",
    "IdMap",
    "Items",
    "LeaseLostError",
    "ManyModule",
    "ManyTasks",
    "Module",
    "Observer",
    "OneModule",
    "OneTask",
    "Options",
    "Outcome",
    "Pipeline",
    "PipelineBlockedError",
    "PipelineCancelledError",
    "PipelineFailedError",
    "Plan",
    "PlannedTask",
    "Pool",
    "Query",
    "Reason",
    "Retry",
    "RunReport",
    "Secret",
    "Selector",
    "Settings",
    "Skip",
    "Skipped",
    "SqlCursor",
    "SqlIdMap",
    "Step",
    "Succeeded",
    "SyncArtifacts",
    "SyncContext",
    "SyncCursor",
    "TaskFacts",
    "TaskState",
    "TimedOut",
    "TowlineError",
    "UndeclaredDependencyError",
    "any_of",
    "cap",
    "changed",
    "command_exists",
    "env",
    "file_exists",
    "in_category",
    "maybe_result_of",
    "module",
    "on_platform",
    "outcome_of",
    "param",
    "result_of",
    "tagged",
]

if not TYPE_CHECKING:
    _HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        """Import a public name from its home, once."""
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module 'towline' has no attribute {name!r}")
        import gc
        from importlib import import_module

        was_enabled = gc.isenabled()
        gc.disable()  # loading drops nothing: each of a dozen collections would walk all of it for no gain
        try:
            found = globals()[name] = getattr(import_module(f"towline.{home}"), name)
        finally:
            if was_enabled:
                gc.enable()
        return found

    def __dir__() -> list[str]:
        """List the public names, loaded or not."""
        return sorted({*globals(), *__all__})
