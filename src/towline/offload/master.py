"""The master's half of the protocol: events and time in, messages and commits out (section 5). Pure.

It never waits, reads no clock and opens nothing. The shell that owns it calls one method per event and
then carries out what ``take`` returns. A tick comes every ``tick_s`` while anything is connected.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from towline.errors.offload import FrameError
from towline.offload.actions import Action, Close, Detach, Send, Tell, Trust
from towline.offload.arrays import Array, bytes_of, same_bytes
from towline.offload.calls import REMOTE_PHASES, Call, Phase
from towline.offload.explain import Explanations
from towline.offload.frames import BODY_DIGEST, BODY_SHM, OFFER, Frame, Head
from towline.offload.handshake import MAX_UNPROVEN_LINKS, Doorkeeper
from towline.offload.messages import (
    Auth,
    BufferRef,
    Bye,
    CallAck,
    CallMessage,
    Cancel,
    Data,
    Drain,
    ErrorMessage,
    ErrorReport,
    Evict,
    Fetch,
    Gone,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Pull,
    Reject,
    Result,
    ResultAck,
)
from towline.offload.outgoing import Outgoing, Transfer
from towline.offload.placing import Placer
from towline.offload.probing import ECHO, Prober
from towline.offload.records import CallNumber, Decline, OffloadEvent, WorkerView
from towline.offload.sessions import LIVING, Dispatch, Peer, Session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from towline.offload.messages import Message
    from towline.offload.options import OffloadOptions
    from towline.offload.policies import OffloadPolicy
    from towline.offload.regions import RegionPool
    from towline.offload.registry import KernelRegistry
    from towline.offload.scheduler import Scheduler

INLINE_TOTAL = 1 << 20
UNKNOWN_RTT_S = 1.0
REMEMBERED_ENDS = 4_096


class MasterCore:
    """Sessions, dispatches and transfers of one cluster. It is the ``remote`` part of a scheduler."""

    def __init__(
        self, scheduler: Scheduler, options: OffloadOptions, registry: KernelRegistry, policy: OffloadPolicy,
        random: Random, *, run: bytes, host_id: str = "", numeric: dict[str, str] | None = None, token: str = "",
        program: str | None = None, task: str | None = None, epoch: int | None = None, regions: RegionPool | None = None,
    ) -> None:  # fmt: skip
        self.scheduler, self.options, self.run = scheduler, options, run
        self._random, self._host_id, self._numeric, self._regions = random, host_id, numeric or {}, regions
        self.doorkeeper = Doorkeeper(
            run, options, registry, random, token=token, program=program, task=task, epoch=epoch
        )
        self.placer = Placer(scheduler, policy, options, random)
        self.placer.on_policy_error = self._policy_failed
        self.explanations = Explanations()
        self.placer.on_choice = self.explanations.choice
        self.prober = Prober(registry, options, random)
        self.peers: dict[int, Peer] = {}
        self.sessions: dict[int, Session] = {}
        self._names: dict[str, Session] = {}
        self._next_uid = 1
        self._next_transfer = 1
        self._landing: dict[int, list[Array]] = {}
        self._ended: dict[int, int] = {}
        self._out: list[Action] = []
        self._last_tick: float | None = None
        self._remote_since: float | None = None
        self._warned: set[tuple[str, str]] = set()
        self.tick_s = options.heartbeat_interval_s / 4
        self.closing = False
        self.lost_lease: str | None = None
        self.rejected_frames = 0
        self.resent_results = 0
        self.bytes_sent = self.bytes_received = 0
        self.cache_hits = self.cache_misses = 0

    # Events -------------------------------------------------------------------------------------------------------

    def take(self) -> list[Action]:
        """Return what is to be done, and forget it."""
        out, self._out = self._out, []
        return out

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
            case Heartbeat():
                self._heartbeat(session, message, now)
            case CallAck():
                self._call_ack(session, message, now)
            case Result():
                self._result(session, message, head, landed, now)
            case Data():
                self._data(session, message, head, landed, now)
            case Pull():
                self._pull(session, message, now)
            case Gone():
                self._fetch_failed(session, message, now)
            case Drain():
                self._draining(session, now)
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
            if session.holds(buffer, version):
                session.lose(buffer, version)
                self._send(session.link, Evict([(buffer, version)]))

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

    # The scheduler asks -------------------------------------------------------------------------------------------

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
            if session.living:
                self._send(session.link, Cancel(call.number, dispatch.fence))
            self._ended_with(call.number, dispatch.fence)

    @property
    def has_room(self) -> bool:
        """Whether any worker could take one more call."""
        return any(session.has_room for session in self._names.values())

    @property
    def live(self) -> int:
        """Workers that can be given calls."""
        return sum(session.state in ("live", "suspect") for session in self._names.values())

    @property
    def in_flight(self) -> int:
        """Calls that workers have."""
        return sum(len(session.calls) for session in self._names.values())

    def views(self) -> tuple[WorkerView, ...]:
        """All living workers, by name."""
        return tuple(self._names[name].view() for name in sorted(self._names))

    def supports(self, kernel: str) -> bool:
        """Whether a live worker has the kernel, with an equal declaration."""
        return any(s.state in ("live", "suspect") and kernel in s.kernels for s in self._names.values())

    # Joining ------------------------------------------------------------------------------------------------------

    def _auth(self, peer: Peer, auth: Auth, now: float) -> None:
        refusal = self.doorkeeper.admits(peer, auth)
        if refusal is not None:
            self._reject(peer, refusal, now)
            return
        peer.authenticated, peer.name, peer.number, peer.greeted_at = auth.nonce, auth.worker, auth.session, now
        self._out.append(Trust(peer.link))

    def _hello(self, peer: Peer, hello: Hello, now: float) -> None:
        if peer.session is not None:
            if peer.session.living:
                self._send(peer.link, self.doorkeeper.welcome(peer, peer.session))
            return
        refusal = self.doorkeeper.refuses(peer, hello, self._names.get(hello.worker), len(self._names))
        if refusal is None and self.closing:
            refusal = Reject("draining", "the master is closing")
        if refusal is not None:
            self._reject(peer, refusal, now)
            return
        session = Session(self._next_uid, peer, hello, now)
        self._next_uid += 1
        self.doorkeeper.enter_kernels(session, hello)
        session.same_numeric = fingerprint(hello.numeric) == fingerprint(self._numeric)
        session.shm = self._shared_with(hello)
        peer.session = session
        self.sessions[session.uid] = session
        self._names[session.worker] = session
        self._send(peer.link, self.doorkeeper.welcome(peer, session))
        self._tell("worker_joined", now, session)

    def _shared_with(self, hello: Hello) -> str:
        if self._regions is None or not self.options.shm:
            return "off here"
        if not hello.shm:
            return "off there"
        if hello.host_id != self._host_id:
            return "another host or user"
        return "on" if self._regions.can_attach(hello.shm_trial) else "no common shared memory"

    def _reject(self, peer: Peer, refusal: Reject, now: float) -> None:
        self._send(peer.link, refusal)
        self._out.append(Close(peer.link, f"rejected: {refusal.reason}"))
        self.peers.pop(peer.link, None)
        self._tell(
            "worker_rejected", now, None, {"reason": refusal.reason, "worker": peer.name[:200], "peer": peer.peer}
        )

    def _begin_probing(self, session: Session, now: float) -> None:
        session.state = "probing"
        session.probe_at = now
        for name, kid, inputs, writes, params in self.prober.plan(session):
            number, fence = self.scheduler.take_number(), self.scheduler.take_fence()
            session.probes[number] = name
            refs, body = [], []
            for array in inputs:
                refs.append(BufferRef(0, 0, array.dtype.str, list(array.shape), array.nbytes))
                body.append(bytes_of(array))
            outs = [
                BufferRef(0, 0, text, list(shape), int(np.prod(shape)) * np.dtype(text).itemsize)
                for shape, text in writes
            ]
            message = CallMessage(number, fence, 1, kid, params, refs, outs, (1 << len(refs)) - 1, 30.0)
            self._send_bulk(session, Frame(message, tuple(body), flags=self._digest_flag()))

    def _probe_result(self, session: Session, message: Result, arrays: list[Array], now: float) -> None:
        name = session.probes.pop(message.call)
        session.probe_at = now
        self._send(session.link, ResultAck(message.call, message.fence, "committed"))
        if name == ECHO:
            elapsed = max(now - session.joined_at, 1e-6)
            if (size := sum(array.nbytes for array in arrays)) and elapsed:
                session.measure_up(2 * size / elapsed)
                session.measure_down(2 * size / elapsed)
        elif (problem := self.prober.compare(name, message, arrays)) is not None:
            session.refused_kernels[name] = f"{problem} on {session.worker}"
            self._warn(name, "numeric_mismatch", session.refused_kernels[name], now, session)
        if not session.probes:
            self._become_live(session, now)

    def _become_live(self, session: Session, now: float) -> None:
        for name in session.probes.values():
            if name != ECHO:
                session.refused_kernels[name] = f"its probe got no answer on {session.worker}"
        session.probes.clear()
        for name in session.kernels:
            doubt = self.prober.unverified(name, session)
            if doubt is None:
                continue
            if self.options.numeric == "strict":
                session.refused_kernels[name] = doubt
            else:
                self._tell("worker_unverified", now, session, {"kernel": name, "because": doubt})
        session.state = "live"
        self._tell("worker_probed", now, session)
        self.scheduler.reconsider(now)
        self.scheduler.advance(now)

    # Dispatch -----------------------------------------------------------------------------------------------------

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
        dispatch = Dispatch(call, fence, now)
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
        self.explanations.frame(call, now, f"CALL_ACK {ack.verdict}")
        if dispatch.flushed_at is not None and dispatch.misses == 0 and call.phase is Phase.SENT:
            session.measure_rtt(max(now - dispatch.flushed_at, 1e-6))
        if ack.verdict in ("accepted", "duplicate"):
            if call.phase is Phase.SENT:
                call.phase = Phase.ACCEPTED
        elif ack.verdict in ("full", "draining", "superseded"):
            session.full = True
            self._forget(session, dispatch)
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
        self.explanations.frame(call, now, f"RESULT {message.status}")
        if message.status != "ok":
            self._failed_result(session, dispatch, message, now)
            return
        call.kernel_s = _seconds(message.timings.get("kernel_s", 0.0))
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

    def _commit(self, session: Session, dispatch: Dispatch, arrays: list[Array], now: float) -> None:
        """The call of the current fence has all its bytes: commit them in this very step (OFF-501)."""
        call = dispatch.call
        kernel_s = call.kernel_s
        writes = list(zip(call.writes, call.reserved, dispatch.regions, strict=True))
        self._answer(session, dispatch, keep_outputs=True)
        if not self.scheduler.commit(call, arrays, kernel_s, now, dispatch.regions):
            return
        for buffer, version, region in writes:
            if region is None:
                session.keep(buffer._id, version, buffer._data.nbytes)
        self._tell("call_committed", now, session, {}, call)
        self.scheduler.reconsider(now)

    def _answer(self, session: Session, dispatch: Dispatch, *, keep_outputs: bool = False) -> None:
        self._forget(session, dispatch)
        self._release_regions(dispatch, ended=True, keep_outputs=keep_outputs)
        self._ended_with(dispatch.call.number, dispatch.fence)
        self._send(session.link, ResultAck(dispatch.call.number, dispatch.fence, "committed"))

    def _refuse_result(self, session: Session, message: Result, now: float) -> None:
        """A result of an older fence, or of a call that ended: counted, answered, never looked at (OFF-502)."""
        seen = self._ended.get(message.call)
        if seen == message.fence:
            self.resent_results += 1
        else:
            self.scheduler.stale += 1
            self._tell("result_stale", now, session, {"call": message.call, "fence": message.fence})
        self._release_fence(message.fence)
        self._send(
            session.link, ResultAck(message.call, message.fence, "duplicate" if seen == message.fence else "stale")
        )

    def _failed_result(self, session: Session, dispatch: Dispatch, message: Result, now: float) -> None:
        call = dispatch.call
        report = message.error or ErrorReport("kernel_error", "Unknown", "the worker gave no reason")
        self._answer(session, dispatch)
        if report.kind == "drained" or message.status == "cancelled":
            self._again(call, now)
            return
        if report.kind == "crashed":
            call.crashes += 1
        if report.retryable or report.kind in ("retryable", "crashed", "stale_input", "pull_failed", "no_memory"):
            self._count_failure(session, call, report.kind, now)
            return
        elapsed = _seconds(message.timings.get("kernel_s", 0.0))
        self.scheduler.fail(call, report, session.worker, elapsed, now)
        self._tell("call_failed", now, session, {"kind": report.kind}, call)

    # Heartbeats and silence ---------------------------------------------------------------------------------------

    def _heartbeat(self, session: Session, beat: Heartbeat, now: float) -> None:
        if beat.number <= session.beat:
            return  # an older one is life, no more
        session.beat = beat.number
        session.full = False
        session.mem_free = max(beat.mem_free, 0)
        session.cache_bytes = max(beat.cache_bytes, 0)
        session.load = beat.load if math.isfinite(beat.load) and beat.load >= 0 else session.load
        for buffer, version in beat.evicted[:256]:
            session.lose(buffer, version)
        stop = self._inventory(session, beat, now)
        session.running = sum(job.phase == 2 for job in beat.jobs)
        session.queued = max(len(session.calls), len(beat.jobs)) - session.running
        self._send(session.link, HeartbeatAck(beat.number, beat.sent_at, stop))
        if session.state == "joining":
            self._begin_probing(session, now)
        self.scheduler.reconsider(now)
        self.scheduler.advance(now)

    def _inventory(self, session: Session, beat: Heartbeat, now: float) -> list[tuple[int, int]]:
        """Compare what the worker has with what it was given (OFF-605, OFF-608)."""
        stop: list[tuple[int, int]] = []
        listed: dict[tuple[int, int], tuple[int, int]] = {
            (job.call, job.fence): (job.phase, job.bytes) for job in beat.jobs
        }
        listed.update({(call, fence): (3, size) for call, fence, size in beat.unacked})
        for (number, fence), (phase, size) in listed.items():
            dispatch = self._current(session, number, fence)
            if dispatch is None:
                if number not in session.probes and phase != 3:
                    stop.append((number, fence))
                continue
            dispatch.misses = 0
            call = dispatch.call
            if phase in (0, 2) or size > dispatch.listed_bytes:
                dispatch.touched_at = now
            dispatch.listed_bytes = max(size, dispatch.listed_bytes)
            if call.phase in (Phase.SENT, Phase.ACCEPTED):
                call.phase = Phase.RUNNING if phase == 2 else Phase.ACCEPTED
        settle = 2 * session.rtt_s if session.rtt_s else UNKNOWN_RTT_S
        for dispatch in list(session.calls.values()):
            if (dispatch.call.number, dispatch.fence) in listed or dispatch.call.phase is Phase.FETCHING:
                continue
            if dispatch.flushed_at is not None and now > dispatch.flushed_at + settle:
                dispatch.misses += 1
                if dispatch.misses >= self.options.inventory_misses:
                    self._give_up(session, dispatch, "inventory", now)
        return stop

    def _judge(self, session: Session, now: float) -> None:
        if not session.living:
            return
        options = self.options
        silence = now - session.last_bytes_at
        if silence > options.liveness_timeout_s:
            self._bury(session, f"silent for {silence:.1f} s", now)
            return
        if session.state == "live" and silence > options.suspect_after_s:
            session.state = "suspect"
            self._tell("worker_suspect", now, session)
        if session.state == "probing" and (not session.probes or now - session.probe_at > 30.0):
            self._become_live(session, now)
        for dispatch in list(session.calls.values()):
            call = dispatch.call
            if session.calls.get(call.number) is not dispatch:
                continue
            deadline = call.result_deadline_s if call.result_deadline_s is not None else options.result_deadline_s
            if now - dispatch.touched_at > options.call_deadline_s:
                self._give_up(session, dispatch, "deadline", now)
            elif deadline is not None and now - dispatch.sent_at > deadline:
                self._give_up(session, dispatch, "result_deadline", now)
            elif call.phase is Phase.FETCHING and now - dispatch.moved_at > options.pull_timeout_s:
                self._fetch_again(session, dispatch, now)

    def _judge_remote_calls(self, now: float) -> None:
        waiting = self.scheduler.ready_remote
        if not waiting or self.live:
            self._remote_since = None
        if not waiting:
            return
        for call in waiting:
            reason = call.decline.reason if call.decline is not None else "no_live_worker"
            if reason == "all_busy":
                call.ready_at = max(call.ready_at, now - self.options.no_worker_wait_s / 2)
            elif now - call.ready_at > self.options.no_worker_wait_s:
                out = self.explanations.left_out(call)
                self.scheduler.unavailable(call, now - call.ready_at, self.live, out, now)

    def _forgive(self, paused: float) -> None:
        for peer in self.peers.values():
            peer.greeted_at += paused
        for session in self._names.values():
            session.last_bytes_at += paused
            session.probe_at += paused
            for dispatch in session.calls.values():
                dispatch.touched_at += paused
                dispatch.moved_at += paused

    def _bury(self, session: Session, reason: str, now: float) -> None:
        """The session is dead: its link is closed and its calls are ready at once (OFF-604)."""
        session.state, session.reason = "dead", reason
        self._part(session, reason)
        self._tell("worker_dead", now, session, {"reason": reason})
        for dispatch in list(session.calls.values()):
            self._failed_attempt(session, dispatch, "death", now)
        self.scheduler.advance(now)

    def _gone(self, session: Session, reason: str, now: float) -> None:
        session.state, session.reason = "gone", reason
        self._part(session, reason)
        self._tell("worker_left", now, session, {"reason": reason})
        for dispatch in list(session.calls.values()):
            self._forget(session, dispatch)
            self._release_regions(dispatch, ended=False)
            self._again(dispatch.call, now)
        self.scheduler.advance(now)

    def _part(self, session: Session, reason: str) -> None:
        self.peers.pop(session.link, None)
        self._landing.pop(session.link, None)
        if self._names.get(session.worker) is session:
            del self._names[session.worker]
        del self.sessions[session.uid]
        self._out.append(Close(session.link, reason))

    def _draining(self, session: Session, now: float) -> None:
        if session.state in ("joining", "probing", "live", "suspect"):
            session.state = "draining"
            self._tell("worker_draining", now, session)

    # Attempts that came to nothing --------------------------------------------------------------------------------

    def _give_up(self, session: Session, dispatch: Dispatch, why: str, now: float) -> None:
        self._send(session.link, Cancel(dispatch.call.number, dispatch.fence))
        self._failed_attempt(session, dispatch, why, now)

    def _failed_attempt(self, session: Session, dispatch: Dispatch, why: str, now: float) -> None:
        self._forget(session, dispatch)
        self._release_regions(dispatch, ended=False)
        self._count_failure(session, dispatch.call, why, now)

    def _count_failure(self, session: Session, call: Call, why: str, now: float) -> None:
        """After the last counted attempt the call stays here, if it may (OFF-609)."""
        session.recent_failures += 1
        call.attempts_on.append(session.worker)
        call.failed_on.add(session.worker)
        call.ran_on = None
        self.explanations.failed(call, now, f"{why} on {session.worker}")
        if len(call.attempts_on) < self.options.attempts:
            self.scheduler.requeue(call, now)
        elif call.place == "remote":
            self.scheduler.unavailable(call, now - call.ready_at, self.live, (f"{why} on {session.worker}",), now)
        else:
            call.pinned_local = True
            tried = ", ".join(call.attempts_on)
            self.scheduler.queue_local(
                call, Decline("pinned_local", f"{len(call.attempts_on)} attempts failed ({tried}: {why})")
            )
        self.scheduler.advance(now)

    def _again(self, call: Call, now: float) -> None:
        call.ran_on = None
        self.scheduler.requeue(call, now)
        self.scheduler.advance(now)

    def _forget(self, session: Session, dispatch: Dispatch) -> None:
        if session.calls.pop(dispatch.call.number, None) is not None:
            session.backlog_s -= dispatch.call.expected_s

    def _current(self, session: Session, number: int, fence: int) -> Dispatch | None:
        """Return the dispatch that a message speaks of, if it is still the call's own (OFF-501)."""
        dispatch = session.calls.get(number)
        if dispatch is None or dispatch.fence != fence or dispatch.call.fence != fence:
            return None
        return dispatch if dispatch.call.phase in REMOTE_PHASES else None

    def _ended_with(self, number: int, fence: int) -> None:
        self._ended[number] = fence
        while len(self._ended) > REMEMBERED_ENDS:
            del self._ended[next(iter(self._ended))]

    # Bytes in -----------------------------------------------------------------------------------------------------

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
            # Copied at once: the worker uses its segment again as soon as it has the acknowledgement.
            bytes_of(dispatch.arrays[index])[:] = seen
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

    def _observe_down(self, session: Session, dispatch: Dispatch, now: float) -> None:
        size = sum(dispatch.fetched)
        spent = now - dispatch.fetch_at
        if size > 256 * 1024 and spent > 0:
            session.measure_down(size / spent)

    def _fetch_failed(self, session: Session, gone: Gone, now: float) -> None:
        found = self._fetching(session, gone.transfer)
        if found is not None:
            self._give_up(session, found[0], "pull_failed", now)

    # Bytes out ----------------------------------------------------------------------------------------------------

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
        segment = self._staged(session, buffer) if pull.offset == 0 else None
        view = bytes_of(buffer._data).toreadonly()
        session.peer.outgoing.begin(Transfer(pull.transfer, view, pull.offset, pull.buf, pull.ver, segment))
        session.keep(pull.buf, pull.ver, buffer._data.nbytes)

    def _staged(self, session: Session, buffer: Any) -> tuple[str, int] | None:
        """On one host: one copy into a segment, which the worker maps (OFF-709)."""
        if session.shm != "on" or self._regions is None or buffer._data.nbytes < 1 << 20:
            return None
        return self._regions.stage(buffer._id, buffer._version, bytes_of(buffer._data))

    def _shared_outputs(self, dispatch: Dispatch) -> list[Array]:
        arrays = []
        for buffer, region in zip(dispatch.call.writes, dispatch.regions, strict=True):
            if region is None:
                arrays.append(np.empty(buffer.shape, buffer.dtype))
            else:
                arrays.append(region.array(buffer._data.dtype, buffer._data.shape))
        return arrays

    def _release_regions(self, dispatch: Dispatch, *, ended: bool, keep_outputs: bool = False) -> None:
        """Regions are used again only after a RESULT of every fence that was given them; else they are lost (OFF-708)."""
        if self._regions is None:
            return
        for buffer in dispatch.call.reads:
            if buffer._region is not None and ended:
                buffer._region.users.discard(dispatch.fence)
        for region in dispatch.regions:
            if region is not None:
                if ended:
                    region.users.discard(dispatch.fence)
                if not keep_outputs:
                    self._regions.retire(region, viewed=False)

    def _release_fence(self, fence: int) -> None:
        if self._regions is not None:
            self._regions.ended(fence)

    # Small things -------------------------------------------------------------------------------------------------

    def _digest_flag(self) -> int:
        return BODY_DIGEST if self.options.verify == "full" else 0

    def _send(self, link: int, message: Message) -> None:
        self._out.append(Send(link, Frame(message)))

    def _send_bulk(self, session: Session, frame: Frame) -> None:
        session.peer.outgoing.queued(frame)
        self._out.append(Send(session.link, frame))

    def _tell(
        self,
        kind: str,
        now: float,
        session: Session | None,
        detail: dict[str, object] | None = None,
        call: Call | None = None,
    ) -> None:
        event = OffloadEvent(
            at=now, kind=kind, worker=session.worker if session is not None else None,
            session=session.number if session is not None else None,
            call=CallNumber(call.number) if call is not None else None,
            kernel=call.kernel_name if call is not None else None, detail=detail or {},
        )  # fmt: skip
        self._out.append(Tell(event))

    def _warn(self, kernel: str, reason: str, text: str, now: float, session: Session | None = None) -> None:
        if (kernel, reason) not in self._warned:
            self._warned.add((kernel, reason))
            self._tell("warning", now, session, {"kernel": kernel, "reason": reason, "text": text})

    def _policy_failed(self, call: Call, text: str) -> None:
        self._warn(call.kernel_name, "policy_error", text, self._last_tick or 0.0)


def fingerprint(numeric: dict[str, str]) -> dict[str, str]:
    """Keep what decides the bytes of a result: Python and platform may differ (section 4)."""
    return {key: value for key, value in numeric.items() if key not in ("python", "platform", "byteorder")}


def _seconds(value: float) -> float:
    return value if math.isfinite(value) and value >= 0 else 0.0


__all__ = ["LIVING", "MasterCore", "fingerprint", "same_bytes"]
