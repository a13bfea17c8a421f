"""A run of several processes in one, under virtual time: they start, meet the faults of a plan, and are judged."""

from __future__ import annotations

import asyncio
import itertools
from random import Random
from typing import TYPE_CHECKING

from towline.coordination.ledger.state import LedgerState
from towline.testing.simulation.master import SimulatedMaster
from towline.testing.simulation.oracle import SimulationError
from towline.testing.simulation.worker import SimulatedWorker
from towline.testing.simulation.world import Graph, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.coordination.link import Link
    from towline.errors.coordination import CoordinationError
    from towline.testing.fault_plan import Fault, FaultPlan

LIMIT_S = 1_500.0
"""Virtual seconds within which any run must have ended."""


class SimulatedCluster:
    """One run of a random graph over ``workers`` processes, with the faults of a plan.

    ``make_link``: where the coordinator's operations are executed; the ledger in memory unless given.
    """

    def __init__(
        self, plan: FaultPlan, *, workers: int = 3, tasks: int = 40, make_link: Callable[[], Link] | None = None
    ) -> None:
        self.world = World(plan, Graph(Random(f"{plan.seed}-graph"), tasks), make_link)
        self._count = workers
        self._sessions = itertools.count(1)
        self._owner_epochs = itertools.count(1)
        self._workers: list[SimulatedWorker] = []
        self._master: SimulatedMaster

    async def run_to_end(self) -> None:
        """Run the graph with its faults.

        Raises:
            SimulationError: Something is not as in a run without faults.
        """
        await self._start_master()
        self._workers = [self._start_worker(number) for number in range(self._count)]
        faults = asyncio.ensure_future(self._cause_faults())
        try:
            async with asyncio.timeout(LIMIT_S):
                await self.world.all_final.wait()
                faults.cancel()
                await asyncio.wait([faults])
                self._wake_all()
                if self._master.is_dead:
                    await self._start_master()
                if self._master.error is None:
                    await self._master.master.finish()
                await self._wait_for_workers()
        except TimeoutError:
            missing = [name for name in self.world.graph.tasks if name not in self.world.finals]
            self.world.book.faults.append(f"the run hangs; not final: {missing or 'nothing'}")
        finally:
            faults.cancel()
            for worker in self._workers:
                await worker.kill()
            await self._master.master.stop()
        found = self.world.book.judged(self.world.graph.tasks, self.world.run.state, self._master.error)
        if found:
            raise SimulationError(f"{'; '.join(found[:5])}\nplan: {self.world.plan}")

    async def _wait_for_workers(self) -> None:
        while not all(worker.is_done for worker in self._workers):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1.0)

    def _wake_all(self) -> None:
        for worker in self._workers:
            worker.awake.set()
            worker.coordinator.link.mend()
        self._master.coordinator.link.mend()

    async def _start_master(self) -> None:
        self._master = SimulatedMaster(self.world, next(self._owner_epochs))
        await self._master.lead()

    def _start_worker(self, number: int) -> SimulatedWorker:
        worker = SimulatedWorker(self.world, f"w{number}", f"s{next(self._sessions)}", self._worker_left)
        worker.begin()
        return worker

    def _worker_left(self, worker: SimulatedWorker, error: CoordinationError) -> None:
        """A worker gave up: its process is started again by whoever watches it, unless the run is over."""
        if not self.world.all_final.is_set() and worker in self._workers:
            number = self._workers.index(worker)
            self._workers[number] = self._start_worker(number)

    # ------------------------------------------------------------------ faults

    async def _cause_faults(self) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        mending: list[asyncio.Task[None]] = []
        try:
            for fault in self.world.plan.faults:
                await asyncio.sleep(max(0.0, began + fault.at_s - now()))
                if fault.kind in ("pause", "partition"):
                    mending.append(asyncio.ensure_future(self._cut_off(fault)))
                else:
                    await self._cause(fault)
            if mending:
                await asyncio.wait(mending)
        finally:
            for task in mending:
                task.cancel()

    async def _cause(self, fault: Fault) -> None:
        match fault.kind:
            case "kill":
                await self._workers[fault.worker].kill()
                await asyncio.sleep(fault.for_s)
                self._workers[fault.worker] = self._start_worker(fault.worker)
            case "restart_master":
                await self._master.kill()
                await asyncio.sleep(fault.for_s)
                await self._start_master()
            case "lose_data":
                self.world.run.state = LedgerState()
            case "jump":
                self.world.run.jump_ms += round(fault.for_s * 1000)
            case _:
                raise ValueError(fault.kind)

    async def _cut_off(self, fault: Fault) -> None:
        """Nothing reaches the worker; in a pause its bodies stand still too."""
        worker = self._workers[fault.worker]
        worker.coordinator.link.cut()
        if fault.kind == "pause":
            worker.awake.clear()
        await asyncio.sleep(fault.for_s)
        worker.awake.set()
        worker.coordinator.link.mend()
