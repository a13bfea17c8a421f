"""One node of a distributed run: the same runner as a local run, for tasks that come as leases (DIST-17)."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, cast

import msgspec

from towline.clock import moment
from towline.coordination.records import OutcomeRecord
from towline.distributed.outcomes import record_of_outcome
from towline.events.log import EventLog
from towline.execution.node_rights import NodeRights
from towline.execution.options import node_cores
from towline.execution.run_folder import RunFolder
from towline.pipeline.large_values import by_reference, is_large
from towline.pipeline.module_rules import node_pools_of, rules_of
from towline.pipeline.run_node import RunNode
from towline.pipeline.worker_plan import UnknownTaskError, WorkerPlan, own_plan
from towline.serialization.exceptions import record_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.coordination.contract import WorkerCoordinator
    from towline.coordination.records import Lease
    from towline.distributed.spool import Spool
    from towline.execution.taskrun import TaskRun
    from towline.modules.outcomes import Outcome
    from towline.pipeline.run_node import NodeFacts
    from towline.state.results import ResultFile


class WorkerNode:
    """Runs leased tasks (``distributed.worker.TaskExecutor``) and says what they do through its spool of events."""

    def __init__(self, facts: NodeFacts, *, coordinator: WorkerCoordinator, spool: Spool) -> None:
        self._facts, self._clock = facts, facts.clock
        self._loop = asyncio.get_running_loop()
        self._events = EventLog(source=facts.worker_id, session=f"{random.getrandbits(32):08x}", keep=None)
        self._events.subscribe(spool.take)
        self._node = RunNode(
            facts,
            own_plan(facts),
            events=self._events,
            folder=RunFolder(None, self._loop.call_later, lambda _: None, lambda _: None),
            # A worker reads values from the coordinator alone; it never looks into the plan's own result file.
            results=cast("ResultFile", None),
            values_travel=True,
            echo=False,
        )
        self._plan = WorkerPlan(self._node, coordinator)
        self._runner = self._node.runner_for(self)
        self._rights = NodeRights(
            rules_of(facts.built.specs), cores=node_cores(), pools=node_pools_of(facts.request.options)
        )
        self._leases: dict[str, tuple[Lease, Callable[[OutcomeRecord], None]]] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, str] = {}
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def commands(self) -> dict[str, int]:
        """Task id to how many commands it has run here."""
        return self._node.commands

    # ------------------------------------------------------------------ leases (TaskExecutor)

    def start(self, lease: Lease, ended: Callable[[OutcomeRecord], None]) -> None:
        """Fetch what the task needs, then run it."""
        self._leases[lease.task_id] = (lease, ended)
        starting = self._loop.create_task(self._prepare(lease), name=f"towline-prepare-{lease.task_id}")
        self._starting[lease.task_id] = starting
        # Told by the end of the asyncio task: one that is cancelled before its first turn never enters its body.
        starting.add_done_callback(lambda task: self._stopped_unstarted(lease) if task.cancelled() else None)

    def stop(self, lease: Lease, code: str) -> None:
        """Cancel a task, in its preparation or in its run."""
        run = self._node.runs.get(lease.task_id)
        if run is not None and run.attempt.epoch == lease.epoch:
            self._runner.stop(run, code)
        elif lease.task_id in self._starting:
            self._stops[lease.task_id] = code
            self._starting[lease.task_id].cancel()

    def accepted(self, outcome: OutcomeRecord) -> None:
        """Keep it for what depends on it here."""
        self._plan.ended_here(outcome)

    async def _prepare(self, lease: Lease) -> None:
        try:
            run = await self._make_run(lease)
            await self._rights.take(run.row.module)
        except Exception as error:  # noqa: BLE001 - whatever keeps a task from starting is its published failure (DIST-20)
            is_unknown = isinstance(error, UnknownTaskError) and error.task_id == lease.task_id
            self._end_unstarted(lease, "failed", "unregistered_module" if is_unknown else "error", error)
            return
        finally:
            self._starting.pop(lease.task_id, None)
        self._node.runs[lease.task_id] = run
        self._runner.start(run, self._loop)

    def _stopped_unstarted(self, lease: Lease) -> None:
        self._starting.pop(lease.task_id, None)
        self._end_unstarted(lease, "cancelled", self._stops.pop(lease.task_id, "stopped"), None)

    async def _make_run(self, lease: Lease) -> TaskRun:
        assignment = lease.assignment
        position = await self._plan.prepare(assignment)
        row = self._node.plan.document.tasks[position]
        row.attempts = assignment.attempts_before
        return self._node.execution(position, row, attempt=assignment.attempts_before + 1, epoch=lease.epoch)

    def _end_unstarted(self, lease: Lease, state: Any, code: str, error: Exception | None) -> None:
        record = OutcomeRecord(
            task_id=lease.task_id,
            epoch=lease.epoch,
            worker_id=lease.worker_id,
            state=state,
            reason=code,
            reason_text=None if error is None else str(error),
            error=None if error is None else record_of(error, self._facts.worker_id),
            published_at=moment(self._clock.now()),
        )
        _, ended = self._leases.pop(lease.task_id)
        ended(record)

    # ------------------------------------------------------------------ what executions report (NodeHost)

    def mark_running(self, run: TaskRun) -> None:
        """The claim has made it running already."""

    def ended(self, run: TaskRun, outcome: Outcome[Any]) -> None:
        """Hand the outcome of an execution to the worker."""
        if run.row.done is not None:
            # On the way progress is thinned out; the last count is what the plan keeps (PLAN-41).
            self.show("progress", run, {"done": run.row.done, "total": run.row.total})
        self._node.output.task_ended(run.attempt)
        self._node.output.drain()
        self._node.forget(run)
        if not run.abandoned:
            self._rights.give_back(run.row.module)
        lease, ended = self._leases.pop(run.row.id)
        record = record_of_outcome(outcome, lease.ref, run.payload, self._clock.now())
        if run.row.done is not None:
            record = msgspec.structs.replace(record, done=run.row.done, total=run.row.total)
        if is_large(run.payload):
            sending = self._loop.create_task(self._end_large(record, ended), name=f"towline-value-{run.row.id}")
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        else:
            ended(record)

    async def _end_large(self, record: OutcomeRecord, ended: Callable[[OutcomeRecord], None]) -> None:
        """Store a large value first; the lease is held meanwhile (COORD-C57)."""
        ended(await by_reference(record, self._node.artifacts, self._facts.run_id))

    def freed(self, run: TaskRun) -> None:
        """An abandoned body has ended at last."""
        self._rights.give_back(run.row.module)
        if self._node.runs.get(run.row.id) is run:
            del self._node.runs[run.row.id]

    def show(self, kind: str, run: TaskRun, data: dict[str, Any]) -> None:
        """Send an event about a task."""
        at = moment(self._clock.now())
        self._events.emit([self._events.event(kind, at, data, run.row.id, run.attempt.epoch, run.attempt.attempt)])

    def checkpoint(self, run: TaskRun, done: int, total: int | None) -> None:
        """Tell the master, which keeps it in the plan."""
        self.show("progress", run, {"done": done, "total": total, "checkpoint": True})

    def retrying(self, run: TaskRun, outcome: Outcome[Any], pause_s: float) -> None:
        """Show that an attempt failed and another one follows."""
        error = getattr(outcome, "error", None)
        data: dict[str, Any] = {"state": "backing_off", "wait_s": round(pause_s, 3)}
        if error is not None:
            data["error"] = f"{error.type_name}: {error.text}"
        self.show("attempt", run, data)

    # ------------------------------------------------------------------ begin and end

    def install(self) -> None:
        """Listen to what bodies print and log."""
        self._node.output.install()

    def close(self) -> None:
        """Stop listening, timers and threads; twice without harm."""
        self._node.output.uninstall()
        self._node.close()
        self._plan.close()
        for sending in self._sending:
            sending.cancel()
