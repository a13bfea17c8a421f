"""How a job ends: its result is kept and repeated until the master has it (OFF-607, OFF-611). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.errors.offload import FrameError
from towline.offload.bonds import Bond, StopKernel
from towline.offload.frames import BODY_SHM, OFFER, Frame
from towline.offload.jobs import Job, Stage
from towline.offload.messages import (
    CallAck,
    CallMessage,
    ErrorReport,
    Fetch,
    Gone,
    Result,
    ResultAck,
)
from towline.offload.outgoing import Transfer
from towline.offload.worker_state import WorkerState

if TYPE_CHECKING:
    from towline.offload.pieces import ArrayPlan, Piece


QUICK_RESULT_S = 0.001
"""A kernel that took less the last time gets no CALL_ACK: its RESULT says the same, and a heartbeat if that takes longer."""


class Results(WorkerState):
    """From the end of a kernel to the acknowledgement of its result."""

    def _send_result(self, bond: Bond, job: Job, now: float) -> None:
        job.sent_at = None
        timings = {"kernel_s": job.kernel_s}
        if job.status != "ok":
            self._send_bulk(bond, Frame(Result(job.call, job.fence, job.status, [], timings, job.error)))
            return
        refs = [plan.ref for plan in job.writes]
        total = sum(piece.nbytes for piece in job.outputs)
        flags, body = 0, tuple(piece.view for piece in job.outputs)
        if all(ref.segment is not None for ref in refs) and refs:
            flags, body = BODY_SHM, ()
        elif total > bond.offer_bytes:
            flags, body = OFFER, ()
        elif total:
            flags = self._digest_flag(bond)
        self._send_bulk(bond, Frame(Result(job.call, job.fence, "ok", refs, timings), body, flags=flags))

    def _finish(self, job: Job, now: float) -> None:
        bond = self.bonds[job.link]
        job.stage = Stage.UNACKED
        self._results += 1
        self.result_bytes += job.kept_bytes
        job.inputs = []
        self._unpin(job)
        self._send_result(bond, job, now)
        self._start_jobs(now)

    def _fail(self, bond: Bond, job: Job, error: ErrorReport, now: float) -> None:
        if job.stage in (Stage.UNACKED, Stage.DROPPED):
            return
        for incoming in bond.incoming.values():
            incoming.jobs = [entry for entry in incoming.jobs if entry[0] is not job]
        job.error, job.status = error, "failed"
        self._finish(job, now)

    def _cancel(self, bond: Bond, job: Job, now: float) -> None:
        if job.stage is Stage.UNACKED:
            return
        if job.stage is Stage.RUNNING:
            job.cancel.set()
            self._out.append(StopKernel(job))
        self._fail(bond, job, ErrorReport("cancelled", "Cancelled", "the master cancelled the call"), now)
        job.status = "cancelled"

    def _answers_at_once(self, kernel: str) -> bool:
        """Say whether the result of a kernel is there as soon as an acknowledgement of its call would be."""
        return self._latest_s.get(kernel, QUICK_RESULT_S) < QUICK_RESULT_S

    def _leave_slot(self, job: Job, now: float) -> bool:
        """Free the slot of a job; False if nobody wants its result any more."""
        self._running.discard(id(job))
        bond = self.bonds.get(job.link)
        wanted = bond is not None and bond.jobs.get(job.call) is job and job.stage is Stage.RUNNING
        if not wanted:
            self._start_jobs(now)
        return wanted

    def kernel_finished(self, job: Job, outputs: list[Piece], kernel_s: float, now: float) -> None:
        """A kernel returned."""
        if self._leave_slot(job, now):
            job.outputs, job.kernel_s = outputs, kernel_s
            if job.function is not None:
                self._latest_s[job.function.kernel.name] = kernel_s
            self._finish(job, now)

    def kernel_failed(self, job: Job, error: ErrorReport, kernel_s: float, now: float) -> None:
        """A kernel raised, died, or was stopped at its limit."""
        if self._leave_slot(job, now):
            job.error, job.status, job.kernel_s = error, "failed", kernel_s
            self._finish(job, now)

    def slot_lost(self) -> None:
        """A thread was abandoned: its slot is gone while it runs (OFF-113)."""
        self.slots = max(self.slots - 1, 1)

    def _fetch(self, bond: Bond, message: Fetch, now: float) -> None:
        job = bond.jobs.get(message.call)
        if (
            job is None
            or job.fence != message.fence
            or job.stage is not Stage.UNACKED
            or message.index >= len(job.outputs)
        ):
            self._send(bond, Gone(message.transfer, 0, 0))
            return
        piece = job.outputs[message.index]
        if message.offset > piece.nbytes:
            raise FrameError(0, "fetch", f"offset {message.offset} is beyond {piece.nbytes}")
        if message.transfer not in job.transfers_out:
            job.transfers_out.append(message.transfer)
        job.sent_at = None
        job.pulled += 1
        segment = piece.segment if bond.shares and message.offset == 0 else None
        bond.outgoing.begin(Transfer(message.transfer, piece.view, message.offset, segment=segment))

    def _result_ack(self, bond: Bond, ack: ResultAck, now: float) -> None:
        job = bond.jobs.get(ack.call)
        self._finished(bond, ack.call, ack.fence)
        if job is None or job.fence != ack.fence:
            return
        outputs = list(zip(job.writes, job.outputs, strict=False)) if job.status == "ok" and not job.shared else []
        self._drop(bond, job, now)
        if ack.verdict == "committed":
            for plan, piece in outputs:
                self.cache.put((bond.run, plan.ref.buffer_id, plan.ref.version), piece)
        self._start_jobs(now)

    def _echo(
        self,
        bond: Bond,
        message: CallMessage,
        reads: list[ArrayPlan],
        writes: list[ArrayPlan],
        pieces: list[Piece],
        now: float,
    ) -> None:
        """The built-in kernel: its outputs are its inputs (OFF-422)."""
        self._send(bond, CallAck(message.call, message.fence, "accepted"))
        body = tuple(piece.view for piece in pieces)
        if sum(part.nbytes for part in body) != sum(plan.nbytes for plan in writes):
            raise FrameError(0, "echo", "has outputs of another size than its inputs")
        self._send_bulk(
            bond, Frame(Result(message.call, message.fence, "ok", message.writes), body, flags=self._digest_flag(bond))
        )
