"""What a back end of the user's own can do with the tasks of a run (DIST-80 to 87).

To the engine this is its runner: tasks that the scheduler gives out wait here until the back end asks for them, or
brings their outcome from elsewhere. Slots are taken here, by tasks that are asked for and ready, in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from towline.errors.coordination import BackendContractError
from towline.modules.outcomes import Cancelled, Failed, Outcome, Reason, Succeeded
from towline.planning.records import FINAL_STATES
from towline.serialization.exceptions import record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio import CancelScope

    from towline.events.records import Event
    from towline.execution.remote_engine import RemoteEngine
    from towline.execution.runner import Runner
    from towline.execution.taskrun import TaskRun
    from towline.execution.values import Values
    from towline.planning import records
    from towline.planning.live import LivePlan
    from towline.planning.plan import PlannedTask

IDLE_LOOK_S = 0.1
"""Between two looks at a run in which nothing moves (DIST-86)."""


class Seam:
    """The context of an execution back end, and the engine's runner under it."""

    def __init__(
        self,
        engine: RemoteEngine,
        runner: Runner,
        plan: LivePlan,
        values: Values,
        *,
        parallelism: int,
        pipeline_scope: CancelScope,
    ) -> None:
        self._engine, self._runner, self._plan, self._values = engine, runner, plan, values
        self._loop = asyncio.get_running_loop()
        self._pipeline_scope = pipeline_scope
        self._free = parallelism
        self._held: dict[str, TaskRun] = {}
        self._ready: deque[TaskRun] = deque()
        self._executing: dict[str, TaskRun] = {}
        self._scopes: dict[str, CancelScope | None] = {}
        self._wanted: dict[str, asyncio.Future[Outcome[Any]]] = {}
        self._applied: dict[str, Outcome[Any]] = {}

    # ------------------------------------------------------------------ the back end (ExecutionContext)

    async def execute_task(self, task: PlannedTask, *, scope: CancelScope | None = None) -> Outcome[Any]:
        """Run the whole local path of a task; requests for one task share its execution (DIST-83, DIST-84)."""
        row = self._row(task.id)
        if row.state in FINAL_STATES:
            return self._values.outcome(self._plan.index[row.id])
        future = self._wanted.get(row.id)
        is_first = future is None
        if future is None:
            future = self._wanted[row.id] = self._loop.create_future()
            self._scopes[row.id] = scope
            self._offer(row.id)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if is_first and not future.done():
                self._withdraw(row)
            raise

    def try_apply_outcome(self, outcome: Outcome[Any]) -> bool:
        """Complete a task with an outcome from elsewhere (DIST-82).

        Raises:
            BackendContractError: This process is executing the task.
        """
        row = self._row(outcome.task_id)
        if row.state in FINAL_STATES or row.id in self._applied:
            return False
        if row.id in self._executing:
            raise BackendContractError("applied an outcome of a task that this process is executing", (row.id,))
        self._applied[row.id] = outcome
        run = self._held.pop(row.id, None)
        if run is not None:
            self._finish(run, outcome)
        return True

    def _row(self, task_id: str) -> records.PlannedTask:
        if task_id not in self._plan.index:
            raise BackendContractError("named a task that the plan does not have", (task_id,))
        return self._plan.row(task_id)

    def _withdraw(self, row: records.PlannedTask) -> None:
        """The first request was cancelled, and with it its execution.

        A failure elsewhere cancels the run's own scope too; always-run work is not touched by that (DIST-85).
        """
        scope = self._scopes.get(row.id)
        if row.always_run and (scope is None or scope is self._pipeline_scope) and not self._engine.is_stopping:
            return
        run = self._executing.get(row.id)
        if run is not None:
            self._runner.stop(run, "stopped")
            return
        del self._wanted[row.id]
        held = self._held.pop(row.id, None)
        if held is not None:
            held.stop = "stopped"
            self._engine.ended(held, _cancelled(row.id, "stopped"))

    # ------------------------------------------------------------------ the engine's runner

    def start(self, run: TaskRun, loop: asyncio.AbstractEventLoop) -> None:
        """Take a task that is ready: its dependencies are final, its locks taken."""
        applied = self._applied.get(run.row.id)
        if applied is not None:
            self._finish(run, applied)
            return
        self._held[run.row.id] = run
        self._offer(run.row.id)

    def stop(self, run: TaskRun, code: str) -> None:
        """End a task wherever it is."""
        if run.row.id in self._executing:
            self._runner.stop(run, code)
        elif self._held.pop(run.row.id, None) is not None:
            run.stop = code
            self._engine.ended(run, _cancelled(run.row.id, code))

    def _offer(self, task_id: str) -> None:
        run = self._held.get(task_id)
        if run is not None and task_id in self._wanted:
            del self._held[task_id]
            self._ready.append(run)
            self._start_ready()

    def _start_ready(self) -> None:
        while self._free > 0 and self._ready:
            run = self._ready.popleft()
            self._free -= 1
            self._executing[run.row.id] = run
            if run.kind.is_plain:
                self._engine.moved(run, "running")
            self._runner.start(run, self._loop)

    def _finish(self, run: TaskRun, outcome: Outcome[Any]) -> None:
        """Give the engine an outcome that was made elsewhere, its value encoded for the result store."""
        codec = run.kind.codec
        run.tries = max(1, outcome.attempts - run.first_attempt)
        if isinstance(outcome, Succeeded) and outcome.value is not None and codec is not None:
            run.payload = codec.encode(outcome.value, workdir=run.attempt.workdir)
        if run.kind.is_plain or outcome.epoch:
            run.attempt.epoch = outcome.epoch or run.attempt.epoch
        self._engine.ended(run, msgspec.structs.replace(outcome, task_id=run.row.id))

    # ------------------------------------------------------------------ what has happened

    def take(self, batch: Sequence[Event]) -> None:
        """Hear the run's events: answer the requests of tasks that are final."""
        for event in batch:
            if event.kind != "task_state" or event.task is None or event.data.get("to") not in FINAL_STATES:
                continue
            if self._executing.pop(event.task, None) is not None:
                self._free += 1
            future = self._wanted.get(event.task)
            if future is not None and not future.done():
                future.set_result(self._values.outcome(self._plan.index[event.task]))
        self._start_ready()

    async def watch_for_stalls(self) -> None:
        """Answer requests that can never be met, instead of hanging (DIST-86)."""
        before: tuple[str, ...] = ()
        while True:
            await asyncio.sleep(IDLE_LOOK_S)
            stalled = self._stalled()
            if stalled and stalled == before:
                for task_id in stalled:
                    missing = [name for name in self._row(task_id).depends_on if self._is_nobodys(name)]
                    error = BackendContractError(
                        "awaits a task whose dependency it neither requested nor applied", (task_id, *missing)
                    )
                    self._wanted[task_id].set_exception(error)
                before = ()
            else:
                before = stalled

    def _stalled(self) -> tuple[str, ...]:
        if self._executing or self._ready:
            return ()
        waiting = [name for name, future in self._wanted.items() if not future.done() and name not in self._held]
        return tuple(name for name in waiting if any(self._is_nobodys(one) for one in self._row(name).depends_on))

    def _is_nobodys(self, task_id: str) -> bool:
        row = self._row(task_id)
        return row.state not in FINAL_STATES and task_id not in self._wanted and task_id not in self._applied

    # ------------------------------------------------------------------ the end

    def final_or_executing(self) -> frozenset[str]:
        """Return the tasks that no outcome from elsewhere is wanted for."""
        final = (task.id for task in self._plan.document.tasks if task.state in FINAL_STATES)
        return frozenset(final) | frozenset(self._executing)

    def unfinished(self) -> tuple[str, ...]:
        """Return the tasks that are not final."""
        return tuple(task.id for task in self._plan.document.tasks if task.state not in FINAL_STATES and not task.join)

    def fail_unfinished(self, error: BackendContractError, now: Callable[[], float], worker_id: str) -> None:
        """End what the back end has left over (DIST-81)."""
        for task_id in error.tasks:
            reason = Reason(code="error", text=str(error))
            outcome = Failed(record_of(error, worker_id), task_id=task_id, reason=reason, finished_at=now())
            if task_id not in self._executing:
                self.try_apply_outcome(outcome)


def _cancelled(task_id: str, code: str) -> Cancelled:
    return Cancelled(task_id=task_id, reason=Reason(code=code))
