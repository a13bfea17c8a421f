"""The public seam: who calls the runner (DIST-80 to 87)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio import CancelScope  # 30 ms at start-up

    from towline.modules.outcomes import Outcome
    from towline.planning.plan import PlannedTask
else:
    CancelScope = PlannedTask = Any  # help() evaluates the fields of a record; nobody decodes this one


class ExecutionContext(Protocol):
    """What a back end can do with the tasks that it was given."""

    async def execute_task(self, task: PlannedTask, *, scope: CancelScope | None = None) -> Outcome[object]:
        """Run the whole local path of one task and return how it ended.

        Waits for its dependencies without holding a slot, then for locks and limits, then runs conditions,
        hooks, attempts and artifacts. All tasks may be asked for at once; requests for one task share one
        execution (DIST-83, DIST-84).
        """
        ...

    def try_apply_outcome(self, outcome: Outcome[object]) -> bool:
        """Complete a task with an outcome from elsewhere; false when it is final already (DIST-82).

        Raises:
            BackendContractError: This process is executing the task.
        """
        ...


class ExecutionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as a back end is asked to execute it. ``estimates``: task id to seconds."""

    tasks: tuple[PlannedTask, ...]
    estimates: Mapping[str, float]
    context: ExecutionContext
    pipeline_scope: CancelScope


class ExecutionBackend(Protocol):
    """Executes the tasks of a plan, in this process or elsewhere.

    With ``owns_entire_plan`` every planned task has an outcome when ``execute`` returns.
    """

    @property
    def owns_entire_plan(self) -> bool:
        """Whether this back end brings every task of the plan to its end."""
        ...

    async def execute(self, request: ExecutionRequest) -> Sequence[Outcome[object]]:
        """Execute the tasks; returns the outcomes of those that this process ran."""
        ...
