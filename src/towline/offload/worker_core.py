"""The worker's half of the protocol: events and time in, messages and kernels to start out (section 5). Pure.

One core serves any number of masters, each over its own link and in its own session; slots, cache and byte
limits are shared (OFF-904).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.access.tokens import proof, same_secret
from towline.errors.offload import FrameError
from towline.offload.actions import Send, Trust
from towline.offload.bonds import INLINE_RESULT_LIMIT, REMEMBERED_ENDS, Bond, Connect, StopKernel
from towline.offload.jobs import Job, Stage
from towline.offload.messages import (
    PROTOCOL,
    Auth,
    Bye,
    CallAck,
    CallMessage,
    Cancel,
    Challenge,
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
    JobReport,
    KernelOffer,
    Message,
    Reject,
    Result,
    ResultAck,
    Welcome,
)
from towline.offload.outgoing import Outgoing
from towline.offload.pieces import ArrayPlan
from towline.offload.worker_inputs import Inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.offload.frames import Frame, Head


_OF_LINKS = (Challenge, Welcome, Reject, Bye, ErrorMessage)
"""Messages that may come before a session stands, or end it."""


class WorkerCore(Inputs):
    """Bonds with masters, jobs, cache and slots of one agent."""

    def start(self, now: float) -> None:
        """Begin: dial, if this side dials."""
        self._lost_since = now
        if self._dials:
            self._out.append(Connect(now))

    def link_up(self, link: int, now: float) -> None:
        """A link is there; the master speaks first."""
        self._boots += 1
        session = (self._boots << 32) | self._random.getrandbits(32)
        outgoing = Outgoing(lambda frame: self._out.append(Send(link, frame)))
        self.bonds[link] = Bond(link, session, self._random.randbytes(32), outgoing, now, self.options.hello_retry_s)

    def link_failed(self, now: float) -> None:
        """The master could not be reached."""
        self._dial_again(now)

    def bytes_in(self, link: int, count: int, now: float) -> None:
        """Bytes arrived. Only HB_ACK proves that the master hears us (OFF-617), so nothing follows from it here."""

    def flushed(self, link: int, frame: Frame, now: float) -> None:
        """A bulk frame has left by its link."""
        bond = self.bonds.get(link)
        if bond is None:
            return
        message = frame.message
        number = message.call if isinstance(message, Result) else None
        if isinstance(message, Data):
            number = next((job.call for job in bond.jobs.values() if message.transfer in job.transfers_out), None)
        if number is not None and (job := bond.jobs.get(number)) is not None and job.stage is Stage.UNACKED:
            job.sent_at = now
        bond.outgoing.flushed(frame)

    def body_for(self, link: int, head: Head, now: float) -> Sequence[memoryview] | None:
        """Say where a body goes (OFF-507, OFF-806).

        Raises:
            FrameError: This message has no body, or another one than its references say.
        """
        bond = self.bonds.get(link)
        if bond is None or not head.body_bytes:
            return []
        message = head.message
        if bond.phase == "greeting":
            raise FrameError(0, "body", "came before WELCOME")
        if isinstance(message, CallMessage):
            return self._place_of_inputs(bond, message)
        if isinstance(message, Data):
            return self._place_of_chunk(bond, message, head.body_bytes, now)
        raise FrameError(0, "body", f"belongs to no {type(message).__name__}")

    def frame(self, link: int, head: Head, landed: bool, now: float) -> None:
        """Take one whole frame.

        Raises:
            FrameError: The message does not come from a master.
        """
        bond = self.bonds.get(link)
        message = head.message
        if bond is None or message is None:
            return
        if bond.phase != "greeting" and not isinstance(message, _OF_LINKS):
            self._bond_frame(bond, message, head, landed, now)
            return
        match message:
            case Challenge():
                self._challenge(bond, message, now)
            case Welcome():
                self._welcome(bond, message, now)
            case Reject():
                self._rejected(bond, message, now)
            case Bye():
                self._bye(bond, message, now)
            case ErrorMessage():
                self._close(bond, f"{message.reason}: {message.text}", now)
            case _:
                self.dropped_frames += 1  # a worker without WELCOME drops and counts (section 10)

    def _bond_frame(self, bond: Bond, message: Message, head: Head, landed: bool, now: float) -> None:
        match message:
            case CallMessage():
                self._call(bond, message, landed, now)
            case ResultAck():
                self._result_ack(bond, message, now)
            case HeartbeatAck():
                self._heartbeat_ack(bond, message, now)
            case Data():
                self._data(bond, message, head, landed, now)
            case Gone():
                self._gone(bond, message, now)
            case Fetch():
                self._fetch(bond, message, now)
            case Cancel():
                for job in list(bond.jobs.values()):
                    if message.call in (None, job.call) and message.fence in (None, job.fence):
                        self._cancel(bond, job, now)
                if message.call is not None and message.fence is not None:
                    self._finished(bond, message.call, message.fence)
            case Evict():
                for buffer, version in message.copies:
                    self.cache.drop((bond.run, buffer, version))
            case Drain():
                self._drain_bond(bond, message.within, now)
            case _:
                raise FrameError(0, "type", f"{type(message).__name__} does not come from a master")

    def broken(self, link: int, error: FrameError, now: float) -> None:
        """A link carried bytes that are no valid frame."""
        self.rejected_frames += 1
        bond = self.bonds.get(link)
        if bond is not None:
            self._send(bond, ErrorMessage("protocol", 0, str(error)[:500]))
            self._close(bond, str(error), now)

    def drain(self, now: float) -> None:
        """Take no new calls, let running ones end, then leave (OFF-618)."""
        if self.draining:
            return
        self.draining = True
        for bond in list(self.bonds.values()):
            if bond.phase == "active":
                self._send(bond, Drain(self.options.drain_timeout_s))
            self._drain_bond(bond, self.options.drain_timeout_s, now)
        self._end_when_empty()

    def tick(self, now: float) -> None:
        """Send what is due, and judge every silence; a pause of this process counts for nobody."""
        if self._last_tick is not None and now - self._last_tick > 4 * self.tick_s:
            paused = now - self._last_tick - self.tick_s
            for bond in self.bonds.values():
                bond.heard_at += paused
                for incoming in bond.incoming.values():
                    incoming.touched_at += paused
        self._last_tick = now
        for bond in list(self.bonds.values()):
            if bond.phase == "greeting":
                self._greet(bond, now)
            else:
                self._keep(bond, now)
        if not self.bonds and self._dials and not self.ended and self._lost_since is not None:
            if self.draining:
                self._finish_agent(0, "drained")
            elif now - self._lost_since > self.options.master_timeout_s:
                self._finish_agent(4, f"the master was not reached for {self.options.master_timeout_s:g} s")
        self._start_jobs(now)

    def _challenge(self, bond: Bond, message: Challenge, now: float) -> None:
        if not message.protocol_min <= PROTOCOL <= message.protocol_max:
            text = (
                f"the master speaks protocol {message.protocol_min} to {message.protocol_max}, this worker {PROTOCOL}"
            )
            self._finish_agent(2, text)
            return
        bond.challenged = True
        self._out.append(Trust(bond.link))
        bond.auth = Auth(
            self.name, bond.session, bond.nonce, PROTOCOL,
            proof(self._token, "w", message.nonce, self.name, bond.session, bond.nonce),
        )  # fmt: skip
        self._introduce(bond)
        bond.greet_at = now + bond.retry_s

    def _introduce(self, bond: Bond) -> None:
        """AUTH and HELLO together; a repeat repairs the loss of either (OFF-601)."""
        assert bond.auth is not None
        self._send(bond, bond.auth)
        devices = set(self.options.devices)
        kernels = [self._registry.get(name) for name in self._registry.names()]
        kernels = [kernel for kernel in kernels if kernel.device in devices]
        bond.offers = [kernel.name for kernel in kernels]
        self._send(bond, Hello(
            None, self.name, bond.session, [KernelOffer(k.name, k.version, k.signature) for k in kernels], self.slots,
            self._mem_total, self.mem_free(), self._host_id, self.options.shm and bool(self._shm_trial), list(self.options.devices),
            self._numeric, self._program, self.options.jobs_here, self._shm_trial,
        ))  # fmt: skip

    def _greet(self, bond: Bond, now: float) -> None:
        if now < bond.greet_at:
            return
        if (
            not bond.challenged
            or now - bond.opened_at > 6 * self.options.hello_retry_s + self.options.connect_timeout_s
        ):
            self._close(bond, "no answer to the greeting", now)
            return
        self._introduce(bond)
        bond.retry_s = min(bond.retry_s * 1.5, 5.0)
        bond.greet_at = now + bond.retry_s

    def _welcome(self, bond: Bond, message: Welcome, now: float) -> None:
        if bond.phase != "greeting":
            return
        expected = proof(self._token, "m", bond.nonce, message.run)
        if not same_secret(expected, message.proof):
            self._finish_agent(2, "the master does not know the token of this worker")
            return
        if message.task is not None and message.epoch is not None:
            if message.epoch < self._epochs.get(message.task, 0):
                self._send(
                    bond, ErrorMessage("superseded", 0, f"{message.task} {message.epoch} {self._epochs[message.task]}")
                )
                self._close(bond, "a later epoch of the task is known", now)
                return
            self._supersede(message.task, message.epoch, now)
        bond.phase, bond.run, bond.task, bond.epoch = "active", message.run, message.task, message.epoch
        bond.kernels = {number: name for name, number in message.kernel_numbers}
        bond.timers.update({name: value for name, value in message.timers.items() if 0 < value < 86_400})
        bond.offer_bytes = min(max(message.limits.get("offer_bytes", bond.offer_bytes), 0), INLINE_RESULT_LIMIT)
        bond.pull_tries = max(message.limits.get("pull_tries", bond.pull_tries), 1)
        bond.max_buffer_bytes = message.limits.get("max_buffer_bytes", bond.max_buffer_bytes)
        bond.shares = bool(message.limits.get("shm", 0))
        bond.digests = bool(message.limits.get("verify", 0))
        bond.outgoing = Outgoing(lambda frame: self._out.append(Send(bond.link, frame)), digests=bond.digests)
        bond.heard_at = now
        self.tick_s = min(self.tick_s, bond.timers["heartbeat_interval_s"] / 4)
        self._lost_since, self._reconnect_s = None, self.options.reconnect_s
        self._beat(bond, now)
        if self.draining:
            self._drain_bond(bond, self.options.drain_timeout_s, now)

    def _supersede(self, task: str, epoch: int, now: float) -> None:
        """A higher epoch of a task was seen: sessions of a lower one are fenced out (OFF-906)."""
        self._epochs[task] = epoch
        while len(self._epochs) > REMEMBERED_ENDS:
            del self._epochs[next(iter(self._epochs))]
        for other in list(self.bonds.values()):
            if other.task == task and other.epoch is not None and other.epoch < epoch:
                self._send(other, ErrorMessage("superseded", 0, f"{task} {other.epoch} {epoch}"))
                self._close(other, "a later epoch of the task is known", now)

    def _rejected(self, bond: Bond, message: Reject, now: float) -> None:
        if message.retry_after is None or not self._dials:
            self._close(bond, f"rejected: {message.reason}", now)
            if self._dials:
                self._finish_agent(2, f"{message.reason}: {message.text}")
            return
        self._reconnect_s = min(max(message.retry_after, 0.01), 60.0)
        self._close(bond, f"rejected for now: {message.reason}", now)

    def _bye(self, bond: Bond, message: Bye, now: float) -> None:
        self._close(bond, message.reason, now)
        if self._dials:
            self._finish_agent(0, message.reason or "the master said goodbye")

    def _keep(self, bond: Bond, now: float) -> None:
        timers = bond.timers
        if now - bond.heard_at > timers["liveness_timeout_s"]:
            self._close(bond, f"the master did not answer for {now - bond.heard_at:.1f} s", now)
            return
        if now >= bond.beat_at:
            self._beat(bond, now)
        for job in list(bond.jobs.values()):
            if job.stage is Stage.UNACKED and job.sent_at is not None and now - job.sent_at > timers["result_resend_s"]:
                self._send_result(bond, job, now)
        for incoming in list(bond.incoming.values()):
            if now - incoming.touched_at > timers["pull_timeout_s"]:
                self._pull_again(bond, incoming, now)
        if bond.drain_by is not None:
            self._keep_draining(bond, now)

    def _beat(self, bond: Bond, now: float) -> None:
        bond.beat += 1
        bond.beat_at = now + bond.timers["heartbeat_interval_s"]
        jobs, unacked = [], []
        for job in bond.jobs.values():
            if job.stage is Stage.UNACKED:
                unacked.append((job.call, job.fence, job.pulled))
            else:
                elapsed = now - job.started_at if job.stage is Stage.RUNNING else 0.0
                jobs.append(JobReport(job.call, job.fence, int(job.stage), elapsed, job.pulled))
        evicted = self.cache.evicted.get(bond.run)
        gone = [evicted.popleft() for _ in range(min(len(evicted), 256))] if evicted else []
        load = len(self._running) / self.slots
        self._send(bond, Heartbeat(
            bond.session, bond.beat, now, jobs, unacked, max(self.mem_free(), 0), self.cache.used_bytes, load, gone
        ))  # fmt: skip

    def _heartbeat_ack(self, bond: Bond, ack: HeartbeatAck, now: float) -> None:
        bond.heard_at = now
        trip = now - ack.sent_at
        if 0 <= trip < 3600:
            bond.rtt_s = trip if bond.rtt_s == 0 else bond.rtt_s + (trip - bond.rtt_s) / 8
        for call, fence in ack.stop:
            job = bond.jobs.get(call)
            if job is not None and job.fence == fence:
                self._drop(bond, job, now)
                self._finished(bond, call, fence)

    def _call(self, bond: Bond, message: CallMessage, landed: bool, now: float) -> None:
        pieces, bond.landing = bond.landing, []
        verdict = self._admit(bond, message, now)
        if verdict != "accepted":
            self._send(bond, CallAck(message.call, message.fence, verdict))
            return
        try:
            reads = [ArrayPlan(ref, bond.max_buffer_bytes) for ref in message.reads]
            writes = [ArrayPlan(ref, bond.max_buffer_bytes) for ref in message.writes]
        except ValueError as error:
            raise FrameError(0, "reference", str(error)) from error
        if message.kid == 0:
            self._echo(bond, message, reads, writes, [piece for _, piece in pieces], now)
            return
        name = bond.kernels.get(message.kid)
        if name is None or name not in self._registry:
            self._send(bond, CallAck(message.call, message.fence, "unknown_kernel"))
            return
        needed = sum(plan.nbytes for plan in (*reads, *writes) if plan.ref.segment is None)
        if not self.cache.room_for(needed):
            self._send(bond, CallAck(message.call, message.fence, "no_memory"))
            return
        job = Job(bond.link, message, self._registry.function(name), reads, writes)
        bond.jobs[job.call] = job
        for plan, piece in pieces:
            if plan.ref.buffer_id:
                self.cache.put((bond.run, plan.ref.buffer_id, plan.ref.version), piece)
        if not self._answers_at_once(name):
            self._send(bond, CallAck(message.call, message.fence, "accepted"))
        self._gather(bond, job, {id(plan.ref): piece for plan, piece in pieces}, [piece for _, piece in pieces], now)

    def _admit(self, bond: Bond, message: CallMessage, now: float) -> str:
        if message.fence <= bond.done.get(message.call, 0):
            return "duplicate" if message.fence == bond.done[message.call] else "superseded"
        known = bond.jobs.get(message.call)
        if known is not None:
            if message.fence == known.fence:
                if known.stage is Stage.UNACKED:
                    self._send_result(bond, known, now)
                return "duplicate"
            if message.fence < known.fence:
                return "superseded"
            if (
                known.stage is Stage.RUNNING
                and not known.shared
                and known.same_work(message)
                and not message_shared(message)
            ):
                known.fence, known.message = message.fence, message
                for plan, ref in zip(known.writes, message.writes, strict=True):
                    plan.ref = ref
                return "duplicate"
            self._drop(bond, known, now)
        if bond.phase == "draining" or self.draining:
            return "draining"
        if self.held_jobs >= self.max_jobs and message.kid:
            return "full"
        return "accepted"

    def _drain_bond(self, bond: Bond, within: float, now: float) -> None:
        if bond.phase == "active":
            bond.phase = "draining"
        bond.drain_by = now + min(max(within, 0.0), 3600.0)
        for job in list(bond.jobs.values()):
            if job.stage in (Stage.QUEUED, Stage.PULLING):
                self._fail(bond, job, ErrorReport("drained", "Drained", "the worker is leaving", "", True), now)
        self._keep_draining(bond, now)

    def _keep_draining(self, bond: Bond, now: float) -> None:
        assert bond.drain_by is not None
        if now >= bond.drain_by:
            for job in list(bond.jobs.values()):
                if job.stage is Stage.RUNNING:
                    self._out.append(StopKernel(job))
                    self._fail(bond, job, ErrorReport("drained", "Drained", "the worker is leaving", "", True), now)
        if not bond.jobs or now >= bond.drain_by + 2.0:
            if bond.phase == "draining":
                self._send(bond, Bye("drained"))
            bond.phase = "ended"
            self._close(bond, "drained", now)
            if self._dials:
                self._finish_agent(0, "drained")
            elif self.draining:
                self._end_when_empty()


def message_shared(message: CallMessage) -> bool:
    """Say whether a call names shared memory."""
    return any(ref.segment is not None for ref in (*message.reads, *message.writes))
