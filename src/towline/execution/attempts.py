"""Trying a body: once or more, in the loop, in a thread or in a child process (RUN-16 to 25, 40, 41, 62)."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from towline.errors.coordination import LeaseLostError
from towline.errors.declaration import DeclarationError, UndeclaredDependencyError
from towline.errors.run import UnexpectedCancellationError
from towline.errors.running import HowEnded, ModuleTimeoutError, NotAwaitedError, TooManyAbandonedError
from towline.errors.values import ResultTypeError
from towline.execution.taskrun import BACKING_OFF, BODY, LOOP, SETTLING, THREAD, Place
from towline.modules.awaiting import refuse_unawaited, take_unawaited
from towline.modules.context import Context, SyncContext
from towline.modules.outcomes import Cancelled, Failed, Outcome, Reason, Skipped, Succeeded, TimedOut
from towline.modules.retry import Skip
from towline.serialization.exceptions import record_of
from towline.serialization.plain import check_value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from towline.clock import Clock
    from towline.execution.abandoned import AbandonedBodies
    from towline.execution.isolation import ProcessBodies
    from towline.execution.stopping import Stopper
    from towline.execution.taskrun import TaskRun
    from towline.execution.threads import ThreadPool
    from towline.modules.doors import Doors

NEVER_RETRIED = (
    LeaseLostError,
    DeclarationError,
    ResultTypeError,
    UndeclaredDependencyError,
    TooManyAbandonedError,
    NotAwaitedError,
)
"""Trying again cannot help, or must not happen (RUN-18)."""


class Attempts:
    """Runs the body of an execution until an attempt succeeds, the retries are used up, or it is stopped."""

    def __init__(
        self,
        *,
        doors: Doors,
        stopper: Stopper,
        threads: ThreadPool,
        processes: ProcessBodies | None,
        abandoned: AbandonedBodies,
        clock: Clock,
        random: Random,
        worker_id: str,
        on_retry: Any,
    ) -> None:
        self._doors, self._stopper, self._threads, self._processes = doors, stopper, threads, processes
        self._abandoned, self._clock, self._random, self._worker_id = abandoned, clock, random, worker_id
        self._on_retry = on_retry

    async def run(self, run: TaskRun) -> Outcome[Any]:
        """Give the outcome of the body; its error is also kept on ``run.error``."""
        outcome = await self.once(run)
        return outcome if type(outcome) is Succeeded else await self.again(run, outcome)

    async def again(self, run: TaskRun, outcome: Outcome[Any]) -> Outcome[Any]:
        """Retry after an attempt that was no success, as often as the module wants."""
        earlier: list[BaseException] = []
        while self._may_retry(run, outcome):
            assert run.error is not None
            earlier.append(run.error)
            pause_s = run.kind.retry.delay_s(run.tries, self._random)
            self._on_retry(run, outcome, pause_s)
            if not await self._back_off(run, pause_s):
                outcome = self._stopped(run)
                break
            run.attempt.ended = True
            run.attempt = msgspec.structs.replace(run.attempt, ended=False, cancelled=False, unawaited=None)
            outcome = await self.once(run)
        return _with_notes(outcome, earlier)

    async def _close_opened(self, run: TaskRun, outcome: Outcome[Any]) -> Outcome[Any]:
        """Store where the cursors of the body are, and end its offload; a success whose position is lost is none (CUR-09)."""
        opened, run.cursors = run.cursors, ()
        if run.offload is not None:
            opened, run.offload = (*opened, run.offload), None
        for one in opened:
            try:
                await one.close()
            except Exception as error:  # noqa: BLE001 - the outcome of the task, unless it has failed already
                if isinstance(outcome, Succeeded):
                    outcome = self._failed(run, error)
        return outcome

    def _may_retry(self, run: TaskRun, outcome: Outcome[Any]) -> bool:
        retry = run.kind.retry
        if run.tries > retry.count or run.abandoned or not isinstance(outcome, Failed | TimedOut):
            return False
        error = run.error
        if not isinstance(error, Exception) or isinstance(error, NEVER_RETRIED):
            return False
        if run.stop is not None and run.stop != "timeout":
            return False
        return retry.wants(error)

    async def _back_off(self, run: TaskRun, pause_s: float) -> bool:
        """Wait between two attempts; false when the execution was cancelled meanwhile."""
        run.phase = BACKING_OFF
        run.stop, run.stopping = run.stop_later, False
        if run.stop is not None:
            return False
        try:
            await asyncio.sleep(pause_s)
        except asyncio.CancelledError:
            if run.stop is None:
                raise
            _uncancel()
            return False
        return run.stop is None

    # -------------------------------------------------------------- one attempt

    async def once(self, run: TaskRun) -> Outcome[Any]:
        """Try the body once, and close what it opened.

        The hot path of a run, so the body is awaited right here: each coroutine in between costs 0.5 µs.
        """
        run.tries += 1
        run.attempt.attempt = run.first_attempt + run.tries
        if run.stop is not None:
            return self._stopped(run)
        kind = run.kind
        run.phase = BODY
        if run.error is not None:
            run.error = None
        if run.started_at is None:
            run.started_at = self._clock.now()
        if kind.timeout_s:
            self._stopper.arm_timeout(run)
        try:
            if kind.place is LOOP:
                attempt = run.attempt
                value = await kind.spec.call(Context(attempt, self._doors), run.inputs or {}, attempt.item)
            elif kind.place is THREAD:
                value = await self._in_thread(run)
            else:
                assert self._processes is not None  # a plan with isolated bodies and no target was refused (MOD-27)
                value = await self._processes.run(run)
        except GeneratorExit:
            raise  # an abandoned body is destroyed with its loop: nobody is left to be told
        except BaseException as error:  # noqa: BLE001 - whatever a body raises becomes its outcome
            outcome = self._raised(run, error)
        else:
            outcome = self._returned(run, value) if run.stop is None else self._raised(run, asyncio.CancelledError())
        finally:
            self._stopper.disarm(run)
            if run.on_stop is not None:
                run.on_stop = None
            if run.phase is BODY:
                run.phase = SETTLING
        if run.cursors or run.offload is not None:
            outcome = await self._close_opened(run, outcome)
        return outcome

    async def _in_thread(self, run: TaskRun) -> Any:
        """Run a sync body in a thread; a stop that the thread ignores abandons it (RUN-22)."""
        self._abandoned.refuse_thread()
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        call = partial(run.kind.spec.call, SyncContext(run.attempt, self._doors), run.given, run.attempt.item)
        body = self._threads.start(call, context)
        ended: asyncio.Future[None] = loop.create_future()
        run.body = body

        def settle(_: object = None) -> None:
            if not ended.done():
                ended.set_result(None)

        run.on_stop = lambda: self._stopper.arm_grace(run, settle)
        body.done.add_done_callback(settle)
        await ended
        if not body.done.done():
            run.abandoned = True
            raise asyncio.CancelledError
        return body.done.result()

    def _returned(self, run: TaskRun, value: Any) -> Outcome[Any]:
        kind = run.kind
        try:
            if value is not None and (inspect.isawaitable(value) or inspect.isgenerator(value)):
                raise ResultTypeError(
                    kind.spec.name, "a value", type(value).__name__, "value", "await it, or return a list"
                )
            if run.attempt.unawaited:
                refuse_unawaited(run.attempt)
            check_value(kind.spec.result_type, value, kind.spec.name)
        except Exception as error:  # noqa: BLE001 - a wrong value is the outcome of its task
            return self._failed(run, error)
        attempt = run.attempt
        return Succeeded(  # spelled out, for it is the commonest outcome by far: otherwise `facts`
            value,
            task_id=attempt.task_id,
            started_at=run.started_at,
            finished_at=self._clock.now(),
            attempts=attempt.attempt,
            epoch=attempt.epoch,
            worker_id=attempt.worker_id,
            findings=tuple(run.findings),
        )

    def _raised(self, run: TaskRun, error: BaseException) -> Outcome[Any]:
        if run.stop is not None:
            _uncancel()
            if isinstance(error, asyncio.CancelledError) or run.stop != "timeout" or _only_cancellations(error):
                return self._stopped(run)
            return self._timed_out(run)
        if isinstance(error, Skip):
            return Skipped(reason=Reason(code="module_skipped", text=str(error)), **self.facts(run))
        if isinstance(error, asyncio.CancelledError):
            error = UnexpectedCancellationError(run.kind.spec.name)
        elif isinstance(error, KeyboardInterrupt) or _holds_interrupt(error):
            run.error = error
            return Cancelled(reason=Reason(code="interrupted", text="KeyboardInterrupt in the body"), **self.facts(run))
        elif run.attempt.unawaited:
            error.add_note(f"{', '.join(take_unawaited(run.attempt))} was called without await")
        return self._failed(run, error)

    # -------------------------------------------------------------- outcomes

    def _stopped(self, run: TaskRun) -> Outcome[Any]:
        if run.stop == "timeout":
            return self._timed_out(run)
        return Cancelled(reason=Reason(code=run.stop or "stopped"), abandoned=run.abandoned, **self.facts(run))

    def _timed_out(self, run: TaskRun) -> TimedOut:
        frame = run.body.top_frame() if run.abandoned and run.body is not None else ""
        kind = run.kind
        error = ModuleTimeoutError(
            kind.spec.name, kind.timeout_s, run.attempt.attempt, how_it_ended(run, kind.place), frame
        )
        run.error = error
        record = record_of(error, self._worker_id)
        return TimedOut(
            record, abandoned=run.abandoned, reason=Reason(code="timeout", text=str(error)), **self.facts(run)
        )

    def _failed(self, run: TaskRun, error: BaseException) -> Failed:
        run.error = error
        record = record_of(error, self._worker_id)
        return Failed(record, reason=Reason(code="error"), **self.facts(run))

    def outcome_of_abandoned(self, run: TaskRun) -> Outcome[Any]:
        """Give the outcome of a coroutine body that would not end."""
        return self._stopped(run)

    def facts(self, run: TaskRun) -> dict[str, Any]:
        """The fields that every outcome of this execution shares."""
        attempt = run.attempt
        return {
            "task_id": attempt.task_id,
            "started_at": run.started_at,
            "finished_at": self._clock.now(),
            "attempts": attempt.attempt,
            "epoch": attempt.epoch,
            "worker_id": attempt.worker_id,
            "findings": tuple(run.findings),
        }


def how_it_ended(run: TaskRun, place: Place) -> HowEnded:
    """Say in one word how a timed out body came to its end."""
    if run.abandoned:
        return "abandoned"
    return "killed" if place is Place.PROCESS else "cancelled"


def _with_notes(outcome: Outcome[Any], earlier: list[BaseException]) -> Outcome[Any]:
    """Keep the errors of earlier attempts as notes of the last one (RUN-19)."""
    if not earlier or not isinstance(outcome, Failed | TimedOut):
        return outcome
    notes = tuple(f"attempt {number}: {type(error).__name__}: {error}" for number, error in enumerate(earlier, 1))
    return msgspec.structs.replace(
        outcome, error=msgspec.structs.replace(outcome.error, notes=outcome.error.notes + notes)
    )


def _uncancel() -> None:
    """Take back the requests that the engine made, so that settling may await (RUN-21)."""
    task = asyncio.current_task()
    if task is not None:
        while task.uncancel() > 0:
            pass


def _only_cancellations(error: BaseException) -> bool:
    return all(isinstance(member, asyncio.CancelledError) for member in _members(error))


def _holds_interrupt(error: BaseException) -> bool:
    return any(isinstance(member, KeyboardInterrupt) for member in _members(error))


def _members(error: BaseException) -> Iterator[BaseException]:
    """Give the errors in a group, or the one that it is; groups may lie in groups to any depth."""
    todo = [error]
    while todo:
        one = todo.pop()
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
        else:
            yield one
