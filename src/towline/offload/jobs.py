"""A call as one worker holds it (section 5, Job). Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from towline.offload.cancellation import CancelFlag

if TYPE_CHECKING:
    from towline.offload.cache import Key
    from towline.offload.kernels import KernelFunction
    from towline.offload.messages import CallMessage, ErrorReport
    from towline.offload.pieces import ArrayPlan, Piece


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
