"""A run whose tasks are done by workers, this process among them (DIST-27 to 57)."""

from __future__ import annotations

import asyncio
import os
import platform
import random
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

import towline
from towline.clock import moment
from towline.coordination.checks import CRITICAL_PATH_LIMIT_MS
from towline.coordination.contract import RunCleanup
from towline.coordination.records import (
    Assignment,
    DependencyRef,
    LeaseRef,
    OutcomeRecord,
    RunCleanupContext,
    RunOpening,
    WorkerRegistration,
)
from towline.distributed.discovery import Announcer
from towline.distributed.dispatch import Dispatch
from towline.distributed.factories import factory_of
from towline.distributed.keeper import HeldLeases, Keeper, KeeperTask, KeeperThread
from towline.distributed.master import Master
from towline.distributed.options import options_from
from towline.distributed.outcomes import record_of_outcome
from towline.distributed.slots import Slots
from towline.distributed.spool import Spool
from towline.distributed.worker import Worker
from towline.errors.coordination import CoordinationError, RunIdUsedError
from towline.errors.state import StateError
from towline.execution.options import default_parallelism, node_cores
from towline.execution.remote_engine import RemoteEngine
from towline.modules.outcomes import Succeeded
from towline.pipeline.large_values import by_reference, with_value_or_failed
from towline.pipeline.program import limits_of, node_pools_of, params_mapping
from towline.pipeline.session import Session
from towline.pipeline.worker_node import WorkerNode
from towline.planning.records import FINAL_STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.coordination.contract import CoordinatorFactory
    from towline.coordination.records import EventBatch
    from towline.distributed.dispatch import Sent
    from towline.distributed.options import DistributedOptions
    from towline.execution.engine import Engine
    from towline.execution.limits import RunLimits
    from towline.execution.run_request import RunRequest
    from towline.execution.taskrun import TaskRun
    from towline.modules.outcomes import Outcome
    from towline.planning.records import PlannedTask

NO_BOUND = 1_000_000
"""Slots, cores and node-scope tickets of a run that is spread over nodes: each node bounds itself (DIST-36)."""


def _coordinators(options: DistributedOptions) -> CoordinatorFactory:
    return factory_of(options.coordinator, poll_s=options.redis_poll_s, lost_after_s=options.master_timeout_s)


class MasterSession(Session):
    """The composition of a master: its engine's runner is the dispatch to workers."""

    engine_class: ClassVar[type[Engine]] = RemoteEngine
    runs_bodies: ClassVar[bool] = False

    @classmethod
    def refuse_early(cls, request: RunRequest) -> None:
        """Also refuse a coordinator that is unknown, or whose extra is not installed (DIST-03)."""
        super().refuse_early(request)
        _coordinators(request.distributed)

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.distributed: DistributedOptions = self.request.distributed
        # Before the loop has anything to do: loading a client can take a second.
        self._factory = _coordinators(self.distributed)
        self._status = "failed"
        self._assigned: dict[str, TaskRun] = {}
        self._node: WorkerNode | None = None
        self._worker: Worker | None = None

    def _limits(self) -> RunLimits:
        """Only what holds over all nodes is taken here, before a task is queued (DIST-36)."""
        limits = limits_of(self.request.options)
        pools = limits.pools | dict.fromkeys(node_pools_of(self.request.options), NO_BOUND)
        return msgspec.structs.replace(limits, parallelism=NO_BOUND, cores=NO_BOUND, pools=pools)

    # ------------------------------------------------------------------ the run

    async def _drive(self) -> str:
        options = self.distributed
        factory = self._factory
        coordinator = await factory.create_master(self.run_id)
        master = Master(coordinator, self._opening(), options, self)
        self._master = master
        master.dispatch = Dispatch(
            self.engine,  # type: ignore[arg-type]
            self._assignment_of,
            clock=self.clock,
            master_id=self.worker_id,
            now=self._loop.time,
            result_margin_s=options.result_margin_s,
            keeps_always_run=self.request.options.always_run_on_interrupt,
            wake=master.wake,
        )
        self.engine.runner = master.dispatch  # type: ignore[assignment]
        try:
            try:
                await master.open()
            except RunIdUsedError:
                if not self._is_all_final():
                    raise
                # The master before this one had sent everybody home, and died before it wrote that down (DIST-44).
                return await super()._drive()
            pool = await self._start_pool(factory)
            announcer = self._announcer()
            master.start()
            try:
                await master.wait_for_workers()
                self._status = await self._drive_engine()
            finally:
                if announcer is not None:
                    await announcer.stop()
                await self._end(pool)
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
            run_id=self.run_id,
            pipeline=self.program.name,
            program=self.program.id,
            fingerprint=document.graph_digest,
            params=msgspec.Raw(msgspec.json.encode(params_mapping(self.params), enc_hook=repr)),
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

    async def _start_pool(self, factory: Any) -> asyncio.Task[str] | None:
        """Take part with this process's own slots, through the same claims as everybody (DIST-30)."""
        options = self.distributed
        slots = options.master_parallelism
        if slots is None:
            slots = self.request.options.parallelism or default_parallelism(node_cores())
        if slots == 0:
            return None
        coordinator = self._master.coordinator
        owner_epoch = self._master.opening.owner_epoch
        worker_id = self.worker_id
        if self.opened.resumed_from == self.run_id:
            # The dead master's own pool still has its id, and its leases, for one worker timeout (COORD-C03).
            worker_id = f"{worker_id}-{owner_epoch}"
        registration = registration_of(self, self.run_id, worker_id, slots, self.request.capabilities, master=True)
        await coordinator.register(registration)
        held, spool = HeldLeases(), Spool(registration.ref, self.run_id)
        spool.owner_epoch = owner_epoch
        self._node = WorkerNode(
            self.program,
            self._target,
            self.request,
            self.program.build(self.params, self.request.options, must_travel=True),
            params=self.params,
            coordinator=coordinator,
            store=self.opened.store,
            plan_id=self.opened.plan.document.plan_id,
            run_id=self.run_id,
            worker_id=worker_id,
            spool=spool,
            clock=self.clock,
        )
        self._node.install()
        self._worker = Worker(
            coordinator, registration, self._node, slots=Slots(slots), spool=spool, held=held, tell=self.warn
        )
        keeper = Keeper(registration, held, self._worker, interval_s=options.heartbeat_interval_s)
        is_real = type(self._loop).__module__.split(".")[0] in ("asyncio", "uvloop")
        in_thread = is_real and options.coordinator is not None and not is_memory(options.coordinator)
        self._keeper = (
            KeeperThread(keeper, lambda: factory.create_worker(self.run_id))
            if in_thread
            else KeeperTask(keeper, coordinator)
        )
        self._keeper.start()
        return self._loop.create_task(self._worker.run(), name="towline-master-pool")

    async def _end(self, pool: asyncio.Task[str] | None) -> None:
        """Complete the run whatever happened, then let workers and clean-up have their time (DIST-43, DIST-70)."""
        try:
            if not self._lost:
                await self._master.complete()
            if pool is not None and self._worker is not None and self._node is not None:
                if self._lost:
                    await self._stop_pool(pool, self._worker, self._lost)
                await asyncio.wait([pool])
                if not pool.cancelled() and pool.exception() is None:
                    await self._worker.say_goodbye(self._node.commands)
        finally:
            if pool is not None and self._node is not None:
                await self._keeper.stop()
                self._node.close()
            if self._lost:
                await self._master.stop()
            else:
                await self._master.finish()
                await self._clean_up()
            self._count_commands()

    _lost: Exception | None = None

    async def _stop_pool(self, pool: asyncio.Task[str], worker: Worker, error: Exception) -> None:
        """End what runs here and publish none of it; a body that will not end is left to the end of the process."""
        worker.replaced(error if isinstance(error, CoordinationError) else CoordinationError(str(error)))
        await asyncio.wait([pool], timeout=self.distributed.drain_timeout_s)
        pool.cancel()

    async def _clean_up(self) -> None:
        """Remove the run's transfer data by policy, once everybody has gone (DIST-70 to 73)."""
        policy, coordinator = self.distributed.cleanup, self._master.coordinator
        wanted = policy == "always" or (policy == "on_success" and self._status == "succeeded")
        if not wanted or not isinstance(coordinator, RunCleanup):
            return
        context = RunCleanupContext(
            run_id=self.run_id,
            pipeline=self.program.name,
            outcome=self._status,  # type: ignore[arg-type]
            deadline_s=self.distributed.finalize_timeout_s,
        )
        try:
            async with asyncio.timeout(self.distributed.finalize_timeout_s):
                await coordinator.clean_up_run(context)
        except Exception as error:  # noqa: BLE001 - clean-up never changes how a run ended (DIST-72)
            self.warn(f"the run's data in the coordinator could not be removed: {error}")

    def _count_commands(self) -> None:
        for status in self._master.statuses:
            for task_id, count in status.commands.items():
                self.commands_of[task_id] = self.commands_of.get(task_id, 0) + count
                self.command_count += count

    # ------------------------------------------------------------------ assignments

    def _assignment_of(self, run: TaskRun) -> Assignment:
        row, kind = run.row, run.kind
        settings = kind.spec.settings
        return Assignment(
            task_id=row.id,
            module=row.module,
            key=row.key,
            requires=settings.requires or (),
            always_run=settings.always_run,
            at_most_once=settings.at_most_once,
            priority=settings.priority,
            critical_path_ms=min(CRITICAL_PATH_LIMIT_MS, round(self.scheduler.critical_path_s(run.position) * 1000)),
            timeout_ms=round(kind.timeout_s * 1000),
            attempts_allowed=kind.retry.count + 1,
            epoch_floor=row.epoch,
            dependencies=tuple(self._reference(one) for one in self._needed_by(run.position)),
            required_artifacts=tuple(self.built.demanded.get(self.values.joined(run.position), ())),
            params_digest=self.built.params_digest,
            parent=row.parent,
            item=row.item,
            item_digest=row.item_digest,
            attempts_before=row.attempts,
        )

    def _needed_by(self, position: int) -> Sequence[int]:
        """The tasks whose values or artifacts a task gets, children in place of their join, each once."""
        place = self.values.joined(position)
        wanted = [one for use in self.built.inputs[place] for one in use.tasks]
        wanted += [one for use in self.built.artifacts[place] for one in use.tasks]
        row = self.values.task(position)
        if row.parent is not None:
            source = self.values.task(self.built.index[row.parent]).source
            if source is not None:
                wanted.append(self.built.index[source])
        spread = [child for one in wanted for child in (self.values.children_of(one) or (one,))]
        return list(dict.fromkeys(spread))

    def _reference(self, position: int) -> DependencyRef:
        row = self.values.task(position)
        is_child = row.parent is not None
        return DependencyRef(
            task_id=row.id,
            state=row.state,
            has_value=row.result_digest is not None,
            parent=row.parent,
            module=row.module if is_child else None,
            key=row.key if is_child else None,
            item=row.item,
        )

    # ------------------------------------------------------------------ what the master asks and tells (MasterHost)

    async def outcome_record_of(self, task_id: str) -> OutcomeRecord | None:
        """Give the outcome of a task that no worker of this run has published."""
        position = self.opened.plan.index[task_id]
        outcome = await self.values.load(position)
        return await by_reference(self._record_of(self.values.task(position), outcome), self.artifacts, self.run_id)

    def _record_of(self, row: PlannedTask, outcome: Outcome[Any]) -> OutcomeRecord:
        codec = self._kinds[row.module].codec
        payload = None
        if isinstance(outcome, Succeeded) and outcome.value is not None and codec is not None:
            payload = codec.encode(outcome.value, workdir=self.workdir)
        reference = LeaseRef(task_id=row.id, epoch=row.epoch, worker_id=row.worker or self.worker_id)
        return record_of_outcome(outcome, reference, payload, self.clock.now())

    async def cached(self, sent: Sent) -> OutcomeRecord | None:
        """Give the outcome that this node's cache has for a task (DIST-37)."""
        run = sent.run
        outcome = await self.own_runner.look_up(run)
        if outcome is None:
            return None
        return await by_reference(self._record_of(run.row, outcome), self.artifacts, self.run_id)

    async def with_value(self, record: OutcomeRecord) -> OutcomeRecord:
        """Give an outcome its value back, or a failure that says why there is none."""
        return await with_value_or_failed(record, self.artifacts)

    async def make_durable(self) -> None:
        """Return once the journal has what was heard from the feed so far."""
        await self.engine.make_durable()  # type: ignore[attr-defined]

    def take_events(self, batch: EventBatch) -> None:
        """Write a worker's events into the run's log, under this log's numbers (DIST-60)."""
        shown = []
        for event in batch.events:
            data = event.data
            if event.kind == "progress" and event.task is not None:
                self._progress(event.task, data)
                if data.get("checkpoint"):
                    continue
            if event.kind in ("log", "output"):
                said = data.get("level") or data.get("stream") or ""
                line = f"{event.at} {event.attempt or 0} {said} {data.get('text', '')}\n"
                self.folder.log_line(event.task, line)
            shown.append(self.events.event(event.kind, event.at, data, event.task, event.epoch, event.attempt))
        if shown:
            self.events.emit(shown)

    def _progress(self, task_id: str, data: dict[str, Any]) -> None:
        sent = self._master.dispatch.sent.get(task_id)
        if sent is None:
            return
        row = sent.run.row
        row.done, row.total = data.get("done"), data.get("total")
        if data.get("checkpoint"):
            self.engine.checkpoint(sent.run, data["done"], data.get("total"))

    def state_is_lost(self, error: Exception) -> None:
        """The plan is another master's, or gone: send nothing more, not even that the run has ended (STATE-10)."""
        self.is_lost(error)

    def is_lost(self, error: Exception) -> None:
        """End the run: it is another master's now, or nobody can be reached (DIST-56)."""
        self._lost = error
        self.engine.break_down(error)
        self._master.dispatch.drop_all()


def as_master(request: RunRequest) -> RunRequest:
    """Return the request with its distributed options, those of the run's own options where it has none (DIST-01)."""
    if request.distributed is not None:
        return request
    return msgspec.structs.replace(request, distributed=options_from(request.options))


def is_memory(coordinator: object) -> bool:
    """Whether a coordinator lives in this process and on its loop alone."""
    from towline.coordination.memory import MemoryCoordinators

    is_url = isinstance(coordinator, str) and coordinator.startswith("memory:")
    return is_url or isinstance(coordinator, MemoryCoordinators)


def registration_of(
    session: Any, run_id: str, worker_id: str, slots: int, declared: Sequence[str], *, master: bool = False
) -> WorkerRegistration:
    """Make the registration of this process; ``session`` has ``program``, ``built`` and ``clock``."""
    from towline.modules.capabilities import platform_capabilities

    own = platform_capabilities(platform.system(), platform.machine())
    capabilities = {*own, *(name.casefold() for name in declared), *(("master",) if master else ())}
    return WorkerRegistration(
        worker_id=worker_id,
        session=f"{random.getrandbits(64):016x}",
        run_id=run_id,
        program=session.program.id,
        fingerprint=session.built.graph_digest,
        capabilities=tuple(sorted(capabilities)),
        parallelism=slots,
        host=platform.node(),
        pid=os.getpid(),
        library=getattr(towline, "__version__", ""),
        registered_at=moment(session.clock.now()),
    )
