"""Errors of a run as a whole, and of what surrounds a body."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from towline.errors.root import TowlineError

if TYPE_CHECKING:
    from towline.execution.report import RunReport


class ConditionError(TowlineError):
    """A condition raised, or answered with something else than true or false (RUN-14)."""

    def __init__(self, module: str, condition: str, detail: str) -> None:
        super().__init__(module, condition, detail)
        self.module, self.condition, self.detail = module, condition, detail

    def __str__(self) -> str:
        return (
            f"the condition {self.condition} of {self.module} {self.detail}. It is never read as true or false: "
            f"make it return a bool for every state it can meet."
        )


class RequirementsError(TowlineError):
    """Checks of ``Options.require`` do not hold (RUN-11)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, unmet: tuple[str, ...]) -> None:
        super().__init__(unmet)
        self.unmet = unmet

    def __str__(self) -> str:
        listed = "; ".join(self.unmet)
        return f"{len(self.unmet)} of the checks in Options(require=...) are not met: {listed}. Nothing ran; provide them and start again."


class UnexpectedCancellationError(TowlineError):
    """A body raised ``CancelledError`` though nobody cancelled it (RUN-41)."""

    def __init__(self, module: str) -> None:
        super().__init__(module)
        self.module = module

    def __str__(self) -> str:
        return (
            f"the body of {self.module} raised CancelledError, but nothing cancelled it: "
            f"something that it awaited was cancelled from inside. Catch that where it is awaited."
        )


class AttemptEndedError(TowlineError):
    """A context was used after its attempt had ended, by a body that would not end (RUN-23)."""

    def __init__(self, task_id: str, attempt: int) -> None:
        super().__init__(task_id, attempt)
        self.task_id, self.attempt = task_id, attempt

    def __str__(self) -> str:
        return (
            f"attempt {self.attempt} of {self.task_id} has ended, so its context writes nothing any more. "
            f'The body goes on although it was given up: let it end, or use isolation="process".'
        )


class EngineError(TowlineError):
    """The engine or a store failed around one task; the body is not to blame (RUN-58)."""

    def __init__(self, task_id: str, doing: str, detail: str) -> None:
        super().__init__(task_id, doing, detail)
        self.task_id, self.doing, self.detail = task_id, doing, detail

    def __str__(self) -> str:
        return f"{self.task_id}: {self.doing} failed: {self.detail}. The body is not to blame; see the log of the task."


class RunActiveError(TowlineError):
    """The pipeline object is running already (RUN-09)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, pipeline: str) -> None:
        super().__init__(pipeline)
        self.pipeline = pipeline

    def __str__(self) -> str:
        return f"the pipeline {self.pipeline!r} is running already in this process. Wait for that run to end, or cancel it."


class RunningLoopError(TowlineError):
    """``run_sync()`` was called inside a running event loop (RUN-45)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, call: str) -> None:
        super().__init__(call)
        self.call = call

    def __str__(self) -> str:
        return f"{self.call} was called inside a running event loop, which it would block. Write `await pipeline.run()` there."


class RunRefusedError(TowlineError):
    """An observer's ``run_started`` refused the run (RUN-08)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, observer: str, detail: str) -> None:
        super().__init__(observer, detail)
        self.observer, self.detail = observer, detail

    def __str__(self) -> str:
        return f"the observer {self.observer} refused the run: {self.detail}. Nothing ran."


class BackendContractError(TowlineError):
    """An execution back end broke its contract (DIST-81, DIST-82, DIST-86)."""

    def __init__(self, detail: str, tasks: tuple[str, ...]) -> None:
        super().__init__(detail, tasks)
        self.detail, self.tasks = detail, tasks

    def __str__(self) -> str:
        return f"the execution back end {self.detail}: {', '.join(self.tasks)}. Repair the back end."


class _EndedError(TowlineError):
    """A run ended other than well; carries its report."""

    def __init__(self, report: RunReport) -> None:
        super().__init__(report)
        self.report = report


class PipelineFailedError(_EndedError):
    """At least one task failed (RUN-53). ``report.failures`` has the root first; its exception is ``__cause__``."""

    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        report = self.report
        root = report.failures[0] if report.failures else None
        what = f"{root.task}: {root.error_type}: {root.text}" if root else "no task is to blame"
        counts = ", ".join(f"{count} {state}" for state, count in report.counts.items() if count)
        return f"{report.pipeline} failed: {what} ({counts}). Repair the cause and resume; the report is in {report.path or 'memory'}."


class PipelineBlockedError(_EndedError):
    """A gate recorded a blocking finding: an operator must act, then resume (RUN-59)."""

    exit_code: ClassVar[int] = 3

    def __str__(self) -> str:
        report = self.report
        gates = ", ".join(task.id for task in report.tasks if task.reason == "blocked" and task.gate)
        return f"{report.pipeline} is blocked at {gates}: look at the findings, act, and run again with --resume."


class PipelineCancelledError(_EndedError):
    """A signal or an operator stopped the run; a resume goes on from there."""

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """130 or 143 for a signal, 130 for an operator."""
        return self.report.exit_code

    def __str__(self) -> str:
        return f"{self.report.pipeline} was cancelled. What is done stays done: run again with --resume to go on."
