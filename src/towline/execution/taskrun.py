"""One execution of one task on this node, and what its module is like."""

# ruff: noqa: TC004 - the record is never decoded, so its annotations need no import at start-up.

from __future__ import annotations

from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures
    from collections.abc import Callable

    from towline.artifacts.records import ArtifactRef
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

    STARTING = auto()
    """Its asyncio task has not had its first turn: a cancel would end it before it could report."""
    PREPARING = auto()
    BODY = auto()
    BACKING_OFF = auto()
    SETTLING = auto()
    """Artifacts, encoding, hooks: not interrupted, bounded by their own limits (RUN-20)."""
    ENDED = auto()


# A member of an enum costs 0.15 µs where it is looked up on its class (Python 3.11), a name of a module a tenth.
LOOP, THREAD, PROCESS = Place.LOOP, Place.THREAD, Place.PROCESS
PREPARING, BODY, BACKING_OFF, SETTLING, ENDED = (
    Phase.PREPARING,
    Phase.BODY,
    Phase.BACKING_OFF,
    Phase.SETTLING,
    Phase.ENDED,
)


class ModuleKind(msgspec.Struct, gc=False):
    """One module as the runner needs it, worked out once per run.

    ``is_plain``: no condition, hook, artifact or cache surrounds the body, so that its execution is one
    attempt loop and nothing else. ``codec`` is ``None`` where there is no value to encode.
    """

    spec: ModuleSpec
    timeout_s: float
    retry: Retry
    place: Place
    codec: Codec | None
    is_plain: bool


class TaskRun(msgspec.Struct, eq=False, dict=True):
    """One execution: its facts, how far it is, and who asked it to stop.

    ``inputs`` is ``None`` while one of them has to be read from the store. ``stop`` is ``None``, ``"timeout"`` or the
    reason code of a cancellation, which outranks a timeout (RUN-20). ``tries`` counts attempts of this execution,
    ``first_attempt`` those before it.
    """

    position: int
    row: PlannedTask
    kind: ModuleKind
    attempt: Attempt
    inputs: dict[str, Any] | None
    first_attempt: int
    phase: Phase = Phase.STARTING
    stop: str | None = None
    stopping: bool = False
    stop_later: str | None = None
    """A stop that came while an attempt settled: no further attempt follows."""
    abandoned: bool = False
    is_marked: bool = False
    """Its ``running`` record is durable."""
    tries: int = 0
    error: BaseException | None = None
    payload: bytes | None = None
    started_at: float | None = None
    asyncio_task: asyncio.Task[None] | None = None
    on_stop: Callable[[], None] | None = None
    """How to end a body that is no coroutine of the loop: a thread's or a child process's."""
    body: Any = None
    artifacts: tuple[ArtifactRef, ...] = ()
    findings: list[Finding] | tuple[()] = ()
    findings_dropped: int = 0
    cursors: tuple[Any, ...] = ()
    """Cursors that the attempt under way has opened; they are stored and closed when its body ends (CUR-09)."""
    offload: Any = None
    """What ``ctx.offload`` of the attempt under way has opened; it is closed when its body ends (OFF-901)."""
    progress_due_at: float = 0.0
    commands: int = 0
    steps: Any = None
    saved_at: float | None = None
    """The last durable cursor write that the plan knows of."""

    @property
    def given(self) -> dict[str, Any]:
        """The inputs, once they are loaded."""
        assert self.inputs is not None
        return self.inputs

    def found(self, finding: Finding) -> None:
        """Keep a finding of the body."""
        if not self.findings:
            self.findings = []
        self.findings.append(finding)

    @cached_property
    def finding_keys(self) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        """What was found already: a finding counts once per code and evidence (RUN-60)."""
        return set()

    @cached_property
    def in_flight(self) -> set[concurrent.futures.Future[Any]]:
        """Calls of a sync body's context that run on the loop; a stop cancels them."""
        return set()

    def ask_to_stop(self, why: str) -> bool:
        """Note the wish; says whether the end has to be brought about now.

        A second wish only changes the reason, and only from a timeout to a cancellation.
        """
        if self.phase in (SETTLING, ENDED):
            self.stop_later = why
            return False
        if self.stop is None or (self.stop == "timeout" and why != "timeout"):
            self.stop = why
        if self.stopping:
            return False
        self.stopping = True
        self.attempt.cancelled = True
        return True
