"""One run from the request to the report: opens the state, composes the engine, closes what it opened."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from towline.clock import Clock, SystemClock, SystemExitDoor, moment
from towline.errors.state import OwnershipLostError
from towline.events.log import EventLog
from towline.execution.abandoned import AbandonedBodies
from towline.execution.attempts import Attempts
from towline.execution.deadlines import Deadlines
from towline.execution.doors import NodeDoors
from towline.execution.ended import EndedTasks
from towline.execution.engine import Engine
from towline.execution.growth import Growth
from towline.execution.observers import Observers
from towline.execution.output import Output
from towline.execution.plan_writer import PlanWriter
from towline.execution.run_folder import RunFolder
from towline.execution.runner import Runner
from towline.execution.scheduler import Scheduler
from towline.execution.shown import parts_of
from towline.execution.started import kill_all, wait_for_trees, warden
from towline.execution.stopping import Stopper
from towline.execution.surroundings import Surroundings
from towline.execution.taskrun import PROCESS, TaskRun
from towline.execution.threads import ThreadPool
from towline.execution.values import Values
from towline.execution.watchdog import Watchdog
from towline.masking.masker import Masker
from towline.modules.doors import Attempt
from towline.pipeline.caching import open_cache
from towline.pipeline.garbage import HeapAside, collections_paused
from towline.pipeline.offloading import OffloadOpener
from towline.pipeline.program import kinds_of, limits_of, refuse_without_target, rules_of, secrets_of
from towline.pipeline.signals import Signals, refuse_other_thread
from towline.pipeline.stores import artifact_store
from towline.planning.plan import shown_plan
from towline.planning.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.execution.isolation import ProcessBodies
    from towline.execution.limits import RunLimits
    from towline.execution.observers import Observer
    from towline.execution.report import RunReport
    from towline.execution.run_request import RunRequest
    from towline.modules.outcomes import Outcome
    from towline.modules.target import TargetRef
    from towline.pipeline.opening import OpenedPlan
    from towline.pipeline.program import Program
    from towline.planning.built import BuiltPlan
    from towline.planning.records import PlannedTask


LAST_WRITE_S = 1.0
"""What a second signal waits for the journal (RUN-43)."""


class Session:
    """The composition of one run. Built once the plan is durable; ``run`` drives it to its end."""

    engine_class: ClassVar[type[Engine]] = Engine
    doors_class: ClassVar[type[NodeDoors]] = NodeDoors
    runs_bodies: ClassVar[bool] = True
    """Bodies run in this object's own runner, so it listens to what they print."""

    @classmethod
    def refuse_early(cls, request: RunRequest) -> None:
        """Refuse what cannot work, while the earlier plan still stands.

        Raises:
            ConfigurationError: Signals cannot be handled here (RUN-44).
        """
        if wants_signals(request):
            refuse_other_thread()

    def __init__(
        self,
        program: Program,
        target: TargetRef | None,
        request: RunRequest,
        built: BuiltPlan,
        opened: OpenedPlan,
        clock: Clock,
    ) -> None:
        self.program, self.request, self.built, self.opened, self.clock = program, request, built, opened, clock
        self._target = target
        options, loop = request.options, asyncio.get_running_loop()
        self._loop = loop
        self._tasks: set[asyncio.Future[None]] = set()
        self.warnings: list[str] = list(opened.warnings)
        self.masker = Masker(request.tell_secret)
        self.run_id = opened.run_id
        self.workdir = request.workdir or Path.cwd()
        self.worker_id = "local"
        self.params = program.params_for(request.params)
        for secret in secrets_of(self.params):
            self.masker.register(secret.reveal())
        self.folder = RunFolder(opened.append_for(self.run_id), loop.call_later, self._log_trouble, self._spawn)
        session = f"{random.getrandbits(32):08x}"
        self.events = EventLog(
            source=opened.owner_id, session=session, keep=self.folder.events, broken=self._listener_broke
        )
        self.output = Output(
            events=self.events,
            folder=self.folder,
            mask=self.masker.mask,
            clock=clock,
            loop=loop,
            run_id=self.run_id,
            echo=not request.watchers,
        )
        for watcher in request.watchers:
            self.events.subscribe(watcher)
        tasks = opened.plan.document.tasks
        self._kinds = kinds_of(built, options, must_travel=options.strict_values, isolate_all=request.isolate_all)
        codecs = {name: kind.codec for name, kind in self._kinds.items()}
        self.values = Values(
            built, tasks, codecs, opened.plan_file.results, copies=options.strict_values, workdir=self.workdir
        )
        self.writer = PlanWriter(opened.plan, opened.plan_file)
        self.ended_tasks = EndedTasks(self.values, opened.plan_file.results, self.masker.mask)
        self.growth = Growth(built, opened.plan, self.values, max_tasks=options.max_tasks, workdir=self.workdir)
        self.runs: dict[str, TaskRun] = {}
        self.commands_of: dict[str, int] = {}
        self.command_count = self.retry_count = self.requeue_count = 0
        self.exit_code_of_cancel = 130
        self.was_cancelled = False
        """The task that awaits the run was cancelled; it gets its ``CancelledError`` when all is closed."""
        self.scheduler = Scheduler(
            tasks, rules_of(built.specs), self._limits(), opened.estimates, selection=opened.selection
        )
        self.engine = self.engine_class(
            writer=self.writer,
            scheduler=self.scheduler,
            events=self.events,
            output=self.output,
            ended_tasks=self.ended_tasks,
            growth=self.growth,
            make_run=self._make_run,
            decided=opened.decided,
            forget=self._forget,
            clock=clock,
            worker_id=self.worker_id,
            interrupt_stops_all=not options.always_run_on_interrupt,
        )
        self._deadlines = Deadlines(loop)
        self._threads = ThreadPool()
        self.own_runner = self._runner()
        self.engine.runner = self.own_runner

    def _limits(self) -> RunLimits:
        """The rights that the scheduler gives out."""
        return limits_of(self.request.options)

    def _runner(self) -> Runner:
        options = self.request.options
        doors = self.doors_class(
            runs=self.runs,
            output=self.output,
            masker=self.masker,
            store=self.opened.store,
            scope=self.program.id,
            show=self.engine.show,
            checkpoint=self.engine.checkpoint,
            clock=self.clock,
            loop=self._loop,
            plan_id=self.opened.plan.document.plan_id,
            open_offload=OffloadOpener(options, os.environ, self.engine.show) if self.runs_bodies else None,
        )
        self.doors = doors
        artifacts = self.artifacts = artifact_store(self.program, self.request, self.opened.store)
        stopper = Stopper(self._deadlines, options.cancel_grace_s, lambda run: runner.abandon(run))
        surroundings = Surroundings(
            doors=doors,
            built=self.built,
            values=self.values,
            growth=self.growth,
            artifacts=artifacts,
            cache=open_cache(
                self.built,
                options,
                self._target,
                workdir=self.workdir,
                artifacts=artifacts,
                outcomes=self.values,
                log=self.output.log,
                clock=self.clock,
                run_id=self.run_id,
            ),
            output=self.output,
            masker=self.masker,
            threads=self._threads,
            options=options,
            values_must_travel=options.strict_values,
            show=self.engine.show,
        )
        abandoned = AbandonedBodies(options.max_abandoned)
        attempts = Attempts(
            doors=doors,
            stopper=stopper,
            threads=self._threads,
            processes=self._processes(doors),
            abandoned=abandoned,
            clock=self.clock,
            random=random.Random(),
            worker_id=self.worker_id,
            on_retry=self._retrying,
        )
        runner = Runner(
            host=self.engine,
            attempts=attempts,
            stopper=stopper,
            abandoned=abandoned,
            surroundings=surroundings,
            hook_timeout_s=options.hook_timeout_s,
            worker_id=self.worker_id,
        )
        return runner

    def _processes(self, doors: NodeDoors) -> ProcessBodies | None:
        """Where isolated bodies run; a program that has some was checked to have a target."""
        if self._target is None or not any(kind.place is PROCESS for kind in self._kinds.values()):
            return None
        from towline.execution.isolation import ProcessBodies

        options = self.request.options
        return ProcessBodies(
            target=self._target,
            specs=self.built.specs,
            doors=doors,
            log=self.output,
            mask=self.masker.mask,
            state=self.opened.store,
            plan_id=self.opened.plan.document.plan_id,
            cursor_moved=doors.cursor_moved,
            sources=self.values.sources,
            cancel_grace_s=options.cancel_grace_s,
            terminate_grace_s=options.terminate_grace_s,
        )

    def _make_run(self, position: int, row: PlannedTask) -> TaskRun:
        attempt = Attempt(
            task_id=row.id,
            module=row.module,
            key=row.key,
            run_id=self.run_id,
            attempt=row.attempts + 1,
            epoch=row.epoch + 1,
            worker_id=self.worker_id,
            workdir=self.workdir,
            params=self.params,
        )
        matrix = self.built.matrix.get(position)
        if matrix is not None:
            attempt.matrix = matrix
        inputs = None if row.parent is not None else self.values.inputs(position)
        run = TaskRun(position, row, self._kinds[row.module], attempt, inputs)
        self.runs[row.id] = run
        return run

    def _forget(self, run: TaskRun) -> None:
        if run.commands:
            self.commands_of[run.row.id] = run.commands
            self.command_count += run.commands
        if not run.abandoned:
            self.runs.pop(run.row.id, None)

    # -------------------------------------------------------------- the run

    async def run(self, observers: Sequence[Observer]) -> str:
        """Announce the plan, run it, and record the end; returns the final status."""
        feeds = Observers(observers, self.warn)
        self.feeds = feeds
        document = self.opened.plan.document
        if observers:
            await feeds.run_started(shown_plan(document.pipeline, document.tasks, phases=document.phases))
        if observers:
            self.events.subscribe(feeds.take)
        if self.request.look is not None:
            from towline.pipeline.look import SessionLook

            self.request.look(SessionLook(self))
        self._announce()
        await self.folder.flush()  # whoever comes after a crash finds the plan in the log
        signals, watchdog = self._signals(), self._watchdog()
        if self.runs_bodies:
            self.output.install(streams=self.request.options.capture == "auto")
        try:
            if signals is not None:
                signals.install()
            watchdog.start()
            beside = [self._loop.create_task(work) for work in (self._keep_artifacts(), self._watch_ownership())]
            try:
                status = await self._drive()
            finally:
                for one in beside:
                    one.cancel()
            await self._see_trees_gone()  # while signals are heard: a second one shortens this too
        finally:
            watchdog.stop()
            if signals is not None:
                signals.restore()
            self.output.uninstall()
        self.output.drain()
        return status

    async def _keep_artifacts(self) -> None:
        """Keep what this run has stored for as long as it runs, where a store forgets (ART-15)."""
        await self.artifacts.keep_run(self.run_id)

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

    def _retrying(self, run: TaskRun, outcome: Outcome[Any], pause_s: float) -> None:
        self.retry_count += 1
        self.engine.retrying(run, outcome, pause_s)

    def _signals(self) -> Signals | None:
        if not wants_signals(self.request):
            return None
        return Signals(self._loop, self._first_signal, self._second_signal, SystemExitDoor())

    def _first_signal(self, code: int) -> None:
        """End in order: no new task starts, running ones are cancelled (RUN-42)."""
        self.exit_code_of_cancel = code
        self.warn("interrupted: running tasks are ending; once more ends them at once")
        self.engine.ask_stop("interrupted", always_run_too=not self.request.options.always_run_on_interrupt)

    def _second_signal(self, code: int) -> None:
        """End at once: kill what was started; the journal is as the last turn wrote it (RUN-43)."""
        kill_all()
        self._spawn(self._leave(code))

    async def _leave(self, code: int) -> None:
        try:
            async with asyncio.timeout(LAST_WRITE_S):
                await self.opened.plan_file.flush()
                await self.folder.flush()
        except TimeoutError:
            pass  # a second signal promises to leave within a second, whatever the disk does
        self._exit(code)

    def _exit(self, code: int) -> None:
        """Leave on the spot, once whoever shows the run has shown what it holds."""
        if self.request.before_exit is not None:
            self.request.before_exit()
        SystemExitDoor()(code)

    def _watchdog(self) -> Watchdog:
        options = self.request.options
        action = options.loop_block_action or ("exit" if self.request.by_main else "warn")
        is_real = type(self._loop).__module__.split(".")[0] in ("asyncio", "uvloop")
        return Watchdog(
            loop=self._loop,
            runs=self.runs,
            clock=self.clock,
            warning_s=options.loop_block_warning_s if is_real else 0.0,
            grace_s=options.cancel_grace_s,
            warn=lambda text: self.output.log(None, "warning", text),
            expire=self._expire if action == "exit" else None,
        )

    def _expire(self, run: TaskRun, stack: str) -> None:
        """From the watchdog's thread, while the loop is blocked: record the timeout and leave (RUN-28)."""
        kill_all()
        asyncio.run(self._last_words(run, stack))
        self._exit(1)

    async def _last_words(self, run: TaskRun, stack: str) -> None:
        try:
            async with asyncio.timeout(LAST_WRITE_S):
                await self.engine.expire_blocking(run, stack)
                self.output.drain()
                await self.folder.flush()
        except TimeoutError:
            pass  # as after a second signal: it leaves, whatever the disk does

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

    def _announce(self) -> None:
        at = moment(self.clock.now())
        document = self.opened.plan.document
        data: dict[str, Any] = {
            "pipeline": document.pipeline,
            "program": document.program,
            "plan_id": document.plan_id,
            "run_id": self.run_id,
        }
        if self.opened.resumed_from:
            data["resumed_from"] = self.opened.resumed_from
        self.events.emit([self.events.event("run_started", at, data)])
        for part in parts_of(document.tasks):
            self.events.emit([self.events.event("plan", at, part)])
        for kind, data in self.opened.announcements:
            self.events.emit([self.events.event(kind, at, data)])

    async def record_end(self, status: str) -> None:
        """Write the end of the run to the plan; afterwards nothing is pending of it (PLAN section 3)."""
        record = RunRecord(
            seq=self.writer.next_seq(),
            at=moment(self.clock.now()),
            run_id=self.run_id,
            run_state=status,  # type: ignore[arg-type]
        )
        waiting = self.writer.write([record])
        if waiting is not None:
            await waiting

    def tell_end(self, report: RunReport) -> None:
        """Emit the last event."""
        at = moment(self.clock.now())
        data = {"run_state": report.status, "exit_code": report.exit_code, "counts": report.counts}
        self.events.close(at)
        self.events.emit([self.events.event("run_ended", at, data)])

    async def close(self) -> None:
        """Stop timers, threads and the warden, see commands gone, write the last logs."""
        self._deadlines.close()
        self._threads.close()
        await self._see_trees_gone()
        warden.close()
        await self.folder.close()
        for task in tuple(self._tasks):
            await task

    async def _see_trees_gone(self) -> None:
        """Wait for what cancelled commands started, within the graces of the node (RUN-48)."""
        options = self.request.options
        await wait_for_trees(options.cancel_grace_s + options.terminate_grace_s)

    def warn(self, text: str) -> None:
        """Keep a warning for the report, and show it now."""
        self.warnings.append(text)
        self.output.log(None, "warning", text)

    def _listener_broke(self, error: Exception) -> None:
        """A view of the run has failed and hears no more of it; the run goes on (REP-13)."""
        self.warn(f"a view of the run failed and shows no more of it: {type(error).__name__}: {error}")

    def _log_trouble(self, error: Exception) -> None:
        self.warnings.append(f"logs and events could not be written, the run goes on: {error}")

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def outcome_of(self, position: int) -> Outcome[Any] | None:
        """How a task of this run ended, if it did."""
        return self.values.outcomes.get(position)


def wants_signals(request: RunRequest) -> bool:
    """Whether Ctrl-C and SIGTERM are this run's to handle (RUN-42)."""
    return request.by_main or bool(request.options.handle_signals)


async def run_session(
    program: Program,
    target: TargetRef | None,
    request: RunRequest,
    observers: Sequence[Observer],
    clock: Clock | None = None,
    session_class: type[Session] = Session,
) -> tuple[RunReport, BaseException | None]:
    """Run a program as asked. Returns the report and the exception of the root failure.

    Raises:
        TowlineError: Nothing ran, or state was lost (exit 4).
    """
    from towline.pipeline.opening import open_run

    clock = clock or SystemClock()
    started_at = clock.now()
    started = clock.monotonic()
    heap = HeapAside()
    with collections_paused():
        params = program.params_for(request.params)
        must_travel = request.options.strict_values or request.distributed is not None
        built = program.build(params, request.options, must_travel=must_travel)
        refuse_without_target(built, target)
        session_class.refuse_early(request)
        opened = await open_run(program, request, built, params, clock)
        heap.take(len(built.tasks))
    try:
        if request.greet is not None:
            request.greet(opened.words)
        with collections_paused():
            session = session_class(program, target, request, built, opened, clock)
            heap.take(len(built.tasks))
        try:
            status = await session.run(observers)
            await session.record_end(status)
        finally:
            await session.close()
        from towline.pipeline.closing import finished_report  # the first task need not wait for the report's code

        report = await finished_report(session, status, started_at, clock.monotonic() - started)
        session.tell_end(report)
        await session.folder.flush()
        await session.feeds.run_finished(report)
    finally:
        heap.give_back()
        await opened.close()
    if session.was_cancelled:
        raise asyncio.CancelledError
    return report, session.ended_tasks.root_error()
