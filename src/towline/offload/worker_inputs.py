"""How a job gets its inputs (OFF-505, OFF-513, OFF-614). Pure."""

from __future__ import annotations

from towline.errors.offload import FrameError
from towline.offload.bonds import INLINE_RESULT_LIMIT, Bond, Incoming
from towline.offload.frames import BODY_SHM, Head
from towline.offload.jobs import Job, Stage
from towline.offload.messages import (
    CallMessage,
    Data,
    ErrorReport,
    Gone,
    Pull,
)
from towline.offload.pieces import ArrayPlan, Piece
from towline.offload.worker_results import Results


class Inputs(Results):
    """Inputs that ride along, are cached, are mapped, or must be pulled."""

    def _place_of_inputs(self, bond: Bond, message: CallMessage) -> list[memoryview] | None:
        bond.landing = []
        known = bond.jobs.get(message.call)
        if message.fence <= bond.done.get(message.call, 0) or (known is not None and message.fence <= known.fence):
            return None
        views = []
        try:
            for index, ref in enumerate(message.reads[:64]):
                if message.inline >> index & 1:
                    plan = ArrayPlan(ref, INLINE_RESULT_LIMIT)
                    piece = self._memory.allocate(plan.nbytes)
                    if piece is None:
                        return None
                    bond.landing.append((plan, piece))
                    views.append(piece.view)
        except ValueError as error:
            raise FrameError(0, "reference", str(error)) from error
        return views

    def _place_of_chunk(self, bond: Bond, data: Data, size: int, now: float) -> list[memoryview] | None:
        incoming = bond.incoming.get(data.transfer)
        if incoming is None:
            return None
        if data.total != incoming.nbytes or data.offset + size > data.total:
            raise FrameError(
                0, "data", f"chunk {data.offset}+{size} of {data.total}, expected {incoming.nbytes} in all"
            )
        if data.offset != incoming.offset:
            return None
        if incoming.piece is None:
            incoming.piece = self._memory.allocate(incoming.nbytes)
        if incoming.piece is None:
            self._incoming_failed(bond, incoming, "no_memory", f"there are no {incoming.nbytes} bytes", now)
            return None
        return [incoming.piece.view[data.offset : data.offset + size]]

    def _data(self, bond: Bond, data: Data, head: Head, landed: bool, now: float) -> None:
        incoming = bond.incoming.get(data.transfer)
        if incoming is None:
            self.dropped_frames += 1
            if head.flags & BODY_SHM:
                self._memory.decline((bond.link, data.transfer))
            return
        if head.flags & BODY_SHM and data.segment is not None:
            mapped = self._memory.borrow(data.segment, incoming.nbytes, (bond.link, data.transfer))
            if mapped is None:
                self._incoming_failed(bond, incoming, "stale_input", f"segment {data.segment[0]} is gone", now)
                return
            incoming.piece, incoming.offset = mapped, mapped.nbytes
        elif landed and data.offset == incoming.offset:
            incoming.offset += head.body_bytes
        else:
            return
        incoming.touched_at = now
        incoming.tries = 0
        for job, _ in incoming.jobs:
            job.pulled += head.body_bytes
        if incoming.offset >= incoming.nbytes:
            self._arrived(bond, incoming, incoming.piece or Piece(memoryview(b"")), now)

    def _arrived(self, bond: Bond, incoming: Incoming, piece: Piece, now: float) -> None:
        del bond.incoming[incoming.number]
        key = (bond.run, incoming.buffer, incoming.version)
        self.cache.put(key, piece)
        for job, index in incoming.jobs:
            job.inputs[index] = piece
            job.wanted -= 1
            if self.cache.get(key) is not None:
                self.cache.pin(key)
                job.keys.append(key)
        for job, _ in incoming.jobs:
            self._when_complete(bond, job, now)

    def _pull_again(self, bond: Bond, incoming: Incoming, now: float) -> None:
        if not incoming.jobs:
            del bond.incoming[incoming.number]
            self._memory.decline((bond.link, incoming.number))
            return
        incoming.tries += 1
        if incoming.tries > bond.pull_tries:
            self._incoming_failed(bond, incoming, "pull_failed", f"no bytes after {bond.pull_tries} requests", now)
            return
        incoming.touched_at = now
        self._send(bond, Pull(incoming.number, incoming.buffer, incoming.version, incoming.offset))

    def _gone(self, bond: Bond, message: Gone, now: float) -> None:
        incoming = bond.incoming.get(message.transfer)
        if incoming is not None:
            text = f"buffer {message.buf} version {message.ver} is not current, {message.current} is"
            self._incoming_failed(bond, incoming, "stale_input", text, now)

    def _incoming_failed(self, bond: Bond, incoming: Incoming, kind: str, text: str, now: float) -> None:
        bond.incoming.pop(incoming.number, None)
        self._memory.decline((bond.link, incoming.number))  # it may have been lent, or be about to
        for job, _ in list(incoming.jobs):
            self._fail(bond, job, ErrorReport(kind, "TransferFailed", text, "", True), now)

    def _need(self, bond: Bond, job: Job, index: int, now: float) -> None:
        plan = job.reads[index]
        key = (bond.run, plan.ref.buffer_id, plan.ref.version)
        cached = self.cache.get(key)
        if cached is not None and cached.nbytes == plan.nbytes:
            self.cache.pin(key)
            job.keys.append(key)
            job.inputs[index] = cached
            return
        job.wanted += 1
        for incoming in bond.incoming.values():
            if (incoming.buffer, incoming.version) == (plan.ref.buffer_id, plan.ref.version):
                incoming.jobs.append((job, index))
                return
        incoming = Incoming(self._next_transfer, plan.ref.buffer_id, plan.ref.version, plan.nbytes, now)
        self._next_transfer += 1
        incoming.jobs.append((job, index))
        bond.incoming[incoming.number] = incoming
        self._send(bond, Pull(incoming.number, incoming.buffer, incoming.version, 0))

    def _gather(self, bond: Bond, job: Job, landed: dict[int, Piece], order: list[Piece], now: float) -> None:
        """Find each input: riding along, named by segment, cached, or to be pulled (OFF-505)."""
        inline = iter(order)
        for index, plan in enumerate(job.reads):
            ref = plan.ref
            if index < 64 and job.message.inline >> index & 1:
                piece = next(inline, None)
                if piece is None:
                    self._fail(
                        bond, job, ErrorReport("pull_failed", "Lost", "an inline input did not arrive", "", True), now
                    )
                    return
                job.inputs[index] = piece
            elif ref.segment is not None:
                mapped = self._memory.attach(ref.segment, plan.nbytes, writable=False)
                if mapped is None:
                    self._fail(
                        bond,
                        job,
                        ErrorReport("stale_input", "Lost", f"segment {ref.segment[0]} is gone", "", True),
                        now,
                    )
                    return
                job.inputs[index] = mapped
            else:
                self._need(bond, job, index, now)
            if job.stage is Stage.UNACKED:
                return
        self._when_complete(bond, job, now)

    def _when_complete(self, bond: Bond, job: Job, now: float) -> None:
        if job.wanted == 0 and job.stage is Stage.PULLING:
            job.stage = Stage.QUEUED
            self._waiting.put(job)
            self._start_jobs(now)
