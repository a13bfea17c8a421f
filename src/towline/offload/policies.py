"""Where a call goes: least loaded, or only if that is faster than here (OFF-405, OFF-407, OFF-410). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from towline.offload.records import CallView, Decline, LocalView, WorkerId, WorkerView
from towline.offload.sessions import estimate_s

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random


class OffloadPolicy(Protocol):
    """Chooses among workers that could take a call. Synchronous, no I/O, same answer for same arguments."""

    def pick_worker(
        self, call: CallView, workers: Sequence[WorkerView], local: LocalView, now: float, random: Random
    ) -> WorkerId | Decline:
        """Return the worker that gets the call, or why none does; declining is always safe."""
        ...


def completion_s(call: CallView, worker: WorkerView) -> float:
    """Estimate when a worker would have returned a call, kernel time left out: it is the same everywhere.

    Round trip, what the worker lacks at the bandwidth to it, the outputs at the bandwidth from it, and its
    backlog spread over its slots.
    """
    missing = call.missing_bytes.get(worker.worker, call.payload_bytes)
    return estimate_s(
        worker.rtt_s, missing, worker.up_bytes_per_s, call.output_bytes, worker.down_bytes_per_s,
        worker.backlog_s / worker.slots,
    )  # fmt: skip


class LeastLoadedPolicy(OffloadPolicy):
    """The default: the worker with the least estimated completion time; ties by bytes it holds, then by name."""

    def pick_worker(
        self, call: CallView, workers: Sequence[WorkerView], local: LocalView, now: float, random: Random
    ) -> WorkerId | Decline:
        """Return the cheapest worker, whatever this process could do itself."""
        if not workers:
            return Decline("no_live_worker")
        return min(workers, key=lambda w: (completion_s(call, w), call.missing_bytes.get(w.worker, 0), w.worker)).worker


class CostAwarePolicy(OffloadPolicy):
    """Sends a call away only if that is faster than running it here, by a margin.

    Args:
        margin: Share by which the worker must be faster; 0.1 is ten percent.
    """

    def __init__(self, margin: float = 0.1) -> None:
        if not 0 <= margin < 1:
            raise ValueError(f"margin is {margin}; it must be at least 0 and below 1")
        self.margin = margin

    def pick_worker(
        self, call: CallView, workers: Sequence[WorkerView], local: LocalView, now: float, random: Random
    ) -> WorkerId | Decline:
        """Return the cheapest worker, or ``local_faster`` with both estimates."""
        picked = LeastLoadedPolicy().pick_worker(call, workers, local, now, random)
        if isinstance(picked, Decline):
            return picked
        (worker,) = (w for w in workers if w.worker == picked)
        there = completion_s(call, worker) + call.expected_s
        here = local.backlog_s / local.slots + local.expected_s
        if there <= here * (1 - self.margin):
            return picked
        return Decline("local_faster", f"{here:.4f} s here, {there:.4f} s on {picked}")
