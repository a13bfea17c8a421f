"""Arrays between master and worker: fetched outputs, pulled inputs, shared memory (OFF-505 to OFF-510, OFF-708). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from towline.errors.offload import FrameError
from towline.offload.arrays import Array, array_over, bytes_of
from towline.offload.calls import Call, Phase
from towline.offload.frames import BODY_SHM, Head
from towline.offload.master_endings import Endings
from towline.offload.messages import (
    BufferRef,
    Data,
    Fetch,
    Gone,
    Pull,
    Result,
    Returned,
)
from towline.offload.outgoing import Transfer

if TYPE_CHECKING:
    from towline.offload.buffers import Buffer
    from towline.offload.sessions import Dispatch, Session


STAGED_FROM_BYTES = 1 << 20
"""Smaller arrays go through the socket also on one host."""


class Transfers(Endings):
    """Bytes of outputs on their way in, bytes of inputs on their way out."""

    def _misfit(self, call: Call, refs: list[BufferRef]) -> str | None:
        if len(refs) != len(call.writes):
            return f"{len(refs)} outputs, expected {len(call.writes)}"
        for ref, buffer in zip(refs, call.writes, strict=True):
            if (
                ref.dtype != buffer._dtype_text
                or ref.shape != buffer._shape_list
                or ref.payload_bytes != buffer._data.nbytes
            ):
                return (
                    f"output {buffer._label()} came as {ref.dtype} {ref.shape}, expected {buffer.dtype} {buffer.shape}"
                )
        return None

    def _place_of_outputs(
        self, link: int, session: Session | None, message: Result, size: int
    ) -> list[memoryview] | None:
        if session is None:
            return None
        if message.call in session.probes:
            arrays = self.prober.fresh_outputs(session.probes[message.call])
            if sum(array.nbytes for array in arrays) != size:
                return None
        else:
            dispatch = self._current(session, message.call, message.fence)
            if dispatch is None or message.status != "ok" or self._misfit(dispatch.call, message.writes) is not None:
                return None
            arrays = [np.empty(buffer.shape, buffer.dtype) for buffer in dispatch.call.writes]
        self._landing[link] = arrays
        return [bytes_of(array) for array in arrays]

    def _shared_outputs(self, dispatch: Dispatch) -> list[Array]:
        arrays = []
        for buffer, region in zip(dispatch.call.writes, dispatch.regions, strict=True):
            if region is None:
                arrays.append(np.empty(buffer.shape, buffer.dtype))
            else:
                arrays.append(region.array(buffer._data.dtype, buffer._data.shape))
        return arrays

    def _start_fetch(self, session: Session, dispatch: Dispatch, now: float) -> None:
        dispatch.arrays = [np.empty(buffer.shape, buffer.dtype) for buffer in dispatch.call.writes]
        dispatch.fetched = [0] * len(dispatch.arrays)
        dispatch.fetch_at = dispatch.moved_at = now
        for index in range(len(dispatch.arrays)):
            dispatch.transfers.append(self._next_transfer)
            self._next_transfer += 1
            self._ask(session, dispatch, index)

    def _ask(self, session: Session, dispatch: Dispatch, index: int) -> None:
        number = dispatch.call.number
        self._send(
            session.link, Fetch(number, dispatch.fence, dispatch.transfers[index], index, dispatch.fetched[index])
        )

    def _fetch_again(self, session: Session, dispatch: Dispatch, now: float) -> None:
        """A transfer without new bytes is asked for again, from where it stands (OFF-614)."""
        dispatch.fetch_tries += 1
        if dispatch.fetch_tries > self.options.pull_tries:
            self._give_up(session, dispatch, "pull_failed", now)
            return
        dispatch.touched_at = dispatch.moved_at = now
        for index, array in enumerate(dispatch.arrays):
            if dispatch.fetched[index] < array.nbytes or array.nbytes == 0:
                self._ask(session, dispatch, index)

    def _fetching(self, session: Session | None, transfer: int) -> tuple[Dispatch, int] | None:
        if session is None:
            return None
        for dispatch in session.calls.values():
            if transfer in dispatch.transfers and dispatch.call.phase is Phase.FETCHING:
                return dispatch, dispatch.transfers.index(transfer)
        return None

    def _place_of_chunk(self, session: Session | None, data: Data, size: int) -> list[memoryview] | None:
        found = self._fetching(session, data.transfer)
        if found is None:
            return None
        dispatch, index = found
        array = dispatch.arrays[index]
        if data.total != array.nbytes or data.offset + size > array.nbytes:
            raise FrameError(0, "data", f"chunk {data.offset}+{size} of {data.total}, expected {array.nbytes} in all")
        if data.offset != dispatch.fetched[index]:
            return None
        return [bytes_of(array)[data.offset : data.offset + size]]

    def _data(self, session: Session, data: Data, head: Head, landed: bool, now: float) -> None:
        found = self._fetching(session, data.transfer)
        if found is None:
            return
        dispatch, index = found
        if head.flags & BODY_SHM and data.segment is not None and self._regions is not None:
            seen = self._regions.attach(data.segment, dispatch.arrays[index].nbytes)
            if seen is None:
                self._give_up(session, dispatch, "segment lost", now)
                return
            buffer = dispatch.call.writes[index]
            if buffer._owned:
                # Copied at once: the worker uses its segment again as soon as it has the acknowledgement.
                bytes_of(dispatch.arrays[index])[:] = seen
            else:
                # The commit copies into the user's array, before it is acknowledged: one copy is enough.
                dispatch.arrays[index] = array_over(seen, buffer.dtype, buffer.shape)
            dispatch.fetched[index] = dispatch.arrays[index].nbytes
        elif landed and data.offset == dispatch.fetched[index]:
            dispatch.fetched[index] += head.body_bytes
        else:
            return
        dispatch.touched_at = dispatch.moved_at = now
        dispatch.fetch_tries = 0
        dispatch.call.bytes_in += head.body_bytes
        if all(done >= array.nbytes for done, array in zip(dispatch.fetched, dispatch.arrays, strict=True)):
            self._observe_down(session, dispatch, now)
            self._commit(session, dispatch, dispatch.arrays, now)

    def _observe_rtt(self, session: Session, dispatch: Dispatch, kernel_s: float, now: float) -> None:
        """The first answer to a call that the worker had to itself: behind others, their time would count too."""
        if (
            dispatch.alone
            and dispatch.flushed_at is not None
            and not dispatch.misses
            and dispatch.call.phase is Phase.SENT
        ):
            session.measure_rtt(max(now - dispatch.flushed_at - kernel_s, 1e-6))

    def _observe_down(self, session: Session, dispatch: Dispatch, now: float) -> None:
        size = sum(dispatch.fetched)
        spent = now - dispatch.fetch_at
        if size > 256 * 1024 and spent > 0:
            session.measure_down(size / spent)

    def _fetch_failed(self, session: Session, gone: Gone, now: float) -> None:
        found = self._fetching(session, gone.transfer)
        if found is not None:
            self._give_up(session, found[0], "pull_failed", now)

    def _pull(self, session: Session, pull: Pull, now: float) -> None:
        """Send exactly the version asked for, or say which is current (OFF-506)."""
        buffer = self.scheduler.table.find(pull.buf)
        for dispatch in session.calls.values():
            if any(b._id == pull.buf for b in dispatch.call.reads):
                dispatch.touched_at = now
        if buffer is None or buffer._version != pull.ver or buffer._children or pull.offset > buffer._data.nbytes:
            self._send(
                session.link, Gone(pull.transfer, pull.buf, pull.ver, buffer._version if buffer is not None else 0)
            )
            return
        segment = self._staged(session, buffer, pull.transfer) if pull.offset == 0 else None
        view = bytes_of(buffer._data).toreadonly()
        session.peer.outgoing.begin(Transfer(pull.transfer, view, pull.offset, pull.buf, pull.ver, segment))
        session.keep(pull.buf, pull.ver, buffer._data.nbytes)

    def _staged(self, session: Session, buffer: Buffer, transfer: int) -> tuple[str, int] | None:
        """On one host: one copy into a segment, which is lent to the worker (OFF-709)."""
        if session.shm != "on" or self._regions is None or buffer._data.nbytes < STAGED_FROM_BYTES:
            return None
        segment = self._regions.staging.stage(buffer._id, buffer._version, bytes_of(buffer._data))
        if segment is not None:
            self._regions.staging.lend(buffer._id, session.uid, transfer)
        return segment

    def _loans_over(self, session: Session, message: Returned) -> None:
        if self._regions is not None:
            for transfer in message.transfers:
                self._regions.staging.returned(session.uid, transfer)
