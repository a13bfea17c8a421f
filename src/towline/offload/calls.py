"""One kernel call and one execution of a graph, as the runtime holds them while they are not final."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from towline.offload.records import CallId, CallNumber, CallOutcome, Decline, OutcomeState, WorkerId

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.offload.buffers import Buffer
    from towline.offload.kernels import KernelFunction


class Phase(IntEnum):
    """Where a call stands (section 5). From ``SUCCEEDED`` on it is final."""

    WAITING = 0
    READY = 1
    SENT = 2
    ACCEPTED = 3
    RUNNING = 4
    FETCHING = 5
    LOCAL_QUEUED = 6
    LOCAL_RUNNING = 7
    SUCCEEDED = 8
    FAILED = 9
    CANCELLED = 10


REMOTE_PHASES = (Phase.SENT, Phase.ACCEPTED, Phase.RUNNING, Phase.FETCHING)


class Call:
    """One call of one execution: what was declared, and how far it has come."""

    __slots__ = (
        "after_failure", "attempts", "attempts_on", "bytes_in", "bytes_out", "caused_by", "crashes", "decline", "dispatched_at",
        "done_at", "error", "expected_s", "failed_on", "fence", "function", "host", "index", "kernel_name", "kernel_s", "name",
        "number", "output_bytes", "params", "path_s", "payload_bytes", "phase", "pinned_local", "place", "priority",
        "ran_on", "reads", "ready_at", "reserved", "result_deadline_s", "run", "session", "shipped", "started_at", "successors",
        "time_limit_s", "touched_at", "waiting_for", "writes",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        function: KernelFunction[...] | None,
        kernel_name: str,
        reads: tuple[Buffer, ...],
        writes: tuple[Buffer, ...],
        params: dict[str, Any],
        host: Callable[..., None] | None,
        name: str | None,
        priority: int,
        place: str,
        time_limit_s: float | None,
        result_deadline_s: float | None = None,
    ) -> None:
        self.index = index
        self.function = function
        self.kernel_name = kernel_name
        self.reads, self.writes, self.params = reads, writes, params
        self.host, self.name, self.priority, self.place = host, name, priority, place
        self.time_limit_s = time_limit_s
        self.result_deadline_s = result_deadline_s
        self.number = 0
        self.run: GraphRun = None  # type: ignore[assignment]  # set when the call is submitted
        self.phase = Phase.WAITING
        self.waiting_for = 0
        self.successors: list[tuple[Call, bool]] = []
        self.fence = 0
        self.attempts = 0
        self.attempts_on: list[WorkerId] = []
        self.crashes = 0
        self.session = 0
        self.ran_on: WorkerId | None = None
        self.failed_on: set[WorkerId] = set()
        self.pinned_local = False
        self.shipped = False
        self.decline: Decline | None = None
        self.reserved: tuple[int, ...] = ()
        self.error: Exception | None = None
        self.caused_by: Call | None = None
        self.after_failure = False
        self.payload_bytes = self.output_bytes = 0
        self.bytes_out = self.bytes_in = 0
        self.expected_s = self.path_s = 0.0
        self.ready_at = self.dispatched_at = self.touched_at = self.started_at = self.done_at = 0.0
        self.kernel_s = 0.0

    @property
    def is_final(self) -> bool:
        """Whether nothing can change it any more."""
        return self.phase >= Phase.SUCCEEDED

    def label(self) -> str:
        """Name it for people."""
        return self.name or f"{self.kernel_name}#{self.index}"

    def outcome(self) -> CallOutcome:
        """Say how it ended."""
        return CallOutcome(
            id=CallId(self.index), number=CallNumber(self.number), state=self._state(), kernel=self.kernel_name,
            ran_on=self.ran_on if self.ran_on is not None else "local", attempts=self.attempts,
            queued_s=max(self.started_at - self.ready_at, 0.0), kernel_s=self.kernel_s,
            transfer_s=max(self.done_at - self.dispatched_at - self.kernel_s, 0.0) if self.ran_on is not None else 0.0,
            bytes_out=self.bytes_out, bytes_in=self.bytes_in, decline=self.decline if self.ran_on is None else None,
            skipped_because=self.caused_by.label() if self.caused_by is not None else None,
        )  # fmt: skip

    def _state(self) -> OutcomeState:
        from towline.errors.offload import KernelTimeoutError

        if self.phase is Phase.SUCCEEDED:
            return "succeeded"
        if self.phase is Phase.FAILED:
            return "timed_out" if isinstance(self.error, KernelTimeoutError) else "failed"
        return "skipped" if self.caused_by is not None else "cancelled"


class GraphRun:
    """One execution of one graph. ``on_end`` is called once, when its last call is final."""

    __slots__ = (
        "calls",
        "failed",
        "keep_going",
        "name",
        "on_end",
        "redispatched",
        "started_at",
        "stopped",
        "unfinished",
    )

    def __init__(self, name: str, calls: list[Call], *, keep_going: bool, on_end: Callable[[GraphRun], None]) -> None:
        self.name = name
        self.calls = calls
        self.keep_going = keep_going
        self.on_end = on_end
        self.unfinished = len(calls)
        self.failed: list[Call] = []
        self.stopped = False
        self.redispatched = 0
        self.started_at = 0.0
