"""The worker's half of the protocol: events and time in, messages and kernels to start out (section 5). Pure.

One core serves any number of masters, each over its own link and in its own session; slots, cache and byte
limits are shared (OFF-904).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from towline.access.tokens import proof, same_secret
from towline.errors.offload import FrameError
from towline.offload.actions import Close, Send, Trust
from towline.offload.cache import CopyCache
from towline.offload.frames import BODY_DIGEST, BODY_SHM, OFFER, Frame, Head
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
    Pull,
    Reject,
    Result,
    ResultAck,
    Welcome,
)
from towline.offload.outgoing import Outgoing, Transfer
from towline.offload.pieces import ArrayPlan, Memory, Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from towline.offload.options import AgentOptions
    from towline.offload.registry import KernelRegistry

REMEMBERED_ENDS = 4_096
INLINE_RESULT_LIMIT = 4 << 20


class Connect(NamedTuple):
    """Dial the master at this moment."""

    at: float


class StartKernel(NamedTuple):
    """Run a job's kernel; its inputs are there, its outputs are to be made."""

    job: Job


class StopKernel(NamedTuple):
    """Stop a running job: nobody wants its result."""

    job: Job


class EndAgent(NamedTuple):
    """Stop serving."""

    code: int
    reason: str


WorkerAction = Send | Close | Trust | Connect | StartKernel | StopKernel | EndAgent


class Incoming:
    """One copy on its way in; the jobs that wait for it share it (OFF-513)."""

    __slots__ = ("buffer", "jobs", "number", "offset", "piece", "touched_at", "tries", "version")

    def __init__(self, number: int, buffer: int, version: int, piece: Piece, now: float) -> None:
        self.number, self.buffer, self.version, self.piece = number, buffer, version, piece
        self.offset = 0
        self.tries = 0
        self.touched_at = now
        self.jobs: list[tuple[Job, int]] = []


class Bond:
    """One session with one master, seen from here: ``greeting``, ``active``, ``draining``, ``ended``."""

    def __init__(self, link: int, session: int, nonce: bytes, outgoing: Outgoing, now: float, retry_s: float) -> None:
        self.link, self.session, self.nonce, self.outgoing = link, session, nonce, outgoing
        self.phase = "greeting"
        self.challenged = False
        self.run = b""
        self.task: str | None = None
        self.epoch: int | None = None
        self.kernels: dict[int, str] = {}
        self.offers: list[str] = []
        self.auth: Auth | None = None
        self.opened_at = self.heard_at = now
        self.greet_at = now + retry_s
        self.retry_s = retry_s
        self.beat_at = now
        self.beat = 0
        self.jobs: dict[int, Job] = {}
        self.done: dict[int, int] = {}
        self.incoming: dict[int, Incoming] = {}
        self.rtt_s = 0.0
        self.timers = {
            "heartbeat_interval_s": 1.0,
            "liveness_timeout_s": 5.0,
            "result_resend_s": 2.0,
            "pull_timeout_s": 5.0,
        }
        self.offer_bytes = 1 << 20
        self.max_buffer_bytes = 8 << 30
        self.pull_tries = 3
        self.digests = False
        self.shares = False
        self.landing: list[tuple[ArrayPlan, Piece]] = []
        self.drain_by: float | None = None


class WorkerCore:
    """Bonds with masters, jobs, cache and slots of one agent."""

    def __init__(
        self, name: str, registry: KernelRegistry, options: AgentOptions, memory: Memory, random: Random, *,
        token: str = "", host_id: str = "", numeric: dict[str, str] | None = None, mem_total: int = 0,
        program: str | None = None, dials: bool = True, shm_trial: str = "",
    ) -> None:  # fmt: skip
        self.name, self._registry, self.options, self._memory, self._random = name, registry, options, memory, random
        self._token, self._host_id, self._numeric, self._mem_total = token, host_id, numeric or {}, mem_total
        self._program, self._dials, self._shm_trial = program, dials, shm_trial
        self.mem_free: Callable[[], int] = lambda: 0
        limit = options.cache_bytes or min(mem_total // 4, 4 << 30) or 1 << 30
        self.cache = CopyCache(limit)
        self.bonds: dict[int, Bond] = {}
        self.slots = options.slots_here
        self._boots = 0
        self._next_transfer = 1
        self._running: set[int] = set()
        self._queue: list[Job] = []
        self._turn_link = -1
        self._out: list[WorkerAction] = []
        self._last_tick: float | None = None
        self._lost_since: float | None = None
        self._reconnect_s = options.reconnect_s
        self._epochs: dict[str, int] = {}
        self.ended = False
        self.draining = False
        self.result_bytes = 0
        self.executions: dict[tuple[bytes, int, int], int] = {}
        self.rejected_frames = self.dropped_frames = 0
        self.tick_s = 0.25

    # Events -------------------------------------------------------------------------------------------------------

    def take(self) -> list[WorkerAction]:
        """Return what is to be done, and forget it."""
        out, self._out = self._out, []
        return out

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

    def link_down(self, link: int, reason: str, now: float) -> None:
        """A link is gone, and with it its session: its jobs are dropped, the cache stays (OFF-602)."""
        bond = self.bonds.pop(link, None)
        if bond is None:
            return
        for job in list(bond.jobs.values()):
            self._drop(bond, job, now)
        bond.incoming.clear()
        bond.phase = "ended"
        if self.ended:
            return
        if self.draining:
            self._end_when_empty()
        elif self._dials:
            self._lost_since = now if self._lost_since is None else self._lost_since
            self._dial_again(now)
        self._start_jobs(now)

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
            return self._place_of_chunk(bond, message, head.body_bytes)
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
                if bond.phase == "greeting":
                    self.dropped_frames += 1  # a worker without WELCOME drops and counts (section 10)
                else:
                    self._bond_frame(bond, message, head, landed, now)

    def _bond_frame(self, bond: Bond, message: Message, head: Head, landed: bool, now: float) -> None:
        match message:
            case HeartbeatAck():
                self._heartbeat_ack(bond, message, now)
            case CallMessage():
                self._call(bond, message, landed, now)
            case Data():
                self._data(bond, message, head, landed, now)
            case Gone():
                self._gone(bond, message, now)
            case Fetch():
                self._fetch(bond, message, now)
            case ResultAck():
                self._result_ack(bond, message, now)
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

    def kernel_finished(self, job: Job, outputs: list[Piece], kernel_s: float, now: float) -> None:
        """A kernel returned."""
        if self._leave_slot(job, now):
            job.outputs, job.kernel_s = outputs, kernel_s
            self._finish(job, now)

    def kernel_failed(self, job: Job, error: ErrorReport, kernel_s: float, now: float) -> None:
        """A kernel raised, died, or was stopped at its limit."""
        if self._leave_slot(job, now):
            job.error, job.status, job.kernel_s = error, "failed", kernel_s
            self._finish(job, now)

    def slot_lost(self) -> None:
        """A thread was abandoned: its slot is gone while it runs (OFF-113)."""
        self.slots = max(self.slots - 1, 1)

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

    @property
    def held_jobs(self) -> int:
        """Jobs of all bonds."""
        return sum(len(bond.jobs) for bond in self.bonds.values())

    # Greeting -----------------------------------------------------------------------------------------------------

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

    # Life ---------------------------------------------------------------------------------------------------------

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

    # Jobs ---------------------------------------------------------------------------------------------------------

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
        if self.held_jobs >= self.options.jobs_here and message.kid:
            return "full"
        return "accepted"

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
        piece = self._memory.allocate(plan.nbytes)
        if piece is None:
            self._fail(bond, job, ErrorReport("no_memory", "MemoryError", f"{plan.nbytes} bytes", "", True), now)
            return
        incoming = Incoming(self._next_transfer, plan.ref.buffer_id, plan.ref.version, piece, now)
        self._next_transfer += 1
        incoming.jobs.append((job, index))
        bond.incoming[incoming.number] = incoming
        self._send(bond, Pull(incoming.number, incoming.buffer, incoming.version, 0))

    def _when_complete(self, bond: Bond, job: Job, now: float) -> None:
        if job.wanted == 0 and job.stage is Stage.PULLING:
            job.stage = Stage.QUEUED
            self._queue.append(job)
            self._start_jobs(now)

    def _start_jobs(self, now: float) -> None:
        """Fill the slots: by turns between masters, then by priority, then by fence (OFF-904)."""
        while self._queue and len(self._running) < self.slots and not self._results_full():
            links = sorted({job.link for job in self._queue})
            link = next((number for number in links if number > self._turn_link), links[0])
            self._turn_link = link
            job = min((j for j in self._queue if j.link == link), key=lambda j: (-j.message.priority, j.fence))
            self._queue.remove(job)
            job.stage = Stage.RUNNING
            job.started_at = now
            self._running.add(id(job))
            bond = self.bonds[job.link]
            key = (bond.run, job.call, job.fence)
            self.executions[key] = self.executions.get(key, 0) + 1
            while len(self.executions) > REMEMBERED_ENDS:
                del self.executions[next(iter(self.executions))]
            self._out.append(StartKernel(job))

    def _results_full(self) -> bool:
        results = [job for bond in self.bonds.values() for job in bond.jobs.values() if job.stage is Stage.UNACKED]
        if len(results) >= self.options.result_entries:
            return True
        return bool(results) and sum(job.kept_bytes for job in results) >= self.options.result_bytes

    def _leave_slot(self, job: Job, now: float) -> bool:
        """Free the slot of a job; False if nobody wants its result any more."""
        self._running.discard(id(job))
        bond = self.bonds.get(job.link)
        wanted = bond is not None and bond.jobs.get(job.call) is job and job.stage is Stage.RUNNING
        if not wanted:
            self._start_jobs(now)
        return wanted

    def _finish(self, job: Job, now: float) -> None:
        bond = self.bonds[job.link]
        job.stage = Stage.UNACKED
        job.inputs = []
        self._unpin(job)
        self._send_result(bond, job, now)
        self._start_jobs(now)

    def _fail(self, bond: Bond, job: Job, error: ErrorReport, now: float) -> None:
        if job.stage in (Stage.UNACKED, Stage.DROPPED):
            return
        if job.stage is Stage.QUEUED:
            self._queue.remove(job)
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

    def _drop(self, bond: Bond, job: Job, now: float) -> None:
        """Forget a job; if it runs, stop it. Its slot is free when the kernel has really ended."""
        if job.stage is Stage.RUNNING:
            job.cancel.set()
            self._out.append(StopKernel(job))
        elif job.stage is Stage.QUEUED:
            self._queue.remove(job)
        for incoming in list(bond.incoming.values()):
            incoming.jobs = [entry for entry in incoming.jobs if entry[0] is not job]
        for transfer in job.transfers_out:
            bond.outgoing.drop(transfer)
        job.stage = Stage.DROPPED
        self._unpin(job)
        job.inputs, job.outputs = [], []
        if bond.jobs.get(job.call) is job:
            del bond.jobs[job.call]

    def _unpin(self, job: Job) -> None:
        keys, job.keys = job.keys, []
        for key in keys:
            self.cache.unpin(key)

    def _finished(self, bond: Bond, call: int, fence: int) -> None:
        """Remember that a (call, fence) is over: a late duplicate of it must run nothing (OFF-611)."""
        bond.done[call] = max(fence, bond.done.get(call, 0))
        while len(bond.done) > REMEMBERED_ENDS:
            del bond.done[next(iter(bond.done))]

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

    # Results ------------------------------------------------------------------------------------------------------

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

    # Bytes in -----------------------------------------------------------------------------------------------------

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

    def _place_of_chunk(self, bond: Bond, data: Data, size: int) -> list[memoryview] | None:
        incoming = bond.incoming.get(data.transfer)
        if incoming is None:
            return None
        if data.total != incoming.piece.nbytes or data.offset + size > data.total:
            raise FrameError(
                0, "data", f"chunk {data.offset}+{size} of {data.total}, expected {incoming.piece.nbytes} in all"
            )
        if data.offset != incoming.offset:
            return None
        return [incoming.piece.view[data.offset : data.offset + size]]

    def _data(self, bond: Bond, data: Data, head: Head, landed: bool, now: float) -> None:
        incoming = bond.incoming.get(data.transfer)
        if incoming is None:
            self.dropped_frames += 1
            return
        if head.flags & BODY_SHM and data.segment is not None:
            mapped = self._memory.attach(data.segment, incoming.piece.nbytes, writable=False)
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
        if incoming.offset >= incoming.piece.nbytes:
            self._arrived(bond, incoming, now)

    def _arrived(self, bond: Bond, incoming: Incoming, now: float) -> None:
        del bond.incoming[incoming.number]
        key = (bond.run, incoming.buffer, incoming.version)
        self.cache.put(key, incoming.piece)
        for job, index in incoming.jobs:
            job.inputs[index] = incoming.piece
            job.wanted -= 1
            if self.cache.get(key) is not None:
                self.cache.pin(key)
                job.keys.append(key)
        for job, _ in incoming.jobs:
            self._when_complete(bond, job, now)

    def _pull_again(self, bond: Bond, incoming: Incoming, now: float) -> None:
        if not incoming.jobs:
            del bond.incoming[incoming.number]
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
        for job, _ in list(incoming.jobs):
            self._fail(bond, job, ErrorReport(kind, "TransferFailed", text, "", True), now)

    # Leaving ------------------------------------------------------------------------------------------------------

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

    def _end_when_empty(self) -> None:
        if self.draining and not self.bonds:
            self._finish_agent(0, "drained")

    def _close(self, bond: Bond, reason: str, now: float) -> None:
        self._out.append(Close(bond.link, reason))
        self.link_down(bond.link, reason, now)

    def _dial_again(self, now: float) -> None:
        if self.ended or not self._dials:
            return
        wait = self._reconnect_s * (0.5 + self._random.random() / 2)
        self._reconnect_s = min(max(self._reconnect_s * 2, self.options.reconnect_s), self.options.reconnect_max_s)
        self._out.append(Connect(now + wait))

    def _finish_agent(self, code: int, reason: str) -> None:
        if self.ended:
            return
        self.ended = True
        for bond in list(self.bonds.values()):
            self._out.append(Close(bond.link, reason))
            for job in bond.jobs.values():
                if job.stage is Stage.RUNNING:
                    self._out.append(StopKernel(job))
        self.bonds.clear()
        self._out.append(EndAgent(code, reason))

    # Small things -------------------------------------------------------------------------------------------------

    def _digest_flag(self, bond: Bond) -> int:
        return BODY_DIGEST if bond.digests else 0

    def _send(self, bond: Bond, message: Message) -> None:
        self._out.append(Send(bond.link, Frame(message)))

    def _send_bulk(self, bond: Bond, frame: Frame) -> None:
        bond.outgoing.queued(frame)
        self._out.append(Send(bond.link, frame))


def message_shared(message: CallMessage) -> bool:
    """Say whether a call names shared memory."""
    return any(ref.segment is not None for ref in (*message.reads, *message.writes))
