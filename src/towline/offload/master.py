"""The master's half of the protocol: events and time in, messages and commits out (section 5). Pure.

It never waits, reads no clock and opens nothing. The shell that owns it calls one method per event and
then carries out what ``take`` returns. A tick comes every ``tick_s`` while anything is connected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from towline.errors.offload import FrameError
from towline.offload.actions import Close, Detach, Send
from towline.offload.arrays import Array, bytes_of
from towline.offload.calls import Call, Phase
from towline.offload.frames import BODY_SHM, OFFER, Frame, Head
from towline.offload.handshake import MAX_UNPROVEN_LINKS
from towline.offload.master_judging import Judging
from towline.offload.master_state import finite_seconds
from towline.offload.messages import (
    Auth,
    Bye,
    CallAck,
    CallMessage,
    Cancel,
    Data,
    Drain,
    ErrorMessage,
    ErrorReport,
    Evict,
    Gone,
    Heartbeat,
    Hello,
    Pull,
    Result,
    Returned,
)
from towline.offload.outgoing import Outgoing
from towline.offload.records import Decline
from towline.offload.sessions import Dispatch, Peer, Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.offload.messages import Message

INLINE_TOTAL = 1 << 20
EVICT_FROM_BYTES = 1 << 20
"""Smaller copies that nobody needs are left to the cache: a frame for each would cost more than they do."""


class MasterCore(Judging):
    """Sessions, dispatches and transfers of one cluster. It is the ``remote`` part of a scheduler."""

    def link_up(self, link: int, peer_name: str, now: float) -> None:
        """A link is there; the master speaks first, whoever dialled."""
        unproven = sum(peer.authenticated is None for peer in self.peers.values())
        challenge = self.doorkeeper.challenge()
        outgoing = Outgoing(lambda frame: self._out.append(Send(link, frame)), digests=self.options.verify == "full")
        if unproven >= MAX_UNPROVEN_LINKS:
            self._out.append(Close(link, "too many links that have not proven themselves"))
            return
        self.peers[link] = Peer(link, peer_name, challenge.nonce, outgoing, now)
        self._send(link, challenge)

    def link_down(self, link: int, reason: str, now: float) -> None:
        """A link is gone: without a BYE before it, its session is dead at once (OFF-604)."""
        peer = self.peers.pop(link, None)
        self._landing.pop(link, None)
        if peer is not None and peer.session is not None and peer.session.living:
            self._bury(peer.session, f"link lost: {reason}", now)

    def bytes_in(self, link: int, count: int, now: float) -> None:
        """Any bytes refresh life, whole frames or not (OFF-604)."""
        self.bytes_received += count
        peer = self.peers.get(link)
        if peer is not None and peer.session is not None:
            session = peer.session
            session.last_bytes_at = now
            if session.state == "suspect":
                session.state = "live"
                self.scheduler.reconsider(now)

    def flushed(self, link: int, frame: Frame, now: float) -> None:
        """A bulk frame has left by its link."""
        peer = self.peers.get(link)
        if peer is None:
            return
        self.bytes_sent += frame.body_bytes
        if isinstance(frame.message, CallMessage):
            session = peer.session
            if session is not None and (dispatch := session.calls.get(frame.message.call)) is not None:
                dispatch.flushed_at = now
                dispatch.touched_at = now
        peer.outgoing.flushed(frame)

    def body_for(self, link: int, head: Head, now: float) -> Sequence[memoryview] | None:
        """Say where a body goes: fresh arrays of the right size, or nowhere (OFF-507, OFF-510).

        Raises:
            FrameError: Nobody may send a body yet, or this message has none.
        """
        peer = self.peers.get(link)
        message = head.message
        if peer is None or (peer.authenticated is None and head.body_bytes):
            raise FrameError(0, "body", "came before its sender had proven itself")
        if not head.body_bytes:
            return []
        session = peer.session
        if isinstance(message, Data):
            return self._place_of_chunk(session, message, head.body_bytes)
        if isinstance(message, Result):
            if head.flags & OFFER:
                raise FrameError(0, "body", "comes with an offer, which has none")
            return self._place_of_outputs(link, session, message, head.body_bytes)
        raise FrameError(0, "body", f"belongs to no {type(message).__name__}")

    def frame(self, link: int, head: Head, landed: bool, now: float) -> None:
        """Take one whole frame.

        Raises:
            FrameError: The message may not come now; the link is to be closed.
        """
        peer = self.peers.get(link)
        message = head.message
        if peer is None or message is None:
            return
        if peer.authenticated is None:
            if not isinstance(message, Auth):
                raise FrameError(0, "type", f"{type(message).__name__} came before AUTH")
            self._auth(peer, message, now)
            return
        if isinstance(message, Auth):
            return  # repeated; the answer to HELLO tells the worker more
        if isinstance(message, Hello):
            self._hello(peer, message, now)
            return
        session = peer.session
        if session is None or not session.living:
            if isinstance(message, (Bye, ErrorMessage)):
                self._out.append(Close(link, "the worker left"))
                return
            raise FrameError(0, "type", f"{type(message).__name__} came before HELLO")
        self._session_frame(session, message, head, landed, now)

    def _session_frame(self, session: Session, message: Message, head: Head, landed: bool, now: float) -> None:
        match message:
            case Result():
                self._result(session, message, head, landed, now)
            case CallAck():
                self._call_ack(session, message, now)
            case Heartbeat():
                self._heartbeat(session, message, now)
            case Data():
                self._data(session, message, head, landed, now)
            case Pull():
                self._pull(session, message, now)
            case Gone():
                self._fetch_failed(session, message, now)
            case Drain():
                self._draining(session, now)
            case Returned():
                self._loans_over(session, message)
            case Bye():
                self._gone(session, message.reason, now)
            case ErrorMessage():
                if message.reason == "superseded":
                    self.lost_lease = message.text
                self._bury(session, f"{message.reason}: {message.text}"[:500], now)
            case _:
                raise FrameError(0, "type", f"{type(message).__name__} does not come from a worker")

    def broken(self, link: int, error: FrameError, now: float) -> None:
        """A link carried bytes that are no valid frame: say so once, and close it (section 10)."""
        self.rejected_frames += 1
        self._send(link, ErrorMessage("protocol", 0, str(error)[:500]))
        self._out.append(Close(link, str(error)))
        self.link_down(link, str(error), now)

    def tick(self, now: float) -> None:
        """Judge every silence. A pause of this process counts for nobody (OFF-621)."""
        paused = 0.0
        if self._last_tick is not None and now - self._last_tick > 4 * self.tick_s:
            paused = now - self._last_tick - self.tick_s
        self._last_tick = now
        if self._regions is not None:
            self._regions.tidy(now)
        if paused:
            self._forgive(paused)
        for peer in list(self.peers.values()):
            if peer.session is None and now - peer.greeted_at > self.options.handshake_timeout_s:
                self._out.append(Close(peer.link, "no handshake in time"))
                self.link_down(peer.link, "no handshake in time", now)
        for session in list(self.sessions.values()):
            self._judge(session, now)
        self._judge_remote_calls(now)
        self.scheduler.reconsider(now)
        self.scheduler.advance(now)

    def probe_ready(
        self, kernel: str, inputs: tuple[list[Array], dict[str, Any]] | None, expected: list[Array]
    ) -> None:
        """The master's own run of a probe is done; None: it failed, and the kernel is not probed."""
        self.prober.ready(kernel, inputs, expected)

    def bumped(self, buffer: int) -> None:
        """The memory of a buffer is about to change: what links still have to send of it must be copied (OFF-508)."""
        pending = False
        for peer in self.peers.values():
            for transfer in peer.outgoing.of_buffer(buffer):
                peer.outgoing.drop(transfer.number)
                self._send(peer.link, Gone(transfer.number, buffer, transfer.version))
            pending = pending or peer.outgoing.unsent_bytes > 0
        if pending:
            self._out.append(Detach(buffer))

    def released(self, buffer: int, version: int) -> None:
        """A buffer is gone: tell those that hold it (OFF-213)."""
        for session in self._names.values():
            self._forget_copy(session, buffer, version)

    def _forget_copy(self, session: Session, buffer: int, version: int) -> None:
        if session.holds(buffer, version):
            session.lose(buffer, version)
            self._send(session.link, Evict([(buffer, version)]))

    def outdated(self, buffer: int, version: int, nbytes: int) -> None:
        """A version has a successor: workers need not keep large copies of it until their cache is full (OFF-972)."""
        if nbytes >= EVICT_FROM_BYTES:
            self.released(buffer, version)

    def drain(self, worker: str, now: float) -> bool:
        """Give a worker no new calls; False if nobody has that name."""
        session = self._names.get(worker)
        if session is None:
            return False
        self._send(session.link, Drain(self.options.drain_timeout_s))
        self._draining(session, now)
        return True

    def close(self, now: float) -> None:
        """Say BYE to all; what they still compute runs here instead."""
        self.closing = True
        for session in list(self._names.values()):
            self._send(session.link, Bye("the master is done"))
            self._gone(session, "the master is done", now)
        for link in list(self.peers):
            self._out.append(Close(link, "the master is done"))
        self.peers.clear()

    def offer(self, call: Call, now: float) -> Decline | None:
        """Send a call to the worker that the policy picks, or say why it stays."""
        if self.closing:
            return Decline("no_live_worker", "the cluster is closed")
        chosen = self.placer.choose(call, self._names.values(), now)
        if isinstance(chosen, Decline):
            return chosen
        if not self._dispatch(call, chosen, now):
            return Decline("no_memory", "no shared memory for the outputs")
        return None

    def withdraw(self, call: Call, now: float) -> None:
        """Stop a call that ended here."""
        session = self.sessions.get(call.session)
        if session is not None and (dispatch := session.calls.get(call.number)) is not None:
            self._forget(session, dispatch)
            self._release_regions(dispatch, ended=False)
            if session.living:
                self._send(session.link, Cancel(call.number, dispatch.fence))
            self._ended_with(call.number, dispatch.fence)

    def _dispatch(self, call: Call, session: Session, now: float) -> bool:
        shared = session.shm == "on" and self._regions is not None
        regions = [
            self._regions.take(b._data.nbytes) if shared and b._shared and self._regions else None for b in call.writes
        ]
        if any(
            region is None and b._shared and shared and b._data.nbytes
            for region, b in zip(regions, call.writes, strict=True)
        ):
            return False
        fence = self.scheduler.begin(call, now)
        call.expected_s = self.scheduler.timings.expected_s(call.kernel_name, call.payload_bytes)
        dispatch = Dispatch(call, fence, now, alone=not session.calls)
        dispatch.regions = regions
        refs, body, pins, mask, inlined = [], [], [], 0, 0
        for index, buffer in enumerate(call.reads):
            size = buffer._data.nbytes
            segment = buffer._region.segment if shared and buffer._region is not None else None
            if segment is not None and buffer._region is not None:
                buffer._region.users.add(fence)
            elif session.holds(buffer._id, buffer._version):
                session.keep(buffer._id, buffer._version, size)
                dispatch.hits += 1
                self.cache_hits += 1
            elif index < 64 and size <= self.options.inline_bytes and inlined + size <= INLINE_TOTAL:
                mask |= 1 << index
                inlined += size
                body.append(bytes_of(buffer._data).toreadonly())
                pins.append(buffer._id)
                call.bytes_out += size
                session.keep(buffer._id, buffer._version, size)
            else:
                self.cache_misses += 1
            refs.append(buffer._ref(buffer._version, segment))
        outs = []
        for buffer, version, region in zip(call.writes, call.reserved, regions, strict=True):
            if region is not None:
                region.users.add(fence)
            elif buffer._data.nbytes >= EVICT_FROM_BYTES and buffer not in call.reads:
                self._forget_copy(session, buffer._id, buffer._version)  # its memory can take the new version
            outs.append(buffer._ref(version, region.segment if region is not None else None))
        call.attempts += 1
        call.session, call.phase = session.uid, Phase.SENT
        call.ran_on = session.worker
        if not call.shipped:
            call.shipped = True
            self.scheduler.offloaded += 1
        else:
            self.scheduler.redispatched += 1
            call.run.redispatched += 1
            self._tell("call_redispatched", now, session, {}, call)
        session.calls[call.number] = dispatch
        session.backlog_s += call.expected_s
        limit = call.time_limit_s
        message = CallMessage(
            call.number, fence, min(call.attempts, 255), session.kernels[call.kernel_name], call.params, refs, outs, mask, limit,
            call.priority,
        )  # fmt: skip
        self.explanations.dispatched(call, now, fence, session.worker)
        self._send_bulk(session, Frame(message, tuple(body), flags=self._digest_flag() if body else 0, pin=tuple(pins)))
        self._tell("call_offloaded", now, session, {}, call)
        return True

    def _call_ack(self, session: Session, ack: CallAck, now: float) -> None:
        dispatch = self._current(session, ack.call, ack.fence)
        if dispatch is None:
            return
        call = dispatch.call
        dispatch.touched_at = now
        self.explanations.frame(call, now, "CALL_ACK", ack.verdict)
        self._observe_rtt(session, dispatch, 0.0, now)
        if ack.verdict in ("accepted", "duplicate"):
            if call.phase is Phase.SENT:
                call.phase = Phase.ACCEPTED
        elif ack.verdict in ("full", "draining", "superseded"):
            session.full = True
            self._forget(session, dispatch)
            self._release_regions(dispatch, ended=ack.verdict != "superseded")
            self._again(call, now)
        else:
            if ack.verdict == "unknown_kernel":
                session.refused_kernels[call.kernel_name] = f"{session.worker} says that it does not know it"
            self._failed_attempt(session, dispatch, ack.verdict, now)

    def _result(self, session: Session, message: Result, head: Head, landed: bool, now: float) -> None:
        arrays = self._landing.pop(session.link, [])
        if message.call in session.probes:
            self._probe_result(session, message, arrays if landed else [], now)
            return
        dispatch = self._current(session, message.call, message.fence)
        if dispatch is None:
            self._refuse_result(session, message, now)
            return
        call = dispatch.call
        dispatch.touched_at = now
        self.explanations.frame(call, now, "RESULT", message.status)
        if message.status != "ok":
            self._failed_result(session, dispatch, message, now)
            return
        call.kernel_s = finite_seconds(message.timings.get("kernel_s", 0.0))
        self._observe_rtt(session, dispatch, call.kernel_s, now)
        problem = self._misfit(call, message.writes)
        if problem is not None:
            self._answer(session, dispatch)
            self.scheduler.fail(call, ErrorReport("bad_output", "BadOutput", problem), session.worker, 0.0, now)
            return
        if head.flags & OFFER:
            if call.phase is not Phase.FETCHING:
                call.phase = Phase.FETCHING
                self._start_fetch(session, dispatch, now)
            return
        if head.flags & BODY_SHM or not call.writes:
            arrays = self._shared_outputs(dispatch)
        elif not any(buffer._data.nbytes for buffer in call.writes):
            arrays = [np.empty(buffer.shape, buffer.dtype) for buffer in call.writes]
        elif not landed or len(arrays) != len(call.writes):
            return  # its bytes were not wanted when they came; the worker will offer them again
        call.bytes_in += head.body_bytes
        self._commit(session, dispatch, arrays, now)
