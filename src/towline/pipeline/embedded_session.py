"""``--workers N``: a master whose workers are processes that it starts on this machine (DIST-10 to 13)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec

from towline.access.tokens import new_token
from towline.coordination.hub import Hub, LoopbackListener
from towline.coordination.signals import Signal
from towline.distributed.child_start import SECRETS_VARIABLE, TOKEN_VARIABLE, ChildStart
from towline.distributed.embedded import EmbeddedWorkers
from towline.errors.configuration import ConfigurationError
from towline.errors.coordination import CoordinationError, CoordinatorClosedError, WorkerLostError
from towline.errors.declaration import TargetLoadError
from towline.execution.options import default_parallelism, node_cores
from towline.modules.capabilities import MASTER_CAPABILITY
from towline.pipeline.assignments import Assignments
from towline.pipeline.master_pool import own_slots
from towline.pipeline.master_session import MasterSession
from towline.pipeline.run_params import own_secrets
from towline.pipeline.stores import state_url

if TYPE_CHECKING:
    from towline.coordination.memory import MemoryCoordinators
    from towline.coordination.records import Assignment, Lease
    from towline.execution.options import Options
    from towline.execution.remote_engine import RemoteEngine
    from towline.execution.run_request import RunRequest
    from towline.execution.taskrun import TaskRun
    from towline.modules.target import TargetRef
    from towline.pipeline.opening import OpenedPlan
    from towline.pipeline.program import Program
    from towline.pipeline.run_node import NodeFacts

EMBEDDED_CAPABILITY = "embedded-worker"
"""What the worker processes have and the master's own slots have not, until they take over: only a task that names
``master`` does without it. So the claims themselves keep the master's process free (DIST-11)."""

GATHER_S = 2.0
"""How long the first task waits for workers that are still starting."""

_LIMITS = (
    "heartbeat_interval_s",
    "worker_timeout_s",
    "master_timeout_s",
    "registration_timeout_s",
    "drain_timeout_s",
    "max_parallelism",
)


def refuse_unstartable(program: Program, target: TargetRef | None, request: RunRequest) -> None:
    """Refuse what no process beside this one could take part in; nothing has been touched yet.

    Raises:
        TargetLoadError: The program is in no file or package (MOD-27).
        ConfigurationError: The state is of this process alone.
    """
    if target is None:
        cause = "it is no global of a file or package, so a worker process cannot load it"
        raise TargetLoadError(program.name, cause, "Put it into a file, or leave out --workers.")
    if request.options.state_store is None and state_url(program, request).startswith("memory:"):
        what = "a dry run keeps its state" if request.options.dry_commands else "memory: is state"
        advice = (
            f"{what} in one process, where workers do not reach it: leave out --workers, or give a folder as --state"
        )
        raise ConfigurationError("workers", request.distributed.workers, "given", advice)


class EmbeddedAssignments(Assignments):
    """Sends what does not ask for the master to the worker processes."""

    def assignment_of(self, run: TaskRun) -> Assignment:
        """Describe a task to whoever will claim it."""
        assignment = super().assignment_of(run)
        if any(MASTER_CAPABILITY in clause for clause in assignment.requires):
            return assignment
        return msgspec.structs.replace(assignment, requires=(*assignment.requires, (EMBEDDED_CAPABILITY,)))


class EmbeddedSession(MasterSession):
    """Hosts the ledger, lets the processes in by the loopback interface, and looks after them."""

    def __init__(self, facts: NodeFacts, opened: OpenedPlan) -> None:
        super().__init__(facts, opened)
        run = cast("MemoryCoordinators", self._factory).run(facts.run_id)
        token = new_token()
        hub = Hub(run, facts.run_id, token=token, record_claim=self._record_claim)
        self._listener = LoopbackListener(hub)
        self._port = 0
        self._is_ending = False
        self._died_over: dict[str, str] = {}
        """Tasks that a worker had when it died, by id, with the last such worker."""
        self._is_open = asyncio.Event()
        """Set once the run can be joined; a process may have died before."""
        secrets = {TOKEN_VARIABLE: token, SECRETS_VARIABLE: msgspec.json.encode(own_secrets(facts.params)).decode()}
        self._workers = EmbeddedWorkers(self.distributed.workers, self._start_of, secrets, self)

    async def _drive(self) -> str:
        self._port = await self._listener.start()
        self._workers.start()
        try:
            return await super()._drive()
        finally:
            await self._workers.stop()
            await self._listener.stop()

    def _assignments(self) -> Assignments:
        return EmbeddedAssignments(self.built, self.node.values, self.scheduler)

    async def _start_pools(self) -> None:
        """Work here on nothing but what asks for the master (DIST-11)."""
        self._master.dispatch.internal = frozenset({EMBEDDED_CAPABILITY})
        wanted = [spec.settings.requires or () for spec in self.built.specs.values()]
        if any(MASTER_CAPABILITY in clause for clauses in wanted for clause in clauses):
            await self._add_pool(self._pool_id(), max(1, own_slots(self.request)))
        self._is_open.set()
        await self._gather()

    async def _gather(self) -> None:
        """Let all workers come before the first task is given out: who is first would take what its slots hold.

        Bodies that compute would then share one process, and the others stand idle. A worker that is late comes late.
        """
        coming = asyncio.ensure_future(self._see_all_registered())
        dying = asyncio.ensure_future(self._workers.has_lost_one.wait())
        try:
            await asyncio.wait([coming, dying], timeout=GATHER_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            coming.cancel()
            dying.cancel()
            await asyncio.gather(coming, dying, return_exceptions=True)

    async def _see_all_registered(self) -> None:
        missing, after = set(self._workers.names), 0
        while missing:
            for entry in await self._master.coordinator.feed(after=after, limit=100, wait_s=GATHER_S):
                after = entry.seq
                missing.discard(entry.worker_id or "")

    async def _end(self) -> None:
        self._is_ending = True
        self._workers.begin_end()
        await super()._end()

    async def _record_claim(self, lease: Lease) -> bool:
        """Have a claim in the plan's journal before its worker hears of it; says whether it is there (COORD-H27).

        A master that comes after a crash then never gives the same epoch again, nor an at-most-once task a second time.
        """
        engine = cast("RemoteEngine", self.engine)
        sent = self._master.dispatch.sent.get(lease.task_id)
        if sent is not None:
            self._master.dispatch.claimed(sent, lease.worker_id, lease.epoch)
            await engine.make_durable()
        return not engine.has_broken_down

    # ------------------------------------------------------------------ the processes

    def _start_of(self, worker_id: str) -> ChildStart:
        facts, request = self.facts, self.request
        assert facts.target is not None, "refuse_unstartable has seen to that"
        return ChildStart(
            target=facts.target,
            port=self._port,
            run_id=facts.run_id,
            worker_id=worker_id,
            workdir=str(self.node.workdir),
            options={
                **_differences(request.options, facts.program.options),
                "parallelism": _slots_of_each(request.options, self.distributed.workers),
            },
            distributed={name: getattr(self.distributed, name) for name in _LIMITS},
            capabilities=(*request.capabilities, EMBEDDED_CAPABILITY),
        )

    async def worker_died(self, worker_id: str) -> bool:
        """Give what it held to others at once; says whether it held anything (DIST-12)."""
        await self._is_open.wait()
        dispatch = self._master.dispatch
        held = [sent.run.row.id for sent in dispatch.sent.values() if sent.holder and sent.holder[0] == worker_id]
        dispatch.coming.add(worker_id)
        self._died_over.update((task_id, worker_id) for task_id in held)
        try:
            await self._master.coordinator.expel(worker_id)
        except CoordinatorClosedError:
            pass  # the run has ended: nobody is waited for any more
        except CoordinationError as error:
            self.warn(f"what {worker_id} held is waited for: {error}")
        return bool(held)

    def is_not_started_again(self, worker_id: str) -> None:
        """Wait no more for it."""
        self._master.dispatch.coming.discard(worker_id)

    def worker_said(self, worker_id: str, line: str) -> None:
        """Show what a process wrote beside its tasks."""
        self.node.output.log(None, "info", f"{worker_id}: {line}")

    def is_over(self) -> bool:
        """Whether no worker is to take anything any more."""
        is_stopped = self._is_open.is_set() and self._master.dispatch.to_signal is Signal.STOPPED
        return self._is_ending or is_stopped

    async def nobody_left(self) -> None:
        """Take over with the slots of this process."""
        await self._is_open.wait()
        if self._lost or self._is_ending:
            return
        self.warn("no worker process is left: the rest of the run is done in the master's process")
        await self._fail_what_was_died_over()
        await self._add_pool(f"{self._pool_id()}-all", max(1, own_slots(self.request)), EMBEDDED_CAPABILITY)

    async def _fail_what_was_died_over(self) -> None:
        """End the tasks that took a worker with them: they could take the master too."""
        dispatch = self._master.dispatch
        removed = await self._master.coordinator.withdraw(sorted(self._died_over))
        for task_id in removed:
            sent = dispatch.sent.get(task_id)
            if sent is not None:
                dispatch.fail(sent, WorkerLostError(task_id, (self._died_over[task_id],)), "requeue_limit")


def _differences(options: Options, own: Options) -> dict[str, Any]:
    """Return what flags, variables and files have changed of the program's own options; text can carry all of that."""
    changed = {name: getattr(options, name) for name in options.__struct_fields__}
    return {
        name: value
        for name, value in changed.items()
        if value != getattr(own, name) and isinstance(value, str | int | float | bool | None)
    }


def _slots_of_each(options: Options, workers: int) -> int:
    """Share the machine's slots, unless told how many each has (DIST-11)."""
    return options.parallelism or max(1, default_parallelism(node_cores()) // workers)
