"""One execution of one task on this node, and what its module is like."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures
    from collections.abc import Callable

    from towline.artifacts.records import ArtifactRef
    from towline.execution.deadlines import Deadline
    from towline.modules.doors import Attempt
    from towline.modules.outcomes import Finding
    from towline.modules.retry import Retry
    from towline.modules.spec import ModuleSpec
    from towline.planning.records import PlannedTask
    from towline.serialization.codec import Codec


class Place(Enum):
    """Where a body runs."""

    LOOP = auto()
    THREAD = auto()
    PROCESS = auto()


class Phase(Enum):
    """How far an execution has come; a stop acts differently in each."""

    PREPARING = auto()
    BODY = auto()
    BACKING_OFF = auto()
    SETTLING = auto()
    """Artifacts, encoding, hooks: not interrupted, bounded by their own limits (RUN-20)."""
    ENDED = auto()


class ModuleKind:
    """One module as the runner needs it, worked out once per run.

    ``is_plain``: no condition, hook, artifact or cache surrounds the body, so that its execution is one
    attempt loop and nothing else.
    """

    __slots__ = ("codec", "is_plain", "place", "retry", "spec", "store_value", "timeout_s")

    def __init__(
        self, spec: ModuleSpec, *, timeout_s: float, retry: Retry, place: Place, codec: Codec | None, store_value: bool
    ) -> None:
        settings = spec.settings
        self.spec, self.timeout_s, self.retry, self.place = spec, timeout_s, retry, place
        self.codec, self.store_value = codec, store_value
        self.is_plain = not (
            settings.run_if
            or settings.skip_if
            or settings.produces
            or settings.consumes
            or settings.cache
            or spec.hooks
        )


class TaskRun:
    """One execution: its facts, how far it is, and who asked it to stop.

    ``stop`` is ``None``, ``"timeout"`` or the reason code of a cancellation, which outranks a timeout
    (RUN-20). ``tries`` counts attempts of this execution, ``first_attempt`` those before it.
    """

    __slots__ = (
        "abandoned",
        "artifacts",
        "asyncio_task",
        "attempt",
        "body",
        "commands",
        "cursors",
        "deadline",
        "error",
        "finding_keys",
        "findings",
        "findings_dropped",
        "first_attempt",
        "in_flight",
        "inputs",
        "is_marked",
        "kind",
        "on_stop",
        "payload",
        "phase",
        "position",
        "progress_due_at",
        "row",
        "saved_at",
        "started_at",
        "steps",
        "stop",
        "stopping",
        "tries",
    )

    def __init__(self, position: int, row: PlannedTask, kind: ModuleKind, attempt: Attempt, inputs: dict[str, Any] | None) -> None:
        self.position, self.row, self.kind, self.attempt, self.inputs = position, row, kind, attempt, inputs
        self.first_attempt = row.attempts
        self.tries = 0
        self.phase = Phase.PREPARING
        self.stop: str | None = None
        self.stopping = False
        self.abandoned = False
        self.is_marked = False
        """Its ``running`` record is durable."""
        self.error: BaseException | None = None
        self.payload: bytes | None = None
        self.started_at: float | None = None
        self.asyncio_task: asyncio.Task[None] | None = None
        self.deadline: Deadline | None = None
        self.on_stop: Callable[[], None] | None = None
        """How to end a body that is no coroutine of the loop: a thread's or a child process's."""
        self.body: Any = None
        self.findings: list[Finding] = []
        self.artifacts: tuple[ArtifactRef, ...] = ()
        self.finding_keys: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
        self.findings_dropped = 0
        self.progress_due_at = 0.0
        self.commands = 0
        self.cursors: list[Any] = []
        """Cursors that the attempt under way has opened; they are stored and closed when its body ends (CUR-09)."""
        self.steps: Any = None
        self.saved_at: str | None = None
        """The last durable cursor write that the plan knows of."""
        self.in_flight: set[concurrent.futures.Future[Any]] = set()
        """Calls of a sync body's context that run on the loop; a stop cancels them."""

    def ask_to_stop(self, why: str) -> bool:
        """Note the wish; says whether the end has to be brought about now.

        A second wish only changes the reason, and only from a timeout to a cancellation.
        """
        if self.phase in (Phase.SETTLING, Phase.ENDED):
            return False
        if self.stop is None or (self.stop == "timeout" and why != "timeout"):
            self.stop = why
        if self.stopping:
            return False
        self.stopping = True
        self.attempt.cancelled = True
        return True
