"""A call as one worker holds it (section 5, Job). Pure."""

from __future__ import annotations

import heapq
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from towline.offload.cancellation import CancelFlag

if TYPE_CHECKING:
    from towline.offload.cache import Key
    from towline.offload.kernels import KernelFunction
    from towline.offload.messages import CallMessage, ErrorReport
    from towline.offload.pieces import ArrayPlan, Piece


COMPACT_AT = 1_024
"""Entries of one master at which those that are not waiting any more are removed."""


class Stage(IntEnum):
    """Where a job stands; the first three are what a heartbeat tells."""

    QUEUED = 0
    PULLING = 1
    RUNNING = 2
    UNACKED = 3
    DROPPED = 4


class Job:
    """One (call, fence) of one session."""

    __slots__ = (
        "call", "cancel", "error", "fence", "function", "inputs", "kernel_s", "keys", "link", "message", "outputs", "pulled",
        "reads", "sent_at", "shared", "stage", "started_at", "status", "transfers_out", "wanted", "writes",
    )  # fmt: skip

    def __init__(
        self,
        link: int,
        message: CallMessage,
        function: KernelFunction[...] | None,
        reads: list[ArrayPlan],
        writes: list[ArrayPlan],
    ) -> None:
        self.link, self.message, self.function = link, message, function
        self.call, self.fence = message.call, message.fence
        self.reads, self.writes = reads, writes
        self.stage = Stage.PULLING
        self.inputs: list[Piece | None] = [None] * len(reads)
        self.outputs: list[Piece] = []
        self.keys: list[Key] = []
        self.wanted = 0
        self.shared = any(plan.ref.segment is not None for plan in (*reads, *writes))
        self.cancel = CancelFlag()
        self.error: ErrorReport | None = None
        self.status = "ok"
        self.kernel_s = 0.0
        self.started_at = 0.0
        self.sent_at: float | None = None
        self.pulled = 0
        self.transfers_out: list[int] = []

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the call."""
        return self.message.params

    @property
    def kept_bytes(self) -> int:
        """Bytes of the result that wait for an acknowledgement."""
        return sum(piece.nbytes for piece in self.outputs) if self.stage is Stage.UNACKED else 0

    def same_work(self, message: CallMessage) -> bool:
        """Say whether a later dispatch asks for what this one computes (OFF-612)."""
        mine = self.message
        return (
            mine.kid == message.kid and mine.params == message.params and mine.reads == message.reads
            and [(r.buffer_id, r.dtype, r.shape) for r in mine.writes] == [(r.buffer_id, r.dtype, r.shape) for r in message.writes]
        )  # fmt: skip


class WaitingJobs:
    """Jobs that have their inputs and wait for a slot: by turns between masters, then by priority, then by fence (OFF-904).

    A job that was dropped or failed meanwhile is passed by when its turn comes.
    """

    def __init__(self) -> None:
        self._heaps: dict[int, list[tuple[int, int, int, Job]]] = {}
        self._count = 0
        self._last_link = -1

    def put(self, job: Job) -> None:
        """Let a job wait."""
        heap = self._heaps.setdefault(job.link, [])
        if len(heap) >= COMPACT_AT:
            heap[:] = [entry for entry in heap if entry[3].stage is Stage.QUEUED]
            heapq.heapify(heap)
        self._count += 1
        heapq.heappush(heap, (-job.message.priority, job.fence, self._count, job))

    def take(self) -> Job | None:
        """Take the job that runs next, or None."""
        while self._heaps:
            link = min((number for number in self._heaps if number > self._last_link), default=min(self._heaps))
            heap = self._heaps[link]
            while heap:
                job = heapq.heappop(heap)[3]
                if job.stage is Stage.QUEUED:
                    self._last_link = link
                    return job
            del self._heaps[link]
        return None
