"""One task from its dispatch to its outcome, in one order for all modes (RUN-01, RUN-03)."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from towline.errors.run import ConditionError, EngineError
from towline.errors.state import ResultCorruptError
from towline.errors.values import ValueTravelError
from towline.execution.own_loop import leave_behind
from towline.execution.taskrun import ENDED, PREPARING, TaskRun
from towline.modules.context import Context, SyncContext
from towline.modules.current import current_attempt
from towline.modules.outcomes import Cancelled, Failed, Outcome, Reason, Skipped, Succeeded, TimedOut
from towline.serialization.exceptions import record_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.execution.abandoned import AbandonedBodies
    from towline.execution.attempts import Attempts
    from towline.execution.stopping import Stopper
    from towline.execution.surroundings import Surroundings


class Host(Protocol):
    """Who is told what became of an execution; called in the loop's thread."""

    def mark_running(self, run: TaskRun) -> Any:
        """Make the ``running`` transition durable; returns ``None`` or an awaitable."""
        ...

    def ended(self, run: TaskRun, outcome: Outcome[Any]) -> None:
        """Take the outcome; it comes exactly once for each execution."""
        ...

    def freed(self, run: TaskRun) -> None:
        """An abandoned body has ended at last."""
        ...


class Runner:
    """Runs executions and reports their outcomes to the host."""

    def __init__(
        self,
        *,
        host: Host,
        attempts: Attempts,
        stopper: Stopper,
        abandoned: AbandonedBodies,
        surroundings: Surroundings,
        hook_timeout_s: float,
        worker_id: str,
    ) -> None:
        self._host, self._attempts, self._stopper, self._abandoned = host, attempts, stopper, abandoned
        self._around, self._hook_timeout_s, self._worker_id = surroundings, hook_timeout_s, worker_id

    def start(self, run: TaskRun, loop: asyncio.AbstractEventLoop) -> None:
        """Begin an execution; its outcome goes to the host."""
        # Not by the loop's own factory: an eager one would run the body, and its end, inside the turn that starts it.
        run.asyncio_task = asyncio.Task(self._life(run), loop=loop, name=run.row.id)

    def stop(self, run: TaskRun, code: str) -> None:
        """Cancel an execution; ``code`` is the reason code of its outcome."""
        self._stopper.stop(run, code)

    def abandon(self, run: TaskRun) -> None:
        """Give up a coroutine body that ignored both requests to end (RUN-21)."""
        run.abandoned = True
        run.phase = ENDED
        run.attempt.ended = True
        self._abandoned.add(run)
        if run.asyncio_task is not None:
            leave_behind(run.asyncio_task)  # whoever runs the loop, ``asyncio.run`` in user code too, may end it
        self._host.ended(run, judged(run, self._attempts.outcome_of_abandoned(run)))

    async def _life(self, run: TaskRun) -> None:
        current_attempt.set(run.attempt)
        run.phase = PREPARING
        try:
            if run.stop is not None:
                raise asyncio.CancelledError  # it was stopped before its first turn
            if run.inputs is None:
                await self._around.load(run)
            if run.kind.is_plain:
                outcome = await self._attempts.once(run)
                if type(outcome) is not Succeeded:
                    outcome = await self._attempts.again(run, outcome)
            else:
                outcome = await self._surrounded(run)
        except asyncio.CancelledError:
            if run.stop is None:
                raise  # the loop is going down: nobody is left to be told
            outcome = self._cancelled(run)
        except ResultCorruptError as damage:
            outcome = self._failed(run, damage)  # the host ends the run: no task is to blame (PLAN-37)
        except Exception as fault:  # noqa: BLE001 - a fault around a body fails its task, not the run (RUN-58)
            outcome = self._fault(run, "running the task", fault)
        if run.phase is ENDED:
            self._free(run)
            return
        if type(outcome) is Succeeded and outcome.value is not None:
            outcome = self._encode(run, outcome)
        run.phase = ENDED
        run.attempt.ended = True
        if run.abandoned and run.body is not None:
            self._abandoned.add(run)
            run.body.done.add_done_callback(lambda _: self._free(run))
        self._host.ended(run, outcome if type(outcome) is Succeeded else judged(run, outcome))

    def _free(self, run: TaskRun) -> None:
        """A body that was given up has ended."""
        self._abandoned.ended(run)
        self._host.freed(run)

    # -------------------------------------------------------------- everything around the attempts

    async def _surrounded(self, run: TaskRun) -> Outcome[Any]:
        outcome: Outcome[Any] | None = await self._conditions(run)
        if outcome is not None:
            if isinstance(outcome, Skipped):
                await self._hook(run, "on_skipped", outcome)
                await self._hook(run, "after", outcome)
                return outcome
            outcome = judged(run, outcome)
            await self._hook(run, "on_failed", outcome)
            return outcome
        await self._around.restore_consumed(run)
        cached = await self.look_up(run)
        if cached is not None:
            return cached
        marked = self._host.mark_running(run)
        if marked is not None:
            await marked
        entered, outcome = True, None
        if "before" in run.kind.spec.hooks:
            error = await self._hook(run, "before")
            if error is not None:
                entered, run.error = False, error
                outcome = self._failed(run, error)
        if outcome is None:
            outcome = await self._attempts.run(run)
        if isinstance(outcome, Succeeded):
            outcome = await self._keep_artifacts(run, outcome)
        outcome = judged(run, outcome)
        if isinstance(outcome, Failed | TimedOut):
            await self._hook(run, "on_failed", outcome)
        if entered:
            await self._hook(run, "after", outcome)
        if isinstance(outcome, Succeeded):
            await self._around.save(run, outcome)
        return outcome

    async def look_up(self, run: TaskRun) -> Succeeded[Any] | None:
        """Take the outcome of a task from the cache; ``None``: its body has to run (CACHE-01, DIST-37)."""
        if run.inputs is None:
            await self._around.load(run)
        cached = await self._around.look_up(run)
        if cached is not None:
            await self._hook(run, "on_cached", cached)
        return cached

    async def _conditions(self, run: TaskRun) -> Skipped | Failed | None:
        """Ask the conditions that the plan could not decide (RUN-12, RUN-14)."""
        settings = run.kind.spec.settings
        if not settings.run_if and not settings.skip_if:
            return None
        facts = Context(run.attempt, self._around.doors)
        for wanted, conditions in ((True, settings.run_if), (False, settings.skip_if)):
            for condition in conditions:
                if not callable(condition):
                    continue  # decided when the plan was built (RUN-13)
                words = condition_words(condition)
                try:
                    answer = condition(facts)
                except Exception as error:  # noqa: BLE001 - named with its condition, as the task's failure
                    run.error = ConditionError(run.kind.spec.name, words, f"raised {type(error).__name__}: {error}")
                    run.error.__cause__ = error
                    return self._failed(run, run.error)
                if not isinstance(answer, bool):
                    run.error = ConditionError(run.kind.spec.name, words, f"returned {answer!r}, which is no bool")
                    return self._failed(run, run.error)
                if answer is not wanted:
                    text = f"{'run_if' if wanted else 'skip_if'} {words} is {str(answer).lower()}"
                    return Skipped(reason=Reason(code="condition", text=text), **self._facts(run))
        return None

    async def _keep_artifacts(self, run: TaskRun, outcome: Succeeded[Any]) -> Outcome[Any]:
        try:
            run.artifacts = await self._around.collect(run)
        except Exception as error:  # noqa: BLE001 - a failed upload fails the producer (ART-04)
            run.error = error
            return self._failed(run, error)
        return msgspec.structs.replace(outcome, artifacts=run.artifacts)

    async def _hook(self, run: TaskRun, name: str, outcome: Outcome[Any] | None = None) -> Exception | None:
        """Call a hook that the class overrides, once per task, bounded (RUN-04, RUN-05)."""
        hook = run.kind.spec.hooks.get(name)
        if hook is None:
            return None
        hook = partial(hook, inputs=run.inputs)
        arguments = () if outcome is None else (outcome,)
        try:
            async with asyncio.timeout(self._hook_timeout_s or None):
                if inspect.iscoroutinefunction(hook):
                    await hook(Context(run.attempt, self._around.doors), *arguments)
                else:
                    await self._around.in_thread(hook, SyncContext(run.attempt, self._around.doors), *arguments)
        except TimeoutError as error:
            error.add_note(f"the hook {name} of {run.kind.spec.name} was given {self._hook_timeout_s:g} s")
            self._around.log_hook_error(run, name, error)
            return error
        except Exception as error:  # noqa: BLE001 - only `before` fails the task; others are logged (RUN-05)
            self._around.log_hook_error(run, name, error)
            return error
        return None

    # -------------------------------------------------------------- outcomes

    def _encode(self, run: TaskRun, outcome: Succeeded[Any]) -> Outcome[Any]:
        """Encode the value for the result store; a value that must be encoded and cannot be fails the task (SER-15)."""
        codec = run.kind.codec
        if codec is None:
            return outcome
        try:
            run.payload = codec.encode(outcome.value, workdir=run.attempt.workdir)
        except ValueTravelError as error:
            named = error.for_module(run.kind.spec.name)
            named.__cause__ = error.__cause__
            return self._unstored(run, outcome, named)
        secret = self._around.secret_in(run)
        if secret is not None and self._around.secrets_fail:
            return self._failed(run, secret)
        return outcome

    def _unstored(self, run: TaskRun, outcome: Succeeded[Any], error: Exception) -> Outcome[Any]:
        """Say what an unstorable value means: a failure where values must travel, else a warning (SER-03, SER-09)."""
        if self._around.values_must_travel:
            run.error = error
            return self._failed(run, error)
        self._around.warn_not_stored(run, error)
        return outcome

    def _cancelled(self, run: TaskRun) -> Cancelled:
        return Cancelled(reason=Reason(code=run.stop or "stopped"), abandoned=run.abandoned, **self._facts(run))

    def _fault(self, run: TaskRun, doing: str, fault: Exception) -> Failed:
        error = EngineError(run.attempt.task_id, doing, f"{type(fault).__name__}: {fault}")
        error.__cause__ = fault
        run.error = error
        return self._failed(run, error)

    def _failed(self, run: TaskRun, error: BaseException) -> Failed:
        run.error = error
        return Failed(record_of(error, self._worker_id), reason=Reason(code="error"), **self._facts(run))

    def _facts(self, run: TaskRun) -> dict[str, Any]:
        return self._attempts.facts(run)


def judged(run: TaskRun, outcome: Outcome[Any]) -> Outcome[Any]:
    """Mark a failure that the module lets pass; a predicate that raises means that it does not (RUN-54)."""
    rule = run.kind.spec.settings.ignore_failure
    if rule is False or not isinstance(outcome, Failed | TimedOut) or outcome.ignored:
        return outcome
    if rule is not True:
        try:
            if not isinstance(run.error, Exception) or rule(run.error) is not True:
                return outcome
        except Exception:  # noqa: BLE001 - the failure itself is what must surface
            return outcome
    return msgspec.structs.replace(outcome, ignored=True)


def condition_words(condition: Callable[..., Any]) -> str:
    """Name a condition for people: its own name, or where a lambda stands."""
    name = getattr(condition, "__name__", type(condition).__name__)
    if name != "<lambda>":
        return str(name)
    code = getattr(condition, "__code__", None)
    return f"lambda at line {code.co_firstlineno}" if code is not None else "a callable"
