"""Master, workers and coordinator in one process under virtual time, with faults from a seed, and an oracle.

The master's shell, its dispatch, the workers, their heartbeats and the coordinator are the real ones; bodies are
pauses, and the plan is a small random graph.
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from towline.clock import SystemClock
from towline.coordination.ledger.state import LedgerState
from towline.coordination.memory import MemoryLink, MemoryRun
from towline.coordination.records import Assignment, DependencyRef, Lease, OutcomeRecord
from towline.distributed.dispatch import Dispatch
from towline.distributed.keeper import HeldLeases, Keeper, KeeperTask
from towline.distributed.master import Master
from towline.distributed.options import DistributedOptions
from towline.distributed.slots import Slots
from towline.distributed.spool import Spool
from towline.distributed.worker import Worker, register_when_open, ride_out
from towline.errors.coordination import CoordinationError, WorkerIdTakenError
from towline.modules.outcomes import Outcome, Succeeded
from towline.testing.contract_cases.scene import opening_of, registration_of
from towline.testing.fault_plan import Fault, FaultPlan, random_plan, shrink
from towline.testing.faulty_link import FaultyCoordinator
from towline.testing.virtual_loop import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.coordination.link import Link
    from towline.coordination.records import EventBatch
    from towline.distributed.dispatch import Sent

WORKER_TIMEOUT_S = 6.0
HEARTBEAT_S = 2.0
LIMIT_S = 1_500.0
"""Virtual seconds within which any run must have ended."""

OPTIONS = DistributedOptions(
    coordinator="memory:",
    heartbeat_interval_s=HEARTBEAT_S,
    worker_timeout_s=WORKER_TIMEOUT_S,
    master_timeout_s=400.0,
    registration_timeout_s=400.0,
    finalize_timeout_s=30.0,
    result_margin_s=0.0,
)


class SimulationError(AssertionError):
    """The oracle found a fault; its text has the plan that shows it."""


class Graph:
    """A random plan: each task depends on some earlier ones, and its value follows from theirs."""

    def __init__(self, random: Random, tasks: int) -> None:
        self.tasks: dict[str, tuple[str, ...]] = {}
        for number in range(tasks):
            earlier = list(self.tasks)[-6:]
            self.tasks[f"t{number}"] = tuple(random.sample(earlier, min(len(earlier), random.randrange(3))))
        self.durations = {name: round(random.choice((0.1, 1.0, 3.0)) * random.random(), 3) for name in self.tasks}

    def value(self, name: str) -> int:
        """What a task gives when all goes well."""
        known: dict[str, int] = {}
        for one, needs in self.tasks.items():
            known[one] = 1 + sum(known[need] for need in needs) % 1_000_003
        return known[name]


class Ledgerbook:
    """What has really happened, seen from above; the oracle judges by it."""

    def __init__(self) -> None:
        self.executions: dict[tuple[str, int], str] = {}
        self.side_writes: dict[str, int] = {}
        self.starts: dict[str, int] = {}
        self.finals: dict[str, int] = {}
        self.faults: list[str] = []

    def started(self, lease: Lease, who: str) -> None:
        """A body has started under a lease; an epoch belongs to one execution alone (COORD-C48)."""
        key = (lease.task_id, lease.epoch)
        other = self.executions.setdefault(key, who)
        if other != who:
            self.faults.append(f"{lease.task_id} epoch {lease.epoch} was given to {other} and to {who}")
        self.starts[lease.task_id] = self.starts.get(lease.task_id, 0) + 1

    def wrote(self, lease: Lease) -> bool:
        """A body writes beside its outcome; the store refuses an older epoch (DIST-35). Says whether it was taken."""
        if lease.epoch < self.side_writes.get(lease.task_id, 0):
            return False
        self.side_writes[lease.task_id] = lease.epoch
        return True

    def ended(self, task_id: str, value: int, expected: int) -> None:
        """The engine was told an outcome: once per task, and the right one."""
        if task_id in self.finals:
            self.faults.append(f"{task_id} ended twice")
        if value != expected:
            self.faults.append(f"{task_id} gave {value}, not {expected}")
        self.finals[task_id] = value


class SimulatedWorker:
    """A worker process: the real worker and keeper; bodies are pauses that stop while the process sleeps."""

    def __init__(self, cluster: SimulatedCluster, name: str, session: str) -> None:
        self.cluster, self.name, self.session = cluster, name, session
        self.coordinator = FaultyCoordinator(
            cluster.make_link(), cluster.run_id, cluster.plan, Random(f"{cluster.plan.seed}-{session}")
        )
        self.awake = asyncio.Event()
        self.awake.set()
        self._bodies: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._life: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the process."""
        self._life = asyncio.get_running_loop().create_task(self._live(), name=f"{self.name}-{self.session}")

    async def _live(self) -> None:
        held = HeldLeases()
        registration = registration_of(self.cluster, self.name, self.session, parallelism=2)  # type: ignore[arg-type]
        spool = Spool(registration.ref, self.cluster.run_id)
        worker = Worker(
            self.coordinator,
            registration,
            self,
            slots=Slots(2),
            spool=spool,
            held=held,
            random=Random(f"{self.cluster.plan.seed}-{self.session}-w"),
            tell=lambda _: None,
            lost_after_s=OPTIONS.master_timeout_s,
        )
        await self._register(registration)
        keeper = KeeperTask(Keeper(registration, held, worker, interval_s=HEARTBEAT_S), self.coordinator)
        keeper.start()
        try:
            await worker.run()
            await worker.say_goodbye({})
        except CoordinationError as error:
            self.cluster.worker_left(self, error)
        finally:
            await keeper.stop()

    async def _register(self, registration: Any) -> None:
        while True:
            try:
                await register_when_open(self.coordinator, registration, limit_s=OPTIONS.registration_timeout_s)
                return
            except WorkerIdTakenError:
                await asyncio.sleep(1.0)

    def start(self, lease: Lease, ended: Callable[[OutcomeRecord], None]) -> None:
        """Run the body of a leased task."""
        body = asyncio.get_running_loop().create_task(self._body(lease, ended))
        self._bodies[lease.task_id, lease.epoch] = body

    async def _body(self, lease: Lease, ended: Callable[[OutcomeRecord], None]) -> None:
        state: Literal["succeeded", "cancelled"] = "succeeded"
        value = 0
        try:
            self.cluster.book.started(lease, self.session)
            for dependency in lease.assignment.dependencies:
                wait = partial(self.coordinator.wait_for_outcome, dependency.task_id)
                record = await ride_out(wait, limit_s=OPTIONS.master_timeout_s, then=partial(asyncio.sleep, 0))
                assert isinstance(record.value, msgspec.Raw)
                value += msgspec.json.decode(record.value, type=int)
            await asyncio.sleep(self.cluster.graph.durations[lease.task_id])
            await self.awake.wait()
            self.cluster.book.wrote(lease)
        except asyncio.CancelledError:
            state = "cancelled"
        finally:
            self._bodies.pop((lease.task_id, lease.epoch), None)
        ended(
            OutcomeRecord(
                task_id=lease.task_id,
                epoch=lease.epoch,
                worker_id=lease.worker_id,
                state=state,
                value=msgspec.Raw(b"%d" % (1 + value % 1_000_003)) if state == "succeeded" else msgspec.UNSET,
                reason=None if state == "succeeded" else "stopped",
            )
        )

    def stop(self, lease: Lease, code: str) -> None:
        """Cancel a body."""
        body = self._bodies.get((lease.task_id, lease.epoch))
        if body is not None:
            body.cancel()

    def accepted(self, outcome: OutcomeRecord) -> None:
        """Values are always asked for here."""

    async def kill(self) -> None:
        """End without a word."""
        self.coordinator.link.cut(for_ever=True)
        tasks = [task for task in (self._life, *self._bodies.values()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def is_done(self) -> bool:
        """Whether the process has ended."""
        return self._life is None or self._life.done()


class SimulatedMaster:
    """A master process over what is durable: the final values, and the last epoch of each task."""

    def __init__(self, cluster: SimulatedCluster, owner_epoch: int) -> None:
        self._cluster = cluster
        opening = opening_of(
            cluster.run_id,
            WORKER_TIMEOUT_S,
            master_id=f"m-{owner_epoch}",
            owner_epoch=owner_epoch,
            replaces=owner_epoch - 1,
            epoch_jumps=cluster.epoch_jumps,
            requeue_limit=10_000,
            master_timeout_ms=round(OPTIONS.master_timeout_s * 1000),
        )
        random = Random(f"{cluster.plan.seed}-m{owner_epoch}")
        self.coordinator = FaultyCoordinator(cluster.make_link(), cluster.run_id, cluster.plan, random)
        self.master = Master(self.coordinator, opening, OPTIONS, self)
        self.master.dispatch = Dispatch(
            self,
            self._assignment_of,
            clock=SystemClock(),
            master_id=f"m-{owner_epoch}",
            now=asyncio.get_running_loop().time,
            result_margin_s=0.0,
            keeps_always_run=False,
            wake=self.master.wake,
        )
        self._dispatched: set[str] = set()
        self.error: Exception | None = None
        self.is_dead = False

    async def lead(self) -> None:
        """Open the run and dispatch what is ready; what follows comes by the feed."""
        await self.master.open()
        self.master.start()
        self._dispatch_ready()

    async def with_value(self, record: OutcomeRecord) -> OutcomeRecord:
        """Values of the simulation are small: each rides in its record."""
        return record

    def _dispatch_ready(self) -> None:
        for name, needs in self._cluster.graph.tasks.items():
            is_ready = all(need in self._cluster.finals for need in needs)
            if is_ready and name not in self._cluster.finals and name not in self._dispatched:
                self._dispatched.add(name)
                self.master.dispatch.start(self._run_of(name), asyncio.get_running_loop())
        if len(self._cluster.finals) == len(self._cluster.graph.tasks):
            self._cluster.all_final.set()

    def _run_of(self, name: str) -> Any:
        row = SimpleNamespace(id=name, attempts=0, epoch=self._cluster.epochs.get(name, 0))
        codec = SimpleNamespace(decode=lambda data, **_: msgspec.json.decode(data))
        spec = SimpleNamespace(settings=SimpleNamespace(cache=None))
        kind = SimpleNamespace(codec=codec, retry=SimpleNamespace(max_s=0.0, count=0), spec=spec)
        attempt = SimpleNamespace(worker_id="", epoch=0, workdir=None)
        return SimpleNamespace(
            row=row, kind=kind, attempt=attempt, first_attempt=0, tries=0, payload=None, artifacts=(), error=None
        )

    def _assignment_of(self, run: Any) -> Assignment:
        needs = self._cluster.graph.tasks[run.row.id]
        references = tuple(DependencyRef(task_id=need, state="succeeded", has_value=True) for need in needs)
        return Assignment(task_id=run.row.id, module="m", dependencies=references, epoch_floor=run.row.epoch)

    def moved(self, run: Any, state: str) -> None:
        """The journal: the epoch of a claim is durable once it is heard of."""
        epochs = self._cluster.epochs
        epochs[run.row.id] = max(epochs.get(run.row.id, 0), run.attempt.epoch)

    def ended(self, run: Any, outcome: Outcome[Any]) -> None:
        """The journal: a final outcome is durable, and its dependents are ready."""
        name = run.row.id
        value = outcome.value if isinstance(outcome, Succeeded) else -1
        self._cluster.book.ended(name, value, self._cluster.graph.value(name))
        self._cluster.finals[name] = value
        self._dispatch_ready()

    async def outcome_record_of(self, task_id: str) -> OutcomeRecord | None:
        """Give a value that only the plan has."""
        value = self._cluster.finals.get(task_id)
        if value is None:
            return None
        epoch = self._cluster.epochs.get(task_id, 0)
        return OutcomeRecord(
            task_id=task_id, epoch=epoch, worker_id="plan", state="succeeded", value=msgspec.Raw(b"%d" % value)
        )

    async def cached(self, sent: Sent) -> OutcomeRecord | None:
        """Nothing is cached here."""
        return None

    async def make_durable(self) -> None:
        """What is heard is durable at once."""

    def take_events(self, batch: EventBatch) -> None:
        """Bodies here say nothing."""

    def warn(self, text: str) -> None:
        """Nobody reads it."""

    def is_lost(self, error: Exception) -> None:
        """The run cannot go on."""
        self.error = error
        self._cluster.all_final.set()

    async def kill(self) -> None:
        """End without a word."""
        self._cluster.epoch_jumps = self.master.opening.epoch_jumps + 1
        self.is_dead = True
        self.coordinator.link.cut(for_ever=True)
        await self.master.stop()


class SimulatedCluster:
    """One run of a random graph over ``workers`` processes, with the faults of a plan.

    ``make_link``: where the coordinator's operations are executed; the ledger in memory unless given.
    """

    run_id = "sim"
    worker_timeout_s = WORKER_TIMEOUT_S

    def __init__(
        self, plan: FaultPlan, *, workers: int = 3, tasks: int = 40, make_link: Callable[[], Link] | None = None
    ) -> None:
        self.plan = plan
        self.graph = Graph(Random(f"{plan.seed}-graph"), tasks)
        self.book = Ledgerbook()
        self.finals: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.epoch_jumps = 0
        self.run = _JumpingRun()
        self.make_link = make_link or (lambda: MemoryLink(self.run))
        self.all_final = asyncio.Event()
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
                await self.all_final.wait()
                faults.cancel()
                await asyncio.wait([faults])
                self._wake_all()
                if self._master.is_dead:
                    await self._start_master()
                if self._master.error is None:
                    await self._master.master.finish()
                await self._wait_for_workers()
        except TimeoutError:
            missing = [name for name in self.graph.tasks if name not in self.finals]
            self.book.faults.append(f"the run hangs; not final: {missing or 'nothing'}")
        finally:
            faults.cancel()
            for worker in self._workers:
                await worker.kill()
            await self._master.master.stop()
        self._judge()

    async def _wait_for_workers(self) -> None:
        while not all(worker.is_done for worker in self._workers):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1.0)

    def _wake_all(self) -> None:
        for worker in self._workers:
            worker.awake.set()
            worker.coordinator.link.mend()
        self._master.coordinator.link.mend()

    async def _start_master(self) -> None:
        self._master = SimulatedMaster(self, next(self._owner_epochs))
        await self._master.lead()

    def _start_worker(self, number: int) -> SimulatedWorker:
        worker = SimulatedWorker(self, f"w{number}", f"s{next(self._sessions)}")
        worker.begin()
        return worker

    def worker_left(self, worker: SimulatedWorker, error: CoordinationError) -> None:
        """A worker gave up: its process is started again by whoever watches it, unless the run is over."""
        if not self.all_final.is_set() and worker in self._workers:
            number = self._workers.index(worker)
            self._workers[number] = self._start_worker(number)

    # ------------------------------------------------------------------ faults

    async def _cause_faults(self) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        mending: list[asyncio.Task[None]] = []
        try:
            for fault in self.plan.faults:
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
                self.run.state = LedgerState()
            case "jump":
                self.run.jump_ms += round(fault.for_s * 1000)
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

    # ------------------------------------------------------------------ oracle

    def _judge(self) -> None:
        faults = list(self.book.faults)
        if self._master.error is not None:
            faults.append(f"the master gave up: {self._master.error!r}")
        for name in self.graph.tasks:
            if name not in self.book.finals and not faults:
                faults.append(f"{name} is not final")
        state = self.run.state
        if any(bucket.queue for bucket in state.buckets):
            faults.append("tasks are left in the queue")
        if faults:
            raise SimulationError(f"{'; '.join(faults[:5])}\nplan: {self.plan}")


class _JumpingRun(MemoryRun):
    """A ledger whose clock jumps forward."""

    jump_ms = 0

    def now_ms(self) -> int:
        """Return the back end's time, jumps included."""
        return super().now_ms() + self.jump_ms


def simulate(plan: FaultPlan, *, workers: int = 3, tasks: int = 40) -> None:
    """Run one plan under virtual time.

    Raises:
        SimulationError: The oracle found a fault.
    """

    async def scenario() -> None:
        await SimulatedCluster(plan, workers=workers, tasks=tasks).run_to_end()

    run_virtual(scenario())


def plan_of_seed(seed: int, *, workers: int = 3) -> FaultPlan:
    """Return the plan of a seed."""
    return random_plan(seed, Random(seed), workers=workers, length_s=40.0)


def smallest_failing(plan: FaultPlan) -> FaultPlan:
    """Shrink a failing plan to what it needs to fail; keep that one as a named test."""

    def fails(smaller: FaultPlan) -> bool:
        try:
            simulate(smaller)
        except SimulationError:
            return True
        return False

    return shrink(plan, fails)
