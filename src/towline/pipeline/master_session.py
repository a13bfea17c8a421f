"""A run whose tasks are done by workers, this process among them (DIST-27 to 57)."""

from __future__ import annotations

import asyncio
import math
import os
import platform
import random
from typing import TYPE_CHECKING, ClassVar

import msgspec

from towline.coordination.contract import RunCleanup
from towline.coordination.records import (
    RunCleanupContext,
    RunOpening,
)
from towline.distributed.discovery import Announcer
from towline.distributed.dispatch import Dispatch
from towline.distributed.factories import factory_of
from towline.distributed.master import Master
from towline.distributed.options import options_from, with_workers
from towline.errors.coordination import RunIdUsedError
from towline.errors.state import StateError
from towline.execution.remote_engine import RemoteEngine
from towline.modules.capabilities import MASTER_CAPABILITY
from towline.pipeline.assignments import Assignments
from towline.pipeline.master_host import SessionHost
from towline.pipeline.master_pool import MasterPool, free_former_pools, own_slots, successor_id
from towline.pipeline.module_rules import limits_of, node_pools_of
from towline.pipeline.node_fingerprint import node_fingerprint
from towline.pipeline.run_params import told_params
from towline.pipeline.session import Session
from towline.planning.records import FINAL_STATES

if TYPE_CHECKING:
    from towline.coordination.contract import CoordinatorFactory
    from towline.distributed.options import DistributedOptions
    from towline.execution.engine import Engine
    from towline.execution.limits import RunLimits
    from towline.execution.run_request import RunRequest
    from towline.pipeline.opening import OpenedPlan
    from towline.pipeline.run_node import NodeFacts

NO_BOUND = 1_000_000
"""Slots, cores and node-scope tickets of a run that is spread over nodes: each node bounds itself (DIST-36)."""


def _coordinators(options: DistributedOptions) -> CoordinatorFactory:
    return factory_of(options.coordinator, poll_s=options.redis_poll_s, lost_after_s=options.master_timeout_s)


class MasterSession(Session):
    """The composition of a master: its engine's runner is the dispatch to workers."""

    engine_class: ClassVar[type[Engine]] = RemoteEngine

    @classmethod
    def refuse_early(cls, request: RunRequest) -> None:
        """Also refuse a coordinator that is unknown, or whose extra is not installed (DIST-03)."""
        super().refuse_early(request)
        _coordinators(request.distributed)

    def __init__(self, facts: NodeFacts, opened: OpenedPlan) -> None:
        super().__init__(facts, opened)
        self.distributed: DistributedOptions = self.request.distributed
        # Before the loop has anything to do: loading a client can take a second.
        self._factory = _coordinators(self.distributed)
        self._status = "failed"
        self._lost: Exception | None = None
        self._pools: list[MasterPool] = []

    def _limits(self) -> RunLimits:
        """Only what holds over all nodes is taken here, before a task is queued (DIST-36)."""
        limits = limits_of(self.request.options)
        pools = limits.pools | dict.fromkeys(node_pools_of(self.request.options), NO_BOUND)
        return msgspec.structs.replace(limits, parallelism=NO_BOUND, cores=NO_BOUND, pools=pools)

    def _outage_limit_s(self) -> float:
        return min(float(getattr(self.opened.ownership, "lease_s", math.inf)), self.distributed.master_timeout_s)

    def _hear_bodies(self) -> None:
        """What bodies print goes to their worker, that of this process included."""

    # ------------------------------------------------------------------ the run

    async def _drive(self) -> str:
        options = self.distributed
        coordinator = await self._factory.create_master(self.facts.run_id)
        look_up = self.engine.runner.look_up  # of the runner of bodies; from here on the engine's is the dispatch
        host = SessionHost(self, look_up)
        master = self._master = Master(coordinator, self._opening(), options, host)
        master.dispatch = host.dispatch = Dispatch(
            self.engine,  # type: ignore[arg-type]
            self._assignments().assignment_of,
            clock=self.clock,
            master_id=self.facts.worker_id,
            now=self._loop.time,
            result_margin_s=options.result_margin_s,
            keeps_always_run=self.request.options.always_run_on_interrupt,
            wake=master.wake,
        )
        self.engine.runner = master.dispatch  # type: ignore[assignment]
        try:
            try:
                await master.open()
                if self._takes_over:
                    await free_former_pools(coordinator, self.facts.worker_id)
            except RunIdUsedError:
                if not self._is_all_final():
                    raise
                # The master before this one had sent everybody home, and died before it wrote that down (DIST-44).
                return await super()._drive()
            await self._start_pools()
            announcer = self._announcer()
            master.start()
            try:
                await master.wait_for_workers()
                self._status = await self._drive_engine()
            finally:
                if announcer is not None:
                    await announcer.stop()
                await self._end()
        finally:
            await coordinator.aclose()
        return self._status

    def _announcer(self) -> Announcer | None:
        """Begin to tell workers where the coordinator is, in the place that the program names for it."""
        discovery, url = self.request.options.discovery, self.distributed.coordinator
        if discovery is None or not isinstance(url, str):
            return None
        life_s = self.distributed.master_timeout_s
        announcer = Announcer(discovery, url, self._master.opening, life_s=life_s, clock=self.clock)
        announcer.start()
        return announcer

    async def _drive_engine(self) -> str:
        try:
            return await super()._drive()
        except StateError as error:
            self._lost = self._lost or error  # a master that takes over finds the run open
            raise

    def _is_all_final(self) -> bool:
        return all(row.state in FINAL_STATES for row in self.opened.plan.document.tasks)

    def _opening(self) -> RunOpening:
        options, ownership = self.distributed, self.opened.ownership
        document = self.opened.plan.document
        return RunOpening(
            run_id=self.facts.run_id,
            pipeline=self.facts.program.name,
            program=self.facts.program.id,
            fingerprint=node_fingerprint(self.facts.program, document.graph_digest),
            params=told_params(self.facts.params),
            state_id=self.opened.state_id,
            master_id=f"{platform.node()}-{os.getpid()}-{random.getrandbits(32):08x}",
            owner_epoch=ownership.epoch,
            # The state's own lock was free: its former owner is dead, whatever its lease says (DIST-51).
            replaces=ownership.epoch - 1,
            worker_timeout_ms=round(options.worker_timeout_s * 1000),
            master_timeout_ms=round(options.master_timeout_s * 1000),
            master_lease_ms=round(options.master_lease_s * 1000),
            requeue_limit=options.requeue_limit,
            key_life_ms=round(max(options.redis_key_life_s, 2 * options.master_timeout_s) * 1000),
            plan_id=document.plan_id,
        )

    def _assignments(self) -> Assignments:
        """What makes assignments of the plan's tasks."""
        return Assignments(self.built, self.node.values, self.scheduler)

    async def _start_pools(self) -> None:
        """Take part with this process's own slots, through the same claims as everybody (DIST-30)."""
        slots = own_slots(self.request)
        if slots:
            await self._add_pool(self._pool_id(), slots)

    def _pool_id(self) -> str:
        worker_id = self.facts.worker_id
        return successor_id(worker_id, self._master.opening.owner_epoch) if self._takes_over else worker_id

    @property
    def _takes_over(self) -> bool:
        """Whether another master led this very run before."""
        return self.opened.resumed_from == self.facts.run_id

    async def _add_pool(self, worker_id: str, slots: int, *capabilities: str) -> None:
        """Work in this process too, under this id, until the run ends."""
        pool = MasterPool(
            msgspec.structs.replace(self.facts, worker_id=worker_id),
            self._master.coordinator,
            self._factory,
            slots=slots,
            owner_epoch=self._master.opening.owner_epoch,
            capabilities=(MASTER_CAPABILITY, *capabilities),
            tell=self.warn,
        )
        await pool.start()
        self._pools.append(pool)

    async def _end(self) -> None:
        """Complete the run whatever happened, then let workers and clean-up have their time (DIST-43, DIST-70)."""
        try:
            if not self._lost:
                await self._master.complete()
            for pool in self._pools:
                if self._lost:
                    await pool.break_off(self._lost)
                else:
                    await pool.finish()
        finally:
            for pool in self._pools:
                await pool.close()
            if self._lost:
                await self._master.stop()
            else:
                await self._master.finish()
                await self._clean_up()
            self._count_commands()

    async def _clean_up(self) -> None:
        """Remove the run's transfer data by policy, once everybody has gone (DIST-70 to 73)."""
        policy, coordinator = self.distributed.cleanup, self._master.coordinator
        wanted = policy == "always" or (policy == "on_success" and self._status == "succeeded")
        if not wanted or not isinstance(coordinator, RunCleanup):
            return
        context = RunCleanupContext(
            run_id=self.facts.run_id,
            pipeline=self.facts.program.name,
            outcome=self._status,  # type: ignore[arg-type]
            deadline_s=self.distributed.finalize_timeout_s,
        )
        try:
            async with asyncio.timeout(self.distributed.finalize_timeout_s):
                await coordinator.clean_up_run(context)
        except Exception as error:  # noqa: BLE001 - clean-up never changes how a run ended (DIST-72)
            self.warn(f"the run's data in the coordinator could not be removed: {error}")

    def _count_commands(self) -> None:
        counted = self.node.commands
        for status in self._master.statuses:
            for task_id, count in status.commands.items():
                counted[task_id] = counted.get(task_id, 0) + count

    @property
    def requeue_count(self) -> int:
        """How often a task came back from a worker without an outcome."""
        return self._master.dispatch.requeue_count

    def state_is_lost(self, error: Exception) -> None:
        """The run is another master's, or gone: send nothing more, not even that it has ended (STATE-10, DIST-56)."""
        self._lost = error
        self.engine.break_down(error)
        self._master.dispatch.drop_all()


def as_master(request: RunRequest) -> RunRequest:
    """Return the request with its distributed options, those of the run's own options where it has none (DIST-01)."""
    if request.distributed is not None:
        return request
    options = request.options
    made = with_workers(options) if options.workers else options_from(options)
    return msgspec.structs.replace(request, distributed=made)
