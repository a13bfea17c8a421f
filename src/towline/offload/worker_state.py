"""What a worker knows of its masters and jobs, and how slots are filled (section 5, OFF-904). Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from towline.offload.actions import Close, Send
from towline.offload.bonds import REMEMBERED_ENDS, Bond, Connect, EndAgent, StartKernel, StopKernel, WorkerAction
from towline.offload.cache import CopyCache
from towline.offload.frames import BODY_DIGEST, OPTIONAL, Frame
from towline.offload.jobs import Job, Stage, WaitingJobs
from towline.offload.messages import Returned

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from towline.offload.messages import (
        Message,
    )
    from towline.offload.options import AgentOptions
    from towline.offload.pieces import Memory
    from towline.offload.registry import KernelRegistry


class WorkerState:
    """What a worker knows, and how its slots are filled; each layer above adds one kind of event."""

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
        self.slots, self.max_jobs = options.slots_here, options.jobs_here
        self._boots = 0
        self._next_transfer = 1
        self._running: set[int] = set()
        self._waiting = WaitingJobs()
        self._results = 0
        self._latest_s: dict[str, float] = {}
        self._out: list[WorkerAction] = []
        self._last_tick: float | None = None
        self._lost_since: float | None = None
        self._reconnect_s = options.reconnect_s
        self._epochs: dict[str, int] = {}
        self.ended = False
        self.draining = False
        self.result_bytes = 0
        self.executions: OrderedDict[tuple[bytes, int, int], int] = OrderedDict()
        self.rejected_frames = self.dropped_frames = 0
        self.tick_s = 0.25

    @property
    def has_actions(self) -> bool:
        """Whether anything is to be done."""
        return bool(self._out)

    def take(self) -> list[WorkerAction]:
        """Return what is to be done, and forget it."""
        for link, transfer in self._memory.returned():
            if link in self.bonds:
                self._out.append(Send(link, Frame(Returned([transfer]), flags=OPTIONAL)))
        out, self._out = self._out, []
        return out

    @property
    def held_jobs(self) -> int:
        """Jobs of all bonds."""
        return sum(len(bond.jobs) for bond in self.bonds.values())

    def _digest_flag(self, bond: Bond) -> int:
        return BODY_DIGEST if bond.digests else 0

    def _send(self, bond: Bond, message: Message) -> None:
        self._out.append(Send(bond.link, Frame(message)))

    def _send_bulk(self, bond: Bond, frame: Frame) -> None:
        bond.outgoing.queued(frame)
        self._out.append(Send(bond.link, frame))

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

    def _finished(self, bond: Bond, call: int, fence: int) -> None:
        """Remember that a (call, fence) is over: a late duplicate of it must run nothing (OFF-611)."""
        bond.done[call] = max(fence, bond.done.get(call, 0))
        while len(bond.done) > REMEMBERED_ENDS:
            bond.done.popitem(last=False)

    def _unpin(self, job: Job) -> None:
        keys, job.keys = job.keys, []
        for key in keys:
            self.cache.unpin(key)

    def _drop(self, bond: Bond, job: Job, now: float) -> None:
        """Forget a job; if it runs, stop it. Its slot is free when the kernel has really ended."""
        if job.stage is Stage.RUNNING:
            job.cancel.set()
            self._out.append(StopKernel(job))
        elif job.stage is Stage.UNACKED:
            self._results -= 1
            self.result_bytes -= job.kept_bytes
        for incoming in bond.incoming.values():
            incoming.jobs = [entry for entry in incoming.jobs if entry[0] is not job]
        for transfer in job.transfers_out:
            bond.outgoing.drop(transfer)
        job.stage = Stage.DROPPED
        self._unpin(job)
        job.inputs, job.outputs = [], []
        if bond.jobs.get(job.call) is job:
            del bond.jobs[job.call]

    def _results_full(self) -> bool:
        if self._results >= self.options.result_entries:
            return True
        return bool(self._results) and self.result_bytes >= self.options.result_bytes

    def _start_jobs(self, now: float) -> None:
        """Fill the slots, unless too many results wait for their acknowledgement (OFF-972)."""
        while (
            len(self._running) < self.slots and not self._results_full() and (job := self._waiting.take()) is not None
        ):
            job.stage = Stage.RUNNING
            job.started_at = now
            self._running.add(id(job))
            bond = self.bonds[job.link]
            key = (bond.run, job.call, job.fence)
            self.executions[key] = self.executions.get(key, 0) + 1
            while len(self.executions) > REMEMBERED_ENDS:
                self.executions.popitem(last=False)
            self._out.append(StartKernel(job))

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

    def _end_when_empty(self) -> None:
        if self.draining and not self.bonds:
            self._finish_agent(0, "drained")
