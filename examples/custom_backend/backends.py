"""Two execution back ends: one that runs everything here, and one that leaves some tasks to others.

python examples/custom_backend/backends.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from towline import (
    Context,
    ExecutionBackend,
    ExecutionRequest,
    Options,
    Outcome,
    Pipeline,
    Succeeded,
    module,
    result_of,
)


class InThisProcess(ExecutionBackend):
    """Everything runs here; the engine waits for dependencies and keeps all limits."""

    owns_entire_plan = True

    async def execute(self, request: ExecutionRequest) -> Sequence[Outcome[object]]:
        return await asyncio.gather(*[request.context.execute_task(task) for task in request.tasks])


class PartlyElsewhere(ExecutionBackend):
    """Tasks named ``remote...`` are done by another system, whose results are applied as they come."""

    owns_entire_plan = False

    async def execute(self, request: ExecutionRequest) -> Sequence[Outcome[object]]:
        here = [task for task in request.tasks if not task.id.startswith("remote")]
        for task in request.tasks:
            if task not in here:
                answer = await self._ask_the_other_system(task.id)
                request.context.try_apply_outcome(Succeeded(answer, task_id=task.id, attempts=1))
        return await asyncio.gather(*[request.context.execute_task(task) for task in here])

    async def _ask_the_other_system(self, task_id: str) -> int:
        await asyncio.sleep(0.01)
        return 20


@module
async def remote_count(ctx: Context) -> int:
    return 1


@module
async def doubled(ctx: Context, count: int = result_of(remote_count)) -> int:
    return 2 * count


def run_with(backend: ExecutionBackend) -> int:
    """Run the pipeline under a back end and return what ``doubled`` gave."""
    pipeline = Pipeline("counting", [doubled], options=Options(backend=backend, state="memory:"))
    outcome = pipeline.run_sync().outcome_of(doubled)
    assert isinstance(outcome, Succeeded)
    return outcome.value


if __name__ == "__main__":
    print(run_with(InThisProcess()), run_with(PartlyElsewhere()))
