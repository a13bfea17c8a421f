"""A process that works for a master: from its arguments to its exit code (DIST-15 to 26)."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from typing import TYPE_CHECKING, Any

import msgspec

from towline.clock import SystemClock
from towline.clock.exits import SystemExitDoor
from towline.distributed.data_loss import register_when_open
from towline.distributed.factories import factory_of
from towline.distributed.options import worker_id_of
from towline.distributed.slots import Slots
from towline.errors.coordination import (
    CoordinationError,
    MasterLostError,
    ProgramMismatchError,
    RunUnknownError,
    WorkerIdTakenError,
)
from towline.execution.options import default_parallelism, node_cores
from towline.execution.started import kill_all, wait_for_trees, warden
from towline.pipeline.mismatch import with_differences
from towline.pipeline.outages import tell_outages
from towline.pipeline.run_node import NodeFacts
from towline.pipeline.run_params import params_of_run
from towline.pipeline.signals import Signals
from towline.pipeline.stores import open_state, refuse_other_state, state_id
from towline.pipeline.taking_part import TakingPart

if TYPE_CHECKING:
    from towline.clock import Clock
    from towline.coordination.contract import WorkerCoordinator
    from towline.coordination.records import RunState, WorkerRegistration
    from towline.distributed.options import DistributedOptions
    from towline.distributed.worker import Worker
    from towline.execution.run_request import RunRequest
    from towline.modules.target import TargetRef
    from towline.pipeline.program import Program
    from towline.state.store import StateStore

_log = logging.getLogger("towline.worker")

RUN_LOOK_S = 1.0
TAKEN_MARGIN_S = 5.0
"""How long after the end of its lease a process that is gone may still have its id, by the clock of the back end."""


def _is_process(pid: int) -> bool:
    """Whether this machine has a process of this number; a later one counts, and so does whatever cannot be asked."""
    if os.name == "nt":
        return True  # there the question would be a signal
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True


def slots_of(request: RunRequest) -> int:
    """Return how many tasks may run at once here; a node may lower it (DIST-16)."""
    slots = request.options.parallelism or default_parallelism(node_cores())
    limit: int | None = request.distributed.max_parallelism
    return slots if limit is None else min(slots, limit)


class WorkerRun:
    """One worker in one run. ``store``: the state that it shares with the master; opened here when absent.

    ``fleet_slots``: the slots of a process that works for other runs too.
    """

    def __init__(
        self,
        program: Program,
        target: TargetRef | None,
        request: RunRequest,
        run_id: str,
        *,
        clock: Clock | None = None,
        store: StateStore | None = None,
        worker_id: str | None = None,
        fleet_slots: Slots | None = None,
    ) -> None:
        self.program, self.request, self.run_id = program, request, run_id
        self.clock = clock or SystemClock()
        self.options: DistributedOptions = request.distributed
        self.worker_id = worker_id or worker_id_of(self.options, random.Random())
        self.exit_code = 0
        self._target, self._store, self._fleet_slots = target, store, fleet_slots
        self._worker: Worker | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Work until the run has no more; returns the exit code.

        Raises:
            ProgramMismatchError: The run is one of another program, or of another version of it (COORD-C08).
            CoordinationError: Refused, replaced, or nobody can be reached: the text says which.
        """
        options = self.options
        factory = factory_of(options.coordinator, poll_s=options.redis_poll_s, lost_after_s=options.master_timeout_s)
        coordinator = await factory.create_worker(self.run_id)
        try:
            state = await self._wait_until_open(coordinator)
            return await self._work(coordinator, state, factory)
        finally:
            await coordinator.aclose()

    async def _wait_until_open(self, coordinator: WorkerCoordinator) -> RunState:
        """Wait for the master to open the run, whose parameters this worker takes (DIST-08, DIST-18)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.options.registration_timeout_s
        while True:
            state = await coordinator.run_state()
            if state.state != "unknown":
                return state
            if loop.time() >= deadline:
                where = self.options.coordinator if isinstance(self.options.coordinator, str) else ""
                raise RunUnknownError(self.run_id, where.rpartition("@")[2])
            await asyncio.sleep(RUN_LOOK_S)

    async def _work(self, coordinator: WorkerCoordinator, state: RunState, factory: Any) -> int:
        options, request = self.options, self.request
        if state.program and state.program != self.program.id:
            # First of all: parameters and state of another program differ as well, which is not what is wrong.
            raise ProgramMismatchError("program", state.program, self.program.id)
        params = self._params_of(state)
        built = self.program.build(params, request.options, must_travel=True)
        store = self._store or open_state(self.program, request, self.clock)
        if self._store is None:
            refuse_other_state(state.state_id, await state_id(store))
        facts = NodeFacts(
            program=self.program,
            target=self._target,
            request=request,
            built=built,
            params=params,
            store=store,
            run_id=self.run_id,
            plan_id=state.plan_id or "",
            worker_id=self.worker_id,
            clock=self.clock,
        )
        parallelism = slots_of(request)
        part = TakingPart(
            facts,
            coordinator,
            factory,
            parallelism=parallelism,
            slots=self._fleet_slots or Slots(parallelism),
            owner_epoch=state.owner_epoch,
            shares_slots=self._fleet_slots is not None,
        )
        # All that takes time is done by now: who is registered is counted on to take work at once.
        try:
            await self._register(coordinator, part.registration, state.worker_timeout_ms / 1000)
        except ProgramMismatchError as error:
            raise await with_differences(error, store, built.tasks) from None
        self._worker = part.worker
        signals = Signals(asyncio.get_running_loop(), self._on_signal, self._on_second, SystemExitDoor())
        if request.by_main:
            signals.install()
        stop_hearing = tell_outages(_log.warning, options.master_timeout_s)
        part.start()
        watching = asyncio.create_task(self._watch_master(coordinator), name="towline-master-watch")
        try:
            await part.worker.run()
            await part.say_goodbye()
        finally:
            stop_hearing()
            watching.cancel()
            await asyncio.wait([watching])
            await part.stop_beating()
            if self._fleet_slots is None:  # else this process goes on, and so do commands of its other runs
                await wait_for_trees(request.options.cancel_grace_s + request.options.terminate_grace_s)
                warden.close()
            part.close()
            if request.by_main:
                signals.restore()
            if self._store is None:
                await store.close()
        return self.exit_code

    async def _register(
        self, coordinator: WorkerCoordinator, registration: WorkerRegistration, worker_timeout_s: float
    ) -> None:
        """Register; where a process of this machine that is gone still has the id, wait until its lease has run out.

        It is waited for, not replaced: a container has processes of its own, and may have the name of its machine.
        """
        limit_s, now = self.options.registration_timeout_s, asyncio.get_running_loop().time
        deadline: float | None = None
        while True:
            try:
                await register_when_open(coordinator, registration, limit_s=limit_s)
                return
            except WorkerIdTakenError as error:
                left_s = max(0.0, worker_timeout_s - error.silent_s)
                is_gone = error.host == registration.host and not _is_process(error.pid)
                if not is_gone or (deadline is not None and now() >= deadline):
                    raise
                if deadline is None:
                    deadline = now() + left_s + TAKEN_MARGIN_S
                    _log.warning(
                        "%s belongs to process %d of this machine, which is gone: this one has it in %.0f s, when that "
                        "one's lease has run out",
                        error.worker_id,
                        error.pid,
                        left_s,
                    )
                await asyncio.sleep(RUN_LOOK_S)

    def _params_of(self, state: RunState) -> Any:
        if not isinstance(state.params, msgspec.Raw):
            return self.program.params_for(self.request.params)
        return params_of_run(self.program, state.params, self.request.params, os.environ)

    # ------------------------------------------------------------------ the end

    async def _watch_master(self, coordinator: WorkerCoordinator) -> None:
        """Leave when nobody has led the run for the master timeout; drop what runs on after its end (DIST-25)."""
        while True:
            await asyncio.sleep(self.options.heartbeat_interval_s)
            state = await coordinator.run_state()
            if self._worker is None:
                continue
            if state.state == "completed":
                self._worker.drop_leftovers()
            elif state.state == "lost":
                self._worker.replaced(
                    MasterLostError(self.run_id, state.master_silent_ms / 1000, state.master_timeout_ms / 1000)
                )
                return

    def lose(self, error: CoordinationError) -> bool:
        """End with this error, for nobody leads the run any more; false when the work has not begun (DIST-25)."""
        if self._worker is None:
            return False
        self._worker.replaced(error)
        return True

    def _on_signal(self, code: int) -> None:
        """Claim nothing more, end what runs within the drain time, hand over the rest (DIST-24)."""
        self.exit_code = code
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self.leave())

    async def leave(self) -> None:
        """Drain politely; also the door for tests and callers without signals."""
        worker = self._worker
        if worker is None:
            return
        worker.drain()
        waiting = asyncio.ensure_future(worker.wait_until_idle())
        await asyncio.wait([waiting], timeout=self.options.drain_timeout_s)
        if not waiting.done():
            waiting.cancel()
            await worker.give_back()

    def _on_second(self, code: int) -> None:
        kill_all()
        SystemExitDoor()(code)
