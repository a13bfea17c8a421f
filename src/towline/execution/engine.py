"""The main road of every task: scheduler -> runner -> journal -> event -> scheduler, turn by turn.

A turn takes what has happened since the last one (bodies that ended, stops, time) and asks the scheduler
what follows. One journal line makes all of it durable; then events show it, and only then does what was
decided begin. The scheduler may hear of an outcome before it is durable, for it is pure: nothing of what it
decides is shown or started before the line is written (PLAN-17).
"""

# ruff: noqa: TC004 - the record is never decoded, so its annotations need no import at start-up.

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from towline.clock import moment
from towline.errors.state import ResultCorruptError, StateLostError
from towline.execution.scheduling import (
    Begin,
    Blocked,
    Cancel,
    Complete,
    Dispatch,
    Expand,
    Finished,
    Grown,
    RightFreed,
    SchedulerEvent,
    Settle,
    StopAsked,
    Stuck,
    Tick,
    WakeAt,
)
from towline.execution.shown import parts_of
from towline.modules.outcomes import Cancelled, Failed, Outcome, Reason, Succeeded, TimedOut
from towline.planning.records import FINAL_STATES, JournalRecord, PlannedTask, ProgressRecord, StateRecord, TaskError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from towline.clock import Clock
    from towline.events.log import EventLog, Facts
    from towline.execution.ended import EndedTasks
    from towline.execution.growth import Growth
    from towline.execution.output import Output
    from towline.execution.plan_writer import PlanWriter
    from towline.execution.runner import Runner
    from towline.execution.scheduler import Scheduler
    from towline.execution.scheduling import Decision
    from towline.execution.taskrun import TaskRun

SETTLE_SLICE = 1_000
"""Decisions that one turn carries out at most; the rest waits for the next, so that a failure with 100,000
dependents holds the loop for some 20 ms at a time (SCHED-26)."""


StopReason: TypeAlias = Literal["pipeline_failed", "stopped", "interrupted", "operator"]


class Engine:
    """Drives one plan to its end on this node. One object serves one run.

    ``interrupt_stops_all``: an interruption stops always-run tasks too (RUN-42).
    """

    def __init__(
        self,
        *,
        writer: PlanWriter,
        scheduler: Scheduler,
        events: EventLog,
        output: Output,
        ended_tasks: EndedTasks,
        growth: Growth,
        make_run: Callable[[int, PlannedTask], TaskRun],
        decided: Callable[[int], Outcome[Any] | None],
        forget: Callable[[TaskRun], None],
        clock: Clock,
        worker_id: str,
        interrupt_stops_all: bool = True,
    ) -> None:
        self._interrupt_stops_all = interrupt_stops_all
        self._writer, self._scheduler, self._events, self._output = writer, scheduler, events, output
        self._ended_tasks, self._growth = ended_tasks, growth
        self._make_run, self._decided, self._forget = make_run, decided, forget
        self._clock, self._worker_id = clock, worker_id
        self.runner: Runner  # set by whoever composes both: each knows the other
        self._tasks = writer.plan.document.tasks
        self._loop = asyncio.get_running_loop()
        self._inbox: list[SchedulerEvent | tuple[TaskRun, Outcome[Any]]] = []
        self._decisions: list[Decision] = []
        self._marks: list[tuple[TaskRun, asyncio.Future[None]]] = []
        self._running: dict[int, TaskRun] = {}
        self._one_ended = asyncio.Event()
        self._checkpoints: dict[str, tuple[int, int | None]] = {}
        self._turn_due = False
        self._writing: asyncio.Task[None] | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._complete: asyncio.Future[str] = self._loop.create_future()
        self._completed_as: str | None = None

    # -------------------------------------------------------------- the outside

    async def run(self) -> str:
        """Run the plan and return its final status.

        Raises:
            StateLostError: The plan could not be written; what ran was cancelled (PLAN-18).
            ResultCorruptError: A kept result that a task needs is damaged (PLAN-37).
            SchedulerStuckError: Nothing may start though something is pending (SCHED-17).
        """
        self._push(Begin())
        try:
            return await asyncio.shield(self._complete)
        except Exception:
            await self._see_them_ended()
            raise
        finally:
            if self._wake is not None:
                self._wake.cancel()

    async def _see_them_ended(self) -> None:
        """Wait for the bodies that a breakdown cancelled; the stopper abandons those that will not end."""
        while self._running:
            self._one_ended.clear()
            await self._one_ended.wait()

    def ask_stop(self, reason: StopReason, *, always_run_too: bool = True, task: int | None = None) -> None:
        """Stop the run, or one task of it; repeated and escalating calls are harmless."""
        at = moment(self._clock.now())
        data: dict[str, Any] = {"by": reason}
        if task is not None:
            data["task"] = self._tasks[task].id
        self._events.emit([self._events.event("cancel_requested", at, data)])
        self._push(StopAsked(reason, always_run_too, task))

    async def expire_blocking(self, run: TaskRun, stack: str) -> None:
        """Record the timeout of a body that blocks the loop, on another thread's loop, before the process leaves.

        The loop's own thread is inside that body, so nothing else writes meanwhile (RUN-28).
        """
        at = moment(self._clock.now())
        last = stack.strip().splitlines()[-1].strip() if stack.strip() else None
        text = f"blocked the event loop past its timeout of {run.kind.timeout_s:g} s; the process was ended"
        record = StateRecord(
            seq=self._writer.next_seq(),
            at=at,
            task=run.row.id,
            state="timed_out",
            reason="timeout",
            reason_text=text,
            error=TaskError("ModuleTimeoutError", text, last),
            attempts=run.attempt.attempt,
        )
        data = {"from": run.row.state, "to": "timed_out", "reason": "timeout", "reason_text": text}
        waiting = self._writer.write([record])
        if waiting is not None:
            await waiting
        event = self._events.event(
            "task_state", at, data | {"plan_seq": record.seq}, run.row.id, run.attempt.epoch, run.attempt.attempt
        )
        self._events.emit([event])

    @property
    def running(self) -> Sequence[TaskRun]:
        """The executions under way."""
        return tuple(self._running.values())

    # -------------------------------------------------------------- what executions report (runner.Host)

    def mark_running(self, run: TaskRun) -> Awaitable[None]:
        """Make ``running`` durable for a task that was prepared first."""
        marked: asyncio.Future[None] = self._loop.create_future()
        self._marks.append((run, marked))
        self._kick()
        return marked

    def ended(self, run: TaskRun, outcome: Outcome[Any]) -> None:
        """Take the outcome of an execution."""
        self._running.pop(run.position, None)
        if self._complete.done():
            self._one_ended.set()
        if type(outcome) is Failed and isinstance(run.error, ResultCorruptError):
            self._break_down(run.error)  # what it would have read stays damaged for all that come after it
            return
        self._inbox.append((run, outcome))
        if self._running or self._turn_due or self._writing is not None:
            self._kick()
        else:
            self._turn()  # nothing else can end in this turn of the loop: do not wait for the next

    def freed(self, run: TaskRun) -> None:
        """An abandoned body has ended; its rights are free again."""
        self._push(RightFreed(run.position))

    def show(self, kind: str, run: TaskRun, data: dict[str, Any]) -> None:
        """Emit an event about a task that is no transition."""
        event = self._events.event(
            kind, moment(self._clock.now()), data, run.row.id, run.attempt.epoch, run.attempt.attempt
        )
        self._events.emit([event])

    def retrying(self, run: TaskRun, outcome: Outcome[Any], pause_s: float) -> None:
        """Show that an attempt failed and another one follows."""
        error = getattr(outcome, "error", None)
        data: dict[str, Any] = {"state": "backing_off", "wait_s": round(pause_s, 3)}
        if error is not None:
            data["error"] = f"{error.type_name}: {error.text}"
        self.show("attempt", run, data)

    def checkpoint(self, run: TaskRun, done: int, total: int | None) -> None:
        """Keep the counts of a durable cursor write in the plan."""
        self._checkpoints[run.row.id] = (done, total)
        self._kick()

    # -------------------------------------------------------------- turns

    def _push(self, event: SchedulerEvent) -> None:
        self._inbox.append(event)
        self._kick()

    def _kick(self) -> None:
        if not self._turn_due and self._writing is None and not self._complete.done():
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        if self._writing is not None or self._complete.done():
            return
        try:
            if self._output.said:
                self._output.drain()
            turn = _Turn(moment(self._clock.now()))
            self._hear(turn)
            self._carry_out(turn)
            waiting = self._writer.write(turn.records) if turn.records else None
        except Exception as error:  # noqa: BLE001 - whatever breaks a turn ends the run, loudly
            self._break_down(error)
            return
        if waiting is None:
            self._after_write(turn)
        else:
            self._writing = self._loop.create_task(self._wait_and_go_on(waiting, turn))

    async def _wait_and_go_on(self, waiting: Awaitable[None] | None, turn: _Turn) -> None:
        try:
            if waiting is not None:
                await waiting
        except Exception as error:  # noqa: BLE001 - as in _turn
            self._writing = None
            self._break_down(error)
            return
        self._writing = None
        self._after_write(turn)

    def _hear(self, turn: _Turn) -> None:
        """Tell the scheduler what has happened, and prepare the records of it."""
        inbox, self._inbox = self._inbox, []
        scheduler, now, decisions = self._scheduler, self._loop.time(), self._decisions
        for item in inbox:
            if type(item) is tuple:
                run, outcome = item
                if run.stop is None and type(outcome) is Cancelled:  # Ctrl-C in its body (RUN-40)
                    turn.events.append(("cancel_requested", turn.at, {"by": "interrupted"}, None, None, None))
                    decisions += scheduler.on(StopAsked("interrupted", self._interrupt_stops_all), now)
                decisions += scheduler.on(self._record_outcome(turn, run, outcome), now)
            else:
                decisions += scheduler.on(item, now)  # type: ignore[arg-type]
        if self._checkpoints:
            self._record_checkpoints(turn)
        if self._marks:
            marks, self._marks = self._marks, []
            for run, marked in marks:
                self._record_running(turn, run)
                turn.marked.append(marked)

    def _carry_out(self, turn: _Turn) -> None:
        """Turn decisions into records, and into what starts once those are durable."""
        todo = self._decisions[:SETTLE_SLICE]
        del self._decisions[:SETTLE_SLICE]
        for decision in todo:
            kind = type(decision)
            if kind is Dispatch:
                self._dispatch(turn, decision.task)  # type: ignore[union-attr]
            elif kind is Settle:
                self._settle(turn, decision)  # type: ignore[arg-type]
            elif kind is Expand:
                turn.expand.append(decision.join)  # type: ignore[union-attr]
            elif kind is Cancel:
                turn.cancel.append(decision)  # type: ignore[arg-type]
            elif kind is WakeAt:
                self._wake_at(decision.at)  # type: ignore[union-attr]
            elif kind is Complete:
                self._completed_as = decision.status  # type: ignore[union-attr]
            elif kind is Stuck:
                from towline.errors.running import SchedulerStuckError

                raise SchedulerStuckError(decision.tasks)  # type: ignore[union-attr]

    def _after_write(self, turn: _Turn) -> None:
        """The records are durable: show them, then start what was decided."""
        if turn.events:
            self._events.emit_facts(turn.events)
        for marked in turn.marked:
            if not marked.done():
                marked.set_result(None)
        running, runner, loop = self._running, self.runner, self._loop
        for run in turn.starts:
            running[run.position] = run
            runner.start(run, loop)
        for decision in turn.cancel:
            run_ = running.get(decision.task)
            if run_ is not None:
                runner.stop(run_, decision.code)
        if turn.expand:
            self._writing = self._loop.create_task(self._grow(turn.expand))
        elif self._writer.snapshot_is_due and self._completed_as is None:
            self._writing = self._loop.create_task(self._snapshot())
        elif self._decisions or self._inbox or self._has_more_to_hear():
            self._kick()
        elif self._completed_as is not None and not self._complete.done():
            self._complete.set_result(self._completed_as)

    def _has_more_to_hear(self) -> bool:
        """Whether something came while a turn was written: it could not ask for a turn of its own."""
        return bool(self._marks or self._checkpoints)

    async def _snapshot(self) -> None:
        try:
            await self._writer.snapshot(moment(self._clock.now()))
        except Exception as error:  # noqa: BLE001 - as in _turn
            self._writing = None
            self._break_down(error)
            return
        self._writing = None
        self._kick()

    def _wake_at(self, at: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake = self._loop.call_at(at, self._push, Tick())

    def break_down(self, error: Exception) -> None:
        """End the run with an error from outside: state, mastership or coordinator are lost (STATE-10, DIST-56)."""
        self._break_down(error)

    def _break_down(self, error: Exception) -> None:
        """Start nothing more, cancel what runs, and give the error to whoever awaits the run."""
        if self._complete.done():
            return
        self._complete.set_exception(error)
        code = "stopped" if isinstance(error, StateLostError) else "pipeline_failed"
        for run in self.running:
            self.runner.stop(run, code)

    # -------------------------------------------------------------- growth

    async def _grow(self, joins: Sequence[int]) -> None:
        """Read the items of each join's source and record the children; the scheduler hears of them next (PLAN-57)."""
        turn = _Turn(moment(self._clock.now()))
        try:
            for join in joins:
                grown = await self._growth.grow(join, self._writer.next_seq)
                if isinstance(grown, Failed):
                    self._inbox.append(self._record_final(turn, join, self._tasks[join], grown, None))
                    continue
                children = await self._writer.expand(grown)
                self._growth.planned(join, children)
                for part in parts_of(children):
                    part["join"] = self._tasks[join].id
                    turn.events.append(("tasks_added", turn.at, part, None, None, None))
                self._inbox.append(Grown(join, tuple(children)))
        except Exception as error:  # noqa: BLE001 - as in _turn
            self._writing = None
            self._break_down(error)
            return
        await self._wait_and_go_on(self._writer.write(turn.records) if turn.records else None, turn)

    # -------------------------------------------------------------- records and events of transitions

    def _record_checkpoints(self, turn: _Turn) -> None:
        checkpoints, self._checkpoints = self._checkpoints, {}
        for task, (done, total) in checkpoints.items():
            seq = self._writer.next_seq()
            turn.records.append(ProgressRecord(seq=seq, at=turn.at, task=task, done=done, total=total))

    def _dispatch(self, turn: _Turn, position: int) -> None:
        row = self._tasks[position]
        outcome = self._decided(position)
        if outcome is not None:
            self._inbox.append(self._record_final(turn, position, row, outcome, None))
            return
        run = self._make_run(position, row)
        if run.kind.is_plain:
            self._record_running(turn, run)
        turn.starts.append(run)

    def _record_running(self, turn: _Turn, run: TaskRun) -> None:
        run.is_marked = True
        row, attempt = run.row, run.attempt
        record = StateRecord(
            seq=self._writer.next_seq(),
            at=turn.at,
            task=row.id,
            state="running",
            epoch=attempt.epoch,
            attempts=run.first_attempt + 1,
            worker=self._worker_id,
        )
        turn.records.append(record)
        data = {"from": row.state, "to": "running", "worker": self._worker_id, "plan_seq": record.seq}
        turn.events.append(("task_state", turn.at, data, row.id, attempt.epoch, run.first_attempt + 1))

    def _record_outcome(self, turn: _Turn, run: TaskRun, outcome: Outcome[Any]) -> SchedulerEvent:
        row = run.row
        self._output.task_ended(run.attempt)
        self._forget(run)
        if row.gate and type(outcome) is Succeeded and any(one.severity == "blocking" for one in outcome.findings):
            return self._record_blocked(turn, run, outcome)
        return self._record_final(turn, run.position, row, outcome, run)

    def _record_final(
        self, turn: _Turn, position: int, row: PlannedTask, outcome: Outcome[Any], run: TaskRun | None
    ) -> Finished:
        record, data = self._ended_tasks.record(self._writer.next_seq, turn.at, position, row, outcome, run)
        turn.records.append(record)
        turn.events.append(("task_state", turn.at, data, row.id, record.epoch, outcome.attempts or None))
        if type(outcome) is Succeeded:
            return Finished(position, "succeeded")
        ignored = isinstance(outcome, Failed | TimedOut) and outcome.ignored
        abandoned = isinstance(outcome, Cancelled | TimedOut) and outcome.abandoned
        return Finished(position, record.state, ignored, abandoned)

    def _record_blocked(self, turn: _Turn, run: TaskRun, outcome: Succeeded[Any]) -> Blocked:
        """A gate found something that blocks: back to pending, findings kept (PLAN-51)."""
        row = run.row
        record, data = self._ended_tasks.blocked(self._writer.next_seq, turn.at, row, outcome, run)
        turn.records.append(record)
        turn.events.append(("task_state", turn.at, data, row.id, record.epoch, outcome.attempts))
        return Blocked(run.position)

    def _settle(self, turn: _Turn, decision: Settle) -> None:
        row = self._tasks[decision.task]
        if row.state in FINAL_STATES:
            return
        if decision.state == "pending":
            record, data = self._ended_tasks.held(self._writer.next_seq(), turn.at, row, decision)
            turn.records.append(record)
            turn.events.append(("task_state", turn.at, data, row.id, None, None))
            return
        reason = Reason(code=decision.code, text=decision.text, blocked_by=decision.blocked_by)
        facts: dict[str, Any] = {"task_id": row.id, "finished_at": self._clock.now(), "reason": reason}
        outcome = self._ended_tasks.settled(decision.state, facts, ignored=decision.ignored)
        self._record_final(turn, decision.task, row, outcome, None)


class _Turn(msgspec.Struct):
    """What one turn makes durable, shows and starts."""

    at: str
    records: list[JournalRecord] = []
    events: list[Facts] = []
    """An event gets its number when it is emitted, in the order of the log."""
    starts: list[TaskRun] = []
    cancel: list[Cancel] = []
    expand: list[int] = []
    marked: list[asyncio.Future[None]] = []
