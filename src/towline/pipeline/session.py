"""The composition of one run: the node, the engine that drives its plan, and what is told of it."""

from __future__ import annotations

import asyncio
import random
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from towline.clock import moment
from towline.errors.state import OwnershipLostError, StateLostError
from towline.events.log import EventLog
from towline.execution.doors import NodeDoors
from towline.execution.ended import EndedTasks
from towline.execution.engine import Engine
from towline.execution.observers import Observers
from towline.execution.plan_writer import PlanWriter
from towline.execution.run_folder import RunFolder
from towline.execution.scheduler import Scheduler
from towline.execution.shown import parts_of
from towline.execution.started import wait_for_trees, warden
from towline.pipeline.early_end import EarlyEnd, wants_signals
from towline.pipeline.module_rules import limits_of, rules_of
from towline.pipeline.run_node import RunNode
from towline.pipeline.signals import refuse_other_thread
from towline.planning.plan import shown_plan
from towline.planning.records import RunRecord
from towline.state.store import RETRY_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from towline.execution.limits import RunLimits
    from towline.execution.observers import Observer
    from towline.execution.offload_counts import OffloadCounts
    from towline.execution.report import RunReport
    from towline.execution.run_request import RunRequest
    from towline.execution.taskrun import TaskRun
    from towline.modules.outcomes import Outcome
    from towline.pipeline.opening import OpenedPlan
    from towline.pipeline.run_node import NodeFacts
    from towline.planning.records import PlannedTask


class Session:
    """One run of a plan. Built once the plan is durable; ``run`` drives it to its end.

    ``was_cancelled``: whoever awaits the run was cancelled, and gets the ``CancelledError`` when all is closed.
    """

    engine_class: ClassVar[type[Engine]] = Engine
    doors_class: ClassVar[type[NodeDoors]] = NodeDoors

    @classmethod
    def refuse_early(cls, request: RunRequest) -> None:
        """Refuse what cannot work, while the earlier plan still stands.

        Raises:
            ConfigurationError: Signals cannot be handled here (RUN-44).
        """
        if wants_signals(request):
            refuse_other_thread()

    def __init__(self, facts: NodeFacts, opened: OpenedPlan) -> None:
        self.facts, self.opened = facts, opened
        self.request, self.built, self.clock = facts.request, facts.built, facts.clock
        options, loop = facts.request.options, asyncio.get_running_loop()
        self._loop = loop
        self._beside: set[asyncio.Future[None]] = set()
        self.warnings: list[str] = list(opened.warnings)
        self.was_cancelled = False
        self.folder = RunFolder(opened.append_for(facts.run_id), loop.call_later, self._log_trouble, self._spawn)
        self.events = EventLog(
            source=opened.owner_id,
            session=f"{random.getrandbits(32):08x}",
            keep=self.folder.events,
            broken=self._listener_broke,
        )
        self.offload_counts: dict[str, OffloadCounts] = {}
        if "towline.offload" in sys.modules:  # a program that declares kernels has loaded it
            from towline.execution.offload_counts import OffloadTally

            self.events.subscribe(OffloadTally(self.offload_counts))
        for watcher in facts.request.watchers:
            self.events.subscribe(watcher)
        self.node = RunNode(
            facts,
            opened.plan,
            events=self.events,
            folder=self.folder,
            results=opened.plan_file.results,
            values_travel=options.strict_values,
            echo=not facts.request.watchers,
        )
        self.writer = PlanWriter(opened.plan, opened.plan_file)
        self.ended_tasks = EndedTasks(self.node.values, opened.plan_file.results, self.node.masker.mask)
        self.scheduler = Scheduler(
            opened.plan.document.tasks,
            rules_of(facts.built.specs),
            self._limits(),
            opened.earlier.estimates,
            selection=opened.selection,
        )
        self.engine = self.engine_class(
            writer=self.writer,
            scheduler=self.scheduler,
            events=self.events,
            output=self.node.output,
            ended_tasks=self.ended_tasks,
            growth=self.node.growth,
            make_run=self._make_run,
            decided=opened.decided,
            forget=self.node.forget,
            clock=facts.clock,
            worker_id=facts.worker_id,
            interrupt_stops_all=not options.always_run_on_interrupt,
        )
        self.engine.runner = self.node.runner_for(self.engine, self.doors_class)
        self.early_end = EarlyEnd(
            self.node,
            self.engine,
            plan_file=opened.plan_file,
            ownership=opened.ownership,
            folder=self.folder,
            warn=self.warn,
            spawn=self._spawn,
        )

    def _limits(self) -> RunLimits:
        """The rights that the scheduler gives out."""
        return limits_of(self.request.options)

    def _make_run(self, position: int, row: PlannedTask) -> TaskRun:
        run = self.node.execution(position, row, attempt=row.attempts + 1, epoch=row.epoch + 1)
        self.node.runs[row.id] = run
        return run

    # -------------------------------------------------------------- the run

    async def run(self, observers: Sequence[Observer]) -> str:
        """Announce the plan, run it, and record the end; returns the final status."""
        feeds = Observers(observers, self.warn)
        self.feeds = feeds
        document = self.opened.plan.document
        if observers:
            await feeds.run_started(shown_plan(document.pipeline, document.tasks, phases=document.phases))
            self.events.subscribe(feeds.take)
        if self.request.look is not None:
            from towline.pipeline.look import SessionLook

            self.request.look(SessionLook(self))
        self._announce()
        await self.folder.flush()  # whoever comes after a crash finds the plan in the log
        self._hear_bodies()
        stop_hearing = self._hear_outages()
        try:
            self.early_end.listen()
            beside = [self._loop.create_task(work) for work in (self._keep_artifacts(), self._watch_ownership())]
            try:
                status = await self._drive()
            finally:
                for one in beside:
                    one.cancel()
            await self._see_trees_gone()  # while signals are heard: a second one shortens this too
        finally:
            self.early_end.stop()
            stop_hearing()
            self.node.output.uninstall()
        self.node.output.drain()
        return status

    def _hear_bodies(self) -> None:
        """Listen to what bodies in this process print and log."""
        self.node.output.install(streams=self.request.options.capture == "auto")

    def _hear_outages(self) -> Callable[[], None]:
        """Warn of servers that do not answer while the run waits for them; returns what ends that."""
        if "towline.access.outages" not in sys.modules:  # whoever connects to a server has loaded it
            return lambda: None
        from towline.pipeline.outages import tell_outages

        return tell_outages(self.warn, self._outage_limit_s())

    def _outage_limit_s(self) -> float:
        """How long a silent server is waited for: the lease on the state, where that is on one, is over first."""
        return float(getattr(self.opened.ownership, "lease_s", RETRY_LIMIT_S))

    async def _drive(self) -> str:
        driving = self._loop.create_task(self.engine.run())
        try:
            return await asyncio.shield(driving)
        except asyncio.CancelledError:
            if driving.done():
                raise
            # The caller was cancelled: that is the first signal. The run ends in order, then the cancel goes on.
            self.was_cancelled = True
            self.engine.ask_stop("interrupted")
            return await driving

    async def _keep_artifacts(self) -> None:
        """Keep what this run has stored for as long as it runs, where a store forgets (ART-15)."""
        await self.node.artifacts.keep_run(self.facts.run_id)

    async def _watch_ownership(self) -> None:
        """End the run when the plan is no longer ours: others may go on with it (STATE-10)."""
        ownership = self.opened.ownership
        await ownership.wait_for_loss()
        try:
            ownership.check()
        except OwnershipLostError as error:
            self.state_is_lost(error)

    def state_is_lost(self, error: Exception) -> None:
        """Cancel everything and end with this error."""
        self.engine.break_down(error)

    async def _see_trees_gone(self) -> None:
        """Wait for what cancelled commands started, within the graces of the node (RUN-48)."""
        options = self.request.options
        limit_s = options.cancel_grace_s + options.terminate_grace_s

        def tell(count: int) -> None:
            was = "1 command that was" if count == 1 else f"{count:,} commands that were"
            text = f"waiting for the programs of {was} told to end; what is left after their grace is killed"
            self.node.output.log(None, "warning", text)

        await wait_for_trees(limit_s, tell)

    # -------------------------------------------------------------- what is told

    def _announce(self) -> None:
        at = moment(self.clock.now())
        document = self.opened.plan.document
        data: dict[str, Any] = {
            "pipeline": document.pipeline,
            "program": document.program,
            "plan_id": document.plan_id,
            "run_id": self.facts.run_id,
        }
        if self.opened.resumed_from:
            data["resumed_from"] = self.opened.resumed_from
        self.events.emit([self.events.event("run_started", at, data)])
        for part in parts_of(document.tasks):
            self.events.emit([self.events.event("plan", at, part)])
        for kind, data in self.opened.announcements:
            self.events.emit([self.events.event(kind, at, data)])

    def warn(self, text: str) -> None:
        """Keep a warning for the report, and show it now."""
        self.warnings.append(text)
        self.node.output.log(None, "warning", text)

    def _listener_broke(self, error: Exception) -> None:
        """A view of the run has failed and hears no more of it; the run goes on (REP-13)."""
        self.warn(f"a view of the run failed and shows no more of it: {type(error).__name__}: {error}")

    def _log_trouble(self, error: Exception) -> None:
        self.warnings.append(f"logs and events could not be written, the run goes on: {error}")

    @property
    def requeue_count(self) -> int:
        """How often a task went back into the queue: never, where nobody else takes any."""
        return 0

    def outcome_of(self, position: int) -> Outcome[Any] | None:
        """How a task of this run ended, if it did."""
        return self.node.values.outcomes.get(position)

    # -------------------------------------------------------------- the end

    async def record_end(self, status: str) -> None:
        """Write the end of the run to the plan; afterwards nothing is pending of it (PLAN section 3).

        A run that is to be resumed leaves a plan that is quickly read (PLAN-23). That can fail and loses nothing.
        """
        record = RunRecord(
            seq=self.writer.next_seq(),
            at=moment(self.clock.now()),
            run_id=self.facts.run_id,
            run_state=status,  # type: ignore[arg-type]
        )
        waiting = self.writer.write([record])
        if waiting is not None:
            await waiting
        if status != "succeeded" and self.writer.snapshot_pays:
            try:
                await self.writer.snapshot(record.at)
            except (OwnershipLostError, StateLostError) as error:
                self.warn(f"the plan keeps its journal, a resume reads that too: {error}")

    def tell_end(self, report: RunReport) -> None:
        """Emit the last event."""
        at = moment(self.clock.now())
        data = {"run_state": report.status, "exit_code": report.exit_code, "counts": report.counts}
        self.events.close(at)
        self.events.emit([self.events.event("run_ended", at, data)])

    async def close(self) -> None:
        """Stop timers, threads and the warden, see commands gone, write the last logs."""
        self.node.close()
        await self._see_trees_gone()
        warden.close()
        await self.folder.close()
        for begun in tuple(self._beside):
            await begun

    def _spawn(self, work: Awaitable[None]) -> None:
        """Begin what :meth:`close` waits for."""
        begun = asyncio.ensure_future(work)
        self._beside.add(begun)
        begun.add_done_callback(self._beside.discard)
