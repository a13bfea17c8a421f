"""A worker process for any number of runs of one program, as they come and go (DIST-09)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from towline.clock.exits import SystemExitDoor
from towline.distributed.factories import factory_of
from towline.distributed.slots import Slots
from towline.errors.root import TowlineError
from towline.execution.started import kill_all, wait_for_trees, warden
from towline.pipeline.signals import Signals
from towline.pipeline.worker_run import WorkerRun, slots_of

if TYPE_CHECKING:
    from towline.distributed.options import DistributedOptions
    from towline.execution.run_request import RunRequest
    from towline.modules.target import TargetRef
    from towline.pipeline.program import Program

_log = logging.getLogger("towline.worker")

RUNS_AT_ONCE = 8
LOOK_S = 1.0
"""Between two looks for runs that were opened or have ended."""


class Fleet:
    """Keeps a session in each live run of a program, oldest first; all share the slots of this process.

    A run that refuses this worker, another version of the program for one, is left alone afterwards.
    """

    def __init__(self, program: Program, target: TargetRef | None, request: RunRequest) -> None:
        self._program, self._target, self._request = program, target, request
        self._options: DistributedOptions = request.distributed
        self._slots = Slots(slots_of(request))
        self._runs: dict[str, tuple[WorkerRun, asyncio.Task[int]]] = {}
        self._refused: set[str] = set()
        self._stop_asked = asyncio.Event()
        self.exit_code = 0

    async def run(self) -> int:
        """Work until a signal, or until there was no run for the idle timeout; returns the exit code.

        Raises:
            CoordinationError: The coordinator cannot be reached.
        """
        signals = Signals(asyncio.get_running_loop(), self._on_signal, self._on_second, SystemExitDoor())
        if self._request.by_main:
            signals.install()
        try:
            await self._follow_runs()
        finally:
            await self.leave()
            options = self._request.options
            await wait_for_trees(options.cancel_grace_s + options.terminate_grace_s)
            warden.close()
            if self._request.by_main:
                signals.restore()
        return self.exit_code

    async def _follow_runs(self) -> None:
        options = self._options
        factory = factory_of(options.coordinator, poll_s=options.redis_poll_s, lost_after_s=options.master_timeout_s)
        now = asyncio.get_running_loop().time
        busy_at = now()
        stopping = asyncio.ensure_future(self._stop_asked.wait())
        try:
            while not self._stop_asked.is_set():
                for run_id in await factory.live_runs(self._program.id):
                    if len(self._runs) < RUNS_AT_ONCE and run_id not in self._runs and run_id not in self._refused:
                        self._join(run_id)
                self._see_ended()
                if self._runs:
                    busy_at = now()
                elif options.idle_timeout_s is not None and now() - busy_at >= options.idle_timeout_s:
                    return
                await asyncio.wait([stopping], timeout=LOOK_S)
        finally:
            stopping.cancel()

    def _join(self, run_id: str) -> None:
        request = msgspec.structs.replace(self._request, run_id=run_id, by_main=False)
        work = WorkerRun(self._program, self._target, request, run_id, fleet_slots=self._slots)
        _log.info("works for run %s", run_id)
        self._runs[run_id] = (work, asyncio.create_task(work.run(), name=f"towline-run-{run_id}"))

    def _see_ended(self) -> None:
        for run_id, (_, task) in list(self._runs.items()):
            if not task.done():
                continue
            del self._runs[run_id]
            error = task.exception()
            if isinstance(error, TowlineError):
                self._refused.add(run_id)
                _log.warning("run %s goes on without this worker: %s", run_id, error)
            elif error is not None:
                raise error

    async def leave(self) -> None:
        """Leave all runs politely (DIST-24); twice without harm."""
        self._stop_asked.set()
        if self._runs:
            await asyncio.gather(*[work.leave() for work, _ in self._runs.values()])
            await asyncio.wait([task for _, task in self._runs.values()])
            self._see_ended()

    def _on_signal(self, code: int) -> None:
        self.exit_code = code
        self._stop_asked.set()

    def _on_second(self, code: int) -> None:
        kill_all()
        SystemExitDoor()(code)
