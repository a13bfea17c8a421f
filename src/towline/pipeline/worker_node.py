"""One node of a distributed run: the same runner as a local run, for tasks that come as leases (DIST-17)."""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from towline.clock import moment
from towline.coordination.records import OutcomeRecord
from towline.distributed.outcomes import outcome_of_record, payload_of, record_of_outcome
from towline.distributed.worker import ride_out
from towline.errors.root import TowlineError
from towline.events.log import EventLog
from towline.execution.abandoned import AbandonedBodies
from towline.execution.attempts import Attempts
from towline.execution.deadlines import Deadlines
from towline.execution.doors import NodeDoors
from towline.execution.growth import Growth
from towline.execution.node_rights import NodeRights
from towline.execution.options import node_cores
from towline.execution.output import Output
from towline.execution.run_folder import RunFolder
from towline.execution.runner import Runner
from towline.execution.stopping import Stopper
from towline.execution.surroundings import Surroundings
from towline.execution.taskrun import TaskRun
from towline.execution.threads import ThreadPool
from towline.execution.values import Values
from towline.masking.masker import Masker
from towline.modules.doors import Attempt
from towline.pipeline.caching import open_cache
from towline.pipeline.large_values import by_reference, is_large, with_value
from towline.pipeline.offloading import OffloadOpener
from towline.pipeline.program import kinds_of, node_pools_of, rules_of, secrets_of
from towline.pipeline.stores import artifact_store
from towline.planning.live import LivePlan
from towline.planning.records import FINAL_STATES, PlanDocument, PlannedTask
from towline.serialization.exceptions import record_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.clock import Clock
    from towline.coordination.contract import WorkerCoordinator
    from towline.coordination.records import DependencyRef, Lease
    from towline.distributed.spool import Spool
    from towline.execution.run_request import RunRequest
    from towline.modules.outcomes import Outcome
    from towline.modules.target import TargetRef
    from towline.pipeline.program import Program
    from towline.planning.built import BuiltPlan
    from towline.state.results import ResultFile
    from towline.state.store import StateStore

OWN_OUTCOMES = 256
"""Outcomes of this node that are kept, the latest; older ones are fetched like those of other nodes."""


class WorkerNode:
    """Runs leased tasks (``distributed.worker.TaskExecutor``) and says what they do through its spool of events.

    Its plan is the program's own, built here; ``plan_id`` is the master's, under which cursors and steps go on.
    """

    def __init__(
        self,
        program: Program,
        target: TargetRef | None,
        request: RunRequest,
        built: BuiltPlan,
        *,
        params: Any,
        coordinator: WorkerCoordinator,
        store: StateStore,
        plan_id: str,
        run_id: str,
        worker_id: str,
        spool: Spool,
        clock: Clock,
    ) -> None:
        self._program, self._target, self._request, self._built = program, target, request, built
        self._params, self._coordinator, self._clock = params, coordinator, clock
        self._run_id, self._worker_id = run_id, worker_id
        self._loop = asyncio.get_running_loop()
        self.workdir = request.workdir or Path.cwd()
        document = cast("dict[str, Any]", built.document_fields(plan_id=plan_id, run_id=run_id, now="", owner=None))
        self._plan = LivePlan(PlanDocument(**document, tasks=list(built.tasks)))
        self._kinds = kinds_of(built, request.options, must_travel=True, isolate_all=request.isolate_all)
        self._rights = NodeRights(rules_of(built.specs), cores=node_cores(), pools=node_pools_of(request.options))
        self._runs: dict[str, TaskRun] = {}
        self._leases: dict[str, tuple[Lease, Callable[[OutcomeRecord], None]]] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, str] = {}
        self._fetched: dict[str, asyncio.Future[OutcomeRecord]] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._own: dict[str, OutcomeRecord] = {}
        self.commands: dict[str, int] = {}
        self.masker = Masker()
        for secret in secrets_of(params):
            self.masker.register(secret.reveal())
        self.events = EventLog(source=worker_id, session=f"{random.getrandbits(32):08x}", keep=None)
        self.events.subscribe(spool.take)
        folder = RunFolder(None, self._loop.call_later, lambda _: None, lambda _: None)
        self.output = Output(
            events=self.events,
            folder=folder,
            mask=self.masker.mask,
            clock=clock,
            loop=self._loop,
            run_id=run_id,
            echo=False,
        )
        codecs = {name: kind.codec for name, kind in self._kinds.items()}
        # A worker reads values from the coordinator alone; it never looks into the plan's own result file.
        no_results = cast("ResultFile", None)
        self.values = Values(built, self._plan.document.tasks, codecs, no_results, copies=True, workdir=self.workdir)
        self._growth = Growth(built, self._plan, self.values, max_tasks=request.options.max_tasks, workdir=self.workdir)
        self._deadlines = Deadlines(self._loop)
        self._threads = ThreadPool()
        self._runner = self._make_runner(store, plan_id)

    def _make_runner(self, store: StateStore, plan_id: str) -> Runner:
        options = self._request.options
        doors = NodeDoors(
            runs=self._runs,
            output=self.output,
            masker=self.masker,
            store=store,
            scope=self._program.id,
            show=self.show,
            checkpoint=self._checkpoint,
            clock=self._clock,
            loop=self._loop,
            plan_id=plan_id,
            open_offload=OffloadOpener(options, os.environ, self.show),
        )
        stopper = Stopper(self._deadlines, options.cancel_grace_s, lambda run: runner.abandon(run))
        artifacts = self.artifacts = artifact_store(self._program, self._request, store)
        surroundings = Surroundings(
            doors=doors,
            built=self._built,
            values=self.values,
            growth=self._growth,
            artifacts=artifacts,
            cache=open_cache(
                self._built,
                options,
                self._target,
                workdir=self.workdir,
                artifacts=artifacts,
                outcomes=self.values,
                log=self.output.log,
                clock=self._clock,
                run_id=self._run_id,
            ),
            output=self.output,
            masker=self.masker,
            threads=self._threads,
            options=options,
            values_must_travel=True,
            show=self.show,
        )
        abandoned = AbandonedBodies(options.max_abandoned)
        attempts = Attempts(
            doors=doors,
            stopper=stopper,
            threads=self._threads,
            processes=self._processes(doors, store, plan_id),  # type: ignore[arg-type]
            abandoned=abandoned,
            clock=self._clock,
            random=random.Random(),
            worker_id=self._worker_id,
            on_retry=self._retrying,
        )
        runner = Runner(
            host=self,
            attempts=attempts,
            stopper=stopper,
            abandoned=abandoned,
            surroundings=surroundings,
            hook_timeout_s=options.hook_timeout_s,
            worker_id=self._worker_id,
        )
        return runner

    def _processes(self, doors: NodeDoors, store: StateStore, plan_id: str) -> object:
        if self._target is None:
            return None
        from towline.execution.isolation import ProcessBodies

        return ProcessBodies(
            target=self._target,
            specs=self._built.specs,
            doors=doors,
            log=self.output,
            mask=self.masker.mask,
            state=store,
            plan_id=plan_id,
            cursor_moved=doors.cursor_moved,
            sources=self.values.sources,
            cancel_grace_s=self._request.options.cancel_grace_s,
            terminate_grace_s=self._request.options.terminate_grace_s,
        )

    # ------------------------------------------------------------------ leases (TaskExecutor)

    def start(self, lease: Lease, ended: Callable[[OutcomeRecord], None]) -> None:
        """Fetch what the task needs, then run it."""
        self._leases[lease.task_id] = (lease, ended)
        starting = self._loop.create_task(self._prepare(lease), name=f"towline-prepare-{lease.task_id}")
        self._starting[lease.task_id] = starting

    def stop(self, lease: Lease, code: str) -> None:
        """Cancel a task, in its preparation or in its run."""
        run = self._runs.get(lease.task_id)
        if run is not None and run.attempt.epoch == lease.epoch:
            self._runner.stop(run, code)
        elif lease.task_id in self._starting:
            self._stops[lease.task_id] = code
            self._starting[lease.task_id].cancel()

    def accepted(self, outcome: OutcomeRecord) -> None:
        """Keep the latest outcomes from here for what depends on them."""
        self._own[outcome.task_id] = outcome
        if len(self._own) > OWN_OUTCOMES:
            del self._own[next(iter(self._own))]

    async def _prepare(self, lease: Lease) -> None:
        try:
            run = await self._make_run(lease)
            await self._rights.take(run.row.module)
        except asyncio.CancelledError:
            self._end_unstarted(lease, "cancelled", self._stops.pop(lease.task_id, "stopped"), None)
            return
        except Exception as error:  # noqa: BLE001 - whatever keeps a task from starting is its published failure (DIST-20)
            code = error.args[0] if isinstance(error, _UnknownTaskError) else "error"
            self._end_unstarted(lease, "failed", "unregistered_module" if code == lease.task_id else "error", error)
            return
        finally:
            self._starting.pop(lease.task_id, None)
        self._runs[lease.task_id] = run
        self._runner.start(run, self._loop)

    def _end_unstarted(self, lease: Lease, state: Any, code: str, error: Exception | None) -> None:
        record = OutcomeRecord(
            task_id=lease.task_id,
            epoch=lease.epoch,
            worker_id=lease.worker_id,
            state=state,
            reason=code,
            reason_text=None if error is None else str(error),
            error=None if error is None else record_of(error, self._worker_id),
            published_at=moment(self._clock.now()),
        )
        _, ended = self._leases.pop(lease.task_id)
        ended(record)

    async def _make_run(self, lease: Lease) -> TaskRun:
        assignment = lease.assignment
        for dependency in assignment.dependencies:
            await self._bring(dependency)
        position = self._place_of(
            lease.task_id, assignment.module, assignment.key, assignment.parent, assignment.item, assignment.item_digest
        )
        row = self._plan.document.tasks[position]
        attempt = Attempt(
            task_id=row.id,
            module=row.module,
            key=row.key,
            run_id=self._run_id,
            attempt=assignment.attempts_before + 1,
            epoch=lease.epoch,
            worker_id=self._worker_id,
            workdir=self.workdir,
            params=self._params,
        )
        matrix = self._built.matrix.get(position)
        if matrix is not None:
            attempt.matrix = matrix
        row.attempts = assignment.attempts_before
        inputs = None if row.parent is not None else self.values.inputs(position)
        return TaskRun(position, row, self._kinds[row.module], attempt, inputs)

    async def _bring(self, dependency: DependencyRef) -> None:
        """Fetch a dependency's outcome, once per run; a fetch that failed is tried again by the next task (DIST-17)."""
        task_id = dependency.task_id
        position = self._place_of(
            task_id, dependency.module or "", dependency.key, dependency.parent, dependency.item, None
        )
        if position in self.values.outcomes:
            return
        if dependency.state not in FINAL_STATES:
            # A gate that blocks has run and is pending again: its outcome does not count (PLAN-51, PLAN-52).
            self._plan.document.tasks[position].reason = "blocked"
            return
        fetching = self._fetched.get(task_id)
        if fetching is None:
            fetching = asyncio.ensure_future(self._fetch(task_id))
            self._fetched[task_id] = fetching
        try:
            record = await asyncio.shield(fetching)
        except Exception:
            self._fetched.pop(task_id, None)
            raise
        codec = self._kinds[self._plan.document.tasks[position].module].codec
        outcome = outcome_of_record(
            record, lambda data: None if codec is None else codec.decode(data, workdir=self.workdir)
        )
        self.values.keep(position, outcome, payload_of(record))

    async def _fetch(self, task_id: str) -> OutcomeRecord:
        """Return an outcome; a server that lost it gets it again from the master, which opens the run anew."""

        async def nothing() -> None:
            return None

        record = self._own.get(task_id)
        if record is None:
            wait = partial(self._coordinator.wait_for_outcome, task_id)
            record = await ride_out(wait, limit_s=self._request.distributed.master_timeout_s, then=nothing)
        return await with_value(record, self.artifacts)

    def _place_of(
        self, task_id: str, module: str, key: str | None, parent: str | None, item: int | None, item_digest: str | None
    ) -> int:
        """Return the place of a task; a child of an ``each`` module gets its row here."""
        position = self._plan.index.get(task_id)
        tasks = self._plan.document.tasks
        if position is None:
            if parent is None or parent not in self._plan.index:
                raise _UnknownTaskError(task_id)
            position = self._plan.index[task_id] = len(tasks)
            tasks.append(PlannedTask(id=task_id, module=module, key=key, parent=parent, item=item))
            join = self._plan.index[parent]
            siblings = sorted((*self.values.children_of(join), position), key=lambda one: tasks[one].item or 0)
            self.values.grown(join, siblings)
        if item_digest is not None:
            tasks[position].item_digest = item_digest
        return position

    # ------------------------------------------------------------------ what executions report (runner.Host)

    def mark_running(self, run: TaskRun) -> None:
        """The claim has made it running already."""

    def ended(self, run: TaskRun, outcome: Outcome[Any]) -> None:
        """Hand the outcome of an execution to the worker."""
        if run.row.done is not None:
            # On the way progress is thinned out; the last count is what the plan keeps (PLAN-41).
            self.show("progress", run, {"done": run.row.done, "total": run.row.total})
        self.output.task_ended(run.attempt)
        self.output.drain()
        if not run.abandoned:
            self._runs.pop(run.row.id, None)
            self._rights.give_back(run.row.module)
        if run.commands:
            self.commands[run.row.id] = self.commands.get(run.row.id, 0) + run.commands
        lease, ended = self._leases.pop(run.row.id)
        record = record_of_outcome(outcome, lease.ref, run.payload, self._clock.now())
        if is_large(run.payload):
            sending = self._loop.create_task(self._end_large(record, ended), name=f"towline-value-{run.row.id}")
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        else:
            ended(record)

    async def _end_large(self, record: OutcomeRecord, ended: Callable[[OutcomeRecord], None]) -> None:
        """Store a large value first; the lease is held meanwhile (COORD-C57)."""
        ended(await by_reference(record, self.artifacts, self._run_id))

    def freed(self, run: TaskRun) -> None:
        """An abandoned body has ended at last."""
        self._rights.give_back(run.row.module)
        if self._runs.get(run.row.id) is run:
            del self._runs[run.row.id]

    def show(self, kind: str, run: TaskRun, data: dict[str, Any]) -> None:
        """Send an event about a task."""
        at = moment(self._clock.now())
        self.events.emit([self.events.event(kind, at, data, run.row.id, run.attempt.epoch, run.attempt.attempt)])

    def _retrying(self, run: TaskRun, outcome: Outcome[Any], pause_s: float) -> None:
        error = getattr(outcome, "error", None)
        data: dict[str, Any] = {"state": "backing_off", "wait_s": round(pause_s, 3)}
        if error is not None:
            data["error"] = f"{error.type_name}: {error.text}"
        self.show("attempt", run, data)

    def _checkpoint(self, run: TaskRun, done: int, total: int | None) -> None:
        self.show("progress", run, {"done": done, "total": total, "checkpoint": True})

    # ------------------------------------------------------------------ begin and end

    def install(self) -> None:
        """Listen to what bodies print and log."""
        self.output.install()

    def close(self) -> None:
        """Stop listening, timers and threads; twice without harm."""
        self.output.uninstall()
        self._deadlines.close()
        self._threads.close()
        for fetching in self._fetched.values():
            fetching.cancel()
        for sending in self._sending:
            sending.cancel()


class _UnknownTaskError(TowlineError):
    """The run has a task that this program does not have: another version of it runs elsewhere."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id

    def __str__(self) -> str:
        return f"{self.task_id!r} is no task of this program. Deploy one version of it to all nodes."
