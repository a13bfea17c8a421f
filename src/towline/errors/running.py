"""Errors of running bodies: time, threads and processes that do not end, and a scheduler that cannot go on."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from towline.errors.root import TowlineError

HowEnded: TypeAlias = Literal["abandoned", "killed", "cancelled"]

_SHOWN: Final = 20


class ModuleTimeoutError(TowlineError):
    """A body did not end within its time (RUN-21, RUN-22).

    ``how`` it came to its end: ``cancelled``, ``killed`` (a child process) or ``abandoned`` (it still runs).
    ``frame``: where an abandoned body was last seen, empty if unknown.
    """

    def __init__(self, module: str, timeout_s: float, attempt: int, how: HowEnded, frame: str = "") -> None:
        super().__init__(module, timeout_s, attempt, how, frame)
        self.module, self.timeout_s, self.attempt, self.how, self.frame = module, timeout_s, attempt, how, frame

    def __str__(self) -> str:
        start = f"{self.module} did not end within {self.timeout_s:g} s (attempt {self.attempt})"
        if self.how == "abandoned":
            seen = f", last seen at {self.frame}" if self.frame else ""
            return (
                f"{start} and ignored its end: it was abandoned and still runs{seen}. "
                f'Use isolation="process", which can be killed, or raise timeout=.'
            )
        if self.how == "killed":
            return (
                f"{start}; its process was killed with everything that it started. Raise timeout= if it needs longer."
            )
        return f"{start} and was cancelled. Raise timeout= if it needs longer."


class TooManyAbandonedError(TowlineError):
    """Abandoned bodies have reached the limit of this node, which starts no thread body any more (RUN-25).

    ``bodies``: task and place where each was last seen.
    """

    def __init__(self, limit: int, bodies: tuple[tuple[str, str], ...]) -> None:
        super().__init__(limit, bodies)
        self.limit, self.bodies = limit, tuple((task, frame) for task, frame in bodies)

    def __str__(self) -> str:
        seen = "; ".join(f"{task} at {frame}" if frame else task for task, frame in self.bodies)
        return (
            f"{len(self.bodies)} bodies ignored their end and still run, the limit is {self.limit}: {seen}. "
            f'Use isolation="process" for them, or raise max_abandoned.'
        )


class NotAwaitedError(TowlineError):
    """A body has ended without awaiting a call of its context, which therefore never ran.

    ``calls``: as they are written, for example ``ctx.step('count')``.
    """

    def __init__(self, module: str, calls: tuple[str, ...]) -> None:
        super().__init__(module, calls)
        self.module, self.calls = module, tuple(calls)

    def __str__(self) -> str:
        listed = ", ".join(self.calls[:_SHOWN])
        return f"the body of {self.module} never awaited {listed}, so it did not run. Write: await {self.calls[0]}."


class ProcessDiedError(TowlineError):
    """The child process of a body ended without a result (RUN-35).

    ``how``: exit code or signal in words; ``stderr_tail``: the last 4 KiB of what it wrote there.
    """

    def __init__(self, module: str, how: str, stderr_tail: str = "") -> None:
        super().__init__(module, how, stderr_tail)
        self.module, self.how, self.stderr_tail = module, how, stderr_tail

    def __str__(self) -> str:
        tail = f" Its last words:\n{self.stderr_tail}" if self.stderr_tail else ""
        return (
            f"the process of {self.module} ended without a result: {self.how}. "
            f"Look at its memory use and at the C code that it calls.{tail}"
        )


class SchedulerStuckError(TowlineError):
    """Tasks are pending, nothing runs and nothing may start (SCHED-17).

    ``tasks``: up to 20 task ids with what each waits for.
    """

    def __init__(self, tasks: tuple[tuple[str, str], ...]) -> None:
        super().__init__(tasks)
        self.tasks = tuple((task, wait) for task, wait in tasks)

    def __str__(self) -> str:
        waits = "; ".join(f"{task} {wait}" for task, wait in self.tasks[:_SHOWN])
        return (
            f"the run cannot go on, though these tasks are pending: {waits}. "
            f"Outcomes so far are kept. This is a fault of Towline: report it with the plan."
        )
