"""A run that a back end of the user's own carries out (DIST-80 to 87)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

import msgspec
from anyio import CancelScope

from towline.errors.coordination import BackendContractError
from towline.execution.backend import ExecutionRequest
from towline.execution.options import default_parallelism, node_cores
from towline.execution.remote_engine import RemoteEngine
from towline.execution.seam import Seam
from towline.pipeline.module_rules import limits_of
from towline.pipeline.session import Session
from towline.planning.plan import shown_plan

if TYPE_CHECKING:
    from towline.execution.backend import ExecutionBackend
    from towline.execution.engine import Engine
    from towline.execution.limits import RunLimits

NO_BOUND = 1_000_000
"""The seam gives out the slots: a task that nobody has asked for takes none (DIST-83)."""


class BackendSession(Session):
    """The composition of a run under ``Options.backend``."""

    engine_class: ClassVar[type[Engine]] = RemoteEngine

    def _limits(self) -> RunLimits:
        return msgspec.structs.replace(limits_of(self.request.options), parallelism=NO_BOUND)

    async def _drive(self) -> str:
        backend = self.request.options.backend
        assert backend is not None
        assert isinstance(self.engine, RemoteEngine)
        scope = CancelScope()
        seam = Seam(
            self.engine,
            self.engine.runner,
            self.opened.plan,
            self.node.values,
            parallelism=self.request.options.parallelism or default_parallelism(node_cores()),
            pipeline_scope=scope,
        )
        self.engine.runner = seam  # type: ignore[assignment]
        self.events.subscribe(seam.take)
        driving = asyncio.ensure_future(super()._drive())
        executing = asyncio.ensure_future(self._execute(backend, seam, scope))
        stalls = asyncio.ensure_future(seam.watch_for_stalls())
        try:
            await asyncio.wait([driving, executing], return_when=asyncio.FIRST_COMPLETED)
            if driving.done():
                scope.cancel()
            else:
                self._settle(backend, seam, executing)
            return await driving
        finally:
            stalls.cancel()
            scope.cancel()
            await asyncio.wait([executing, stalls])

    async def _execute(self, backend: ExecutionBackend, seam: Seam, scope: CancelScope) -> None:
        """Let the back end work; what it returns counts as applied."""
        request = ExecutionRequest(
            tasks=shown_plan(self.facts.program.name, self.opened.plan.document.tasks).tasks,
            estimates=self.opened.earlier.estimates,
            context=seam,
            pipeline_scope=scope,
        )
        with scope:
            for outcome in await backend.execute(request):
                if outcome.task_id not in seam.final_or_executing():
                    seam.try_apply_outcome(outcome)

    def _settle(self, backend: ExecutionBackend, seam: Seam, executing: asyncio.Future[None]) -> None:
        """The back end has returned, or raised: what it owned and did not bring is its failure."""
        error = executing.exception()
        assert isinstance(self.engine, RemoteEngine)
        if error is not None:
            self.engine.break_down(error if isinstance(error, Exception) else RuntimeError(str(error)))
        elif backend.owns_entire_plan and seam.unfinished():
            missing = BackendContractError("returned without an outcome of tasks that it owns", seam.unfinished())
            self.warn(str(missing))
            seam.fail_unfinished(missing, self.clock.now, self.facts.worker_id)
