"""A whole cluster in one process under turned time: real cores, codec and shells; network and kernels are simulated."""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import Any

import numpy as np

from simulation.clockwork import Clockwork, PausedClock
from simulation.faults import Nemesis, Plan
from simulation.one_host import OneHost, SharingMemory
from simulation.runners import LateRunner, StepRunner
from towline.offload.actions import Send
from towline.offload.agent_shell import AgentShell
from towline.offload.buffer_table import BufferTable
from towline.offload.calls import Call, GraphRun
from towline.offload.engine import Engine
from towline.offload.fabric import InProcessFabric
from towline.offload.frames import body_digest
from towline.offload.kernels import kernel
from towline.offload.master import MasterCore
from towline.offload.messages import Auth, CallAck, Hello, Welcome
from towline.offload.monitor import Monitor
from towline.offload.options import AgentOptions, OffloadOptions
from towline.offload.pieces import Piece, PrivateMemory
from towline.offload.policies import LeastLoadedPolicy
from towline.offload.registry import KernelRegistry
from towline.offload.scheduler import Scheduler
from towline.offload.worker_core import WorkerCore

REGISTRY = KernelRegistry()
REPAIR_S = 0.6
"""From the moment a greeting is due again to its answer: two ticks of the worker, and the way there and back."""
TIMERS = {"heartbeat_interval_s": 1.0, "suspect_after_s": 2.0, "liveness_timeout_s": 5.0}


@kernel("sim.mix", executor="thread", registry=REGISTRY, variadic=True, min_offload_bytes=256)
def mix(reads: list[Any], writes: list[Any], *, salt: int) -> None:
    """Every output depends on every input, on its own old bytes, and on the parameter."""
    for index, out in enumerate(writes):
        total = np.uint64(salt * 2654435761 + index)
        for position, array in enumerate(reads):
            total = total * np.uint64(1099511628211) + array.sum(dtype=np.uint64) * np.uint64(position + 3)
            out += array[: out.size] if array.size >= out.size else np.resize(array, out.size)
        out += np.arange(out.size, dtype=np.uint64) * np.uint64(7) + total


class FailingMemory(PrivateMemory):
    """Has none while the plan says so."""

    def __init__(self, world: World, worker: int) -> None:
        self._world, self._worker = world, worker

    def allocate(self, nbytes: int) -> Piece | None:
        for fault in self._world.plan.faults:
            if (
                fault.kind == "no_memory"
                and fault.worker == self._worker
                and fault.start <= self._world.age < fault.end
            ):
                return None
        return super().allocate(nbytes)


class Agent:
    """One simulated worker process; a restart is a new one under the same name."""

    def __init__(self, world: World, number: int, boot: int) -> None:
        self.world, self.number = world, number
        self.name = f"w{number}"
        self.end: tuple[int, str] | None = None
        self.clock = PausedClock(world.clock)
        memory: PrivateMemory = FailingMemory(world, number)
        trial = ""
        if world.host is not None:
            memory = SharingMemory(world.host, memory)
            trial = world.host.pools[-1].trial()
        options = AgentOptions(slots=2, cache_bytes=64 << 10, shm=world.host is not None)
        self.core = WorkerCore(
            self.name, REGISTRY, options, memory, Random(f"{world.plan.seed}/agent/{number}/{boot}"),
            host_id="here" if trial else "", shm_trial=trial,
        )  # fmt: skip
        self.shell = AgentShell(
            self.core, self.clock, memory, lambda _: world.runners[number], dial=self._dial, on_end=self._ended
        )

        self._watch_cache()
        self._watch_answers()

    def start(self) -> None:
        self.shell.start()

    def _watch_cache(self) -> None:
        """O5: a copy on a worker has the bytes that the master committed under that version."""
        put, digests = self.core.cache.put, self.world.table._digest_of

        def checked(key: Any, piece: Piece) -> None:
            wanted = digests.get((key[1], key[2]))
            if wanted is not None and body_digest([piece.view]).hex() != wanted:
                raise AssertionError(f"O5: {self.name} caches other bytes as buffer {key[1]} version {key[2]}")
            put(key, piece)

        get = self.core.cache.get

        def still(key: Any) -> Piece | None:
            piece = get(key)
            wanted = digests.get((key[1], key[2])) if piece is not None else None
            if piece is not None and wanted is not None and body_digest([piece.view]).hex() != wanted:
                raise AssertionError(f"O5: what {self.name} keeps as buffer {key[1]} version {key[2]} has changed")
            return piece

        self.core.cache.get = still  # type: ignore[method-assign]
        self.core.cache.put = checked  # type: ignore[method-assign]

    def _watch_answers(self) -> None:
        """O9: a call that a worker says it has, it has."""
        call = self.core._call

        def checked(bond: Any, message: Any, landed: bool, now: float) -> None:
            call(bond, message, landed, now)
            for action in self.core._out:
                ack = action.frame.message if isinstance(action, Send) else None
                if isinstance(ack, CallAck) and ack.verdict in ("accepted", "duplicate") and message.kid:
                    held = bond.jobs.get(ack.call)
                    if (held is None or held.fence != ack.fence) and bond.done.get(ack.call) != ack.fence:
                        raise AssertionError(
                            f"O9: {self.name} acknowledged call {ack.call} fence {ack.fence} and has none"
                        )

        self.core._call = checked  # type: ignore[method-assign]

    def check_greeting(self, link: int) -> None:
        """O9: one lost AUTH, HELLO or WELCOME costs one retry, not the link."""
        bond = self.core.bonds.get(link)
        if not self.core.ended and bond is not None and bond.phase == "greeting" and bond.challenged:
            raise AssertionError(f"O9: {self.name} still waits for its WELCOME on link {link}")

    def _ended(self, code: int, reason: str) -> None:
        self.end = (code, reason)

    def _dial(self, on_link: Any, on_failed: Any) -> None:
        number = self.world.fabric._links
        self.world.nemesis.worker_of[number] = self.number
        cut = self.world.is_cut(self.number)
        if cut:
            self.clock.call_at(self.clock.time() + 1.0, on_failed, "no route")
            return
        self.world.fabric.dial(self.name, on_link)


class World:
    """Master, workers, network, workload and oracles of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.host = OneHost() if plan.shared else None
        self.clock = Clockwork()
        self.began = self.clock.time()
        self.nemesis = Nemesis(plan, self.clock.time)
        self.nemesis.on_drop = self._greeting_lost
        self.fabric = InProcessFabric(Random(f"{plan.seed}/split"), self.nemesis, timers=self.clock)
        options = OffloadOptions(
            min_offload_bytes=256,
            inline_bytes=plan.inline_bytes,
            offer_bytes=1500,
            local_slots=2,
            verify="full",
            call_deadline_s=30.0,
            result_deadline_s=plan.result_deadline_s,
            **TIMERS,
        )
        self.table = BufferTable(max_buffer_bytes=1 << 20, digests=True)
        self.table.regions = self.host.pools[0] if self.host is not None else None
        self.scheduler = Scheduler(self.table, local_slots=2)
        runner = StepRunner if self.host is None else LateRunner
        self.runners = {number: runner(self, number) for number in (-1, *range(plan.workers))}
        self.monitor = Monitor()
        self.engine = Engine(
            self.scheduler,
            self.clock,
            self.runners[-1],
            lambda: self.runners[-1],
            min_offload_bytes=256,
            monitor=self.monitor,
        )
        self.core = MasterCore(
            self.scheduler,
            options,
            REGISTRY,
            LeastLoadedPolicy(),
            Random(f"{plan.seed}/master"),
            run=Random(plan.seed).randbytes(16),
            host_id="here",
            regions=self.table.regions,
        )
        self.agents: dict[int, Agent] = {}
        self.digest = blake2b(digest_size=16)
        self.commits = 0
        self._watch_commits()
        self._watch_pushes()
        self.engine.attach(self.core)
        self.fabric.accept(self.engine.add_link)
        for number in range(plan.workers):
            self._boot(number, 0)
        self._schedule_machine_faults()

    @property
    def age(self) -> float:
        return self.clock.time() - self.began

    def is_cut(self, worker: int) -> bool:
        return any(
            f.kind == "cut_both" and f.worker == worker and f.start <= self.age < f.end for f in self.plan.faults
        )

    def _greeting_lost(self, link: int, worker: int, message: Any) -> None:
        """O9: the repetition that comes after the faults is answered, if no other fault hits it."""
        agent = self.agents.get(worker)
        if not isinstance(message, (Auth, Hello, Welcome)) or agent is None:
            return
        mine = [number for number, port in agent.shell.links._links.items() if port.number == link]
        bond = agent.core.bonds.get(mine[0]) if mine else None
        if bond is None:
            return
        faults = [fault for fault in self.plan.faults if fault.worker == worker]
        over = max((fault.end for fault in faults if fault.start <= self.age < fault.end), default=self.age)
        again, wait = bond.greet_at - self.began, bond.retry_s
        while again <= over:
            wait = min(wait * 1.5, 5.0)
            again += wait
        answered = again + REPAIR_S
        if not any(fault.start < answered and fault.end > over + 0.001 for fault in faults):
            self.clock.call_at(self.began + answered, agent.check_greeting, mine[0])

    def _boot(self, number: int, boot: int) -> None:
        self.agents[number] = Agent(self, number, boot)
        self.agents[number].start()

    def _schedule_machine_faults(self) -> None:
        for index, fault in enumerate(self.plan.faults):
            at = self.began + fault.start
            if fault.kind == "kill":
                self.clock.call_at(at, self._kill, fault.worker, fault.end, index, True)
            elif fault.kind == "vanish":
                self.clock.call_at(at, self._kill, fault.worker, fault.end, index, False)
            elif fault.kind == "pause":
                self.clock.call_at(at, self._pause, fault.worker, fault.end)
            elif fault.kind == "twin":
                self.clock.call_at(at, self._twin, fault.worker, index)

    def _kill(self, worker: int, back: float, boot: int, said: bool) -> None:
        """The process ends; with ``said`` its system closes the sockets, without it nobody hears of it."""
        agent = self.agents[worker]
        agent.shell.stopped = True
        agent.core.ended = True
        if agent.shell._tick is not None:
            agent.shell._tick.cancel()
        for here, there, name in list(self.fabric.open):
            if name == agent.name and here._owner is not None:
                here.up = False
                if said:
                    self.clock.call_soon(there.break_off, "end of stream")
        self.clock.call_at(self.began + back, self._boot, worker, boot + 1)

    def _pause(self, worker: int, until: float) -> None:
        self.agents[worker].clock.paused_until = max(self.agents[worker].clock.paused_until, self.began + until)

    def _twin(self, worker: int, boot: int) -> None:
        """A second worker of the same name: it is refused while the first one lives."""
        twin = Agent(self, worker, 1000 + boot)
        twin.start()
        self.clock.call_later(20.0, twin.shell.stop, "the twin left")

    def _watch_pushes(self) -> None:
        """O5: bytes that leave as a version of a buffer are those that were committed under it."""
        link_up, digests = self.core.link_up, self.table._digest_of

        def watched(link: int, name: str, now: float) -> None:
            link_up(link, name, now)
            peer = self.core.peers.get(link)
            if peer is None:
                return
            begin = peer.outgoing.begin

            def checked(transfer: Any) -> None:
                wanted = digests.get((transfer.buffer, transfer.version))
                if wanted is not None and body_digest([transfer.view]).hex() != wanted:
                    raise AssertionError(
                        f"O5: other bytes are sent as buffer {transfer.buffer} version {transfer.version}"
                    )
                begin(transfer)

            peer.outgoing.begin = checked  # type: ignore[method-assign]

        self.core.link_up = watched  # type: ignore[method-assign]

    def _watch_commits(self) -> None:
        """O1: whatever is committed is what the kernel makes of the bytes that were committed before."""
        commit = self.table.commit

        def checked(writes: Any, number: int, fence: int, worker: str | None, regions: Any = ()) -> str | None:
            call = self.scheduler.calls[number]
            expected = serial(call)
            for (buffer, array, _), wanted in zip(writes, expected, strict=False):
                if array.tobytes() != wanted.tobytes():
                    raise AssertionError(
                        f"O1: call {number} fence {fence} from {worker} commits wrong bytes to {buffer}"
                    )
            self.commits += 1
            self.digest.update(f"{self.clock.time():.9f}/{number}/{fence}/{worker}".encode())
            return commit(writes, number, fence, worker, regions)

        self.table.commit = checked  # type: ignore[method-assign]


def serial(call: Call) -> list[Any]:
    """What the call makes of the committed bytes, computed here and now."""
    reads = [buffer._data.copy() for buffer in call.reads]
    names = [buffer.id for buffer in call.reads]
    outs = [
        reads[names.index(buffer.id)].copy() if buffer.id in names else np.zeros_like(buffer._data)
        for buffer in call.writes
    ]
    mix.function(reads, outs, salt=call.params["salt"])
    return outs


class Workload:
    """Graphs over a few buffers, with changes between them; drawn from the plan's seed alone."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = Random(f"work/{world.plan.seed}")
        self.buffers = [self._new() for _ in range(world.plan.buffers)]
        self.model = {buffer.id: buffer._data.copy() for buffer in self.buffers}
        self.runs: list[GraphRun] = []
        self.cancelled = False

    def _new(self) -> Any:
        size = self.random.choice([4, 40, 64, 120, 250])
        array = np.array([self.random.getrandbits(64) for _ in range(size)], np.uint64)
        owned = self.random.random() < 0.5
        shared = self.world.host is not None and self.random.random() < 0.5
        return self.world.table.register(array, name=None, owned=owned, shared=shared)

    def submit(self, count: int) -> None:
        calls = []
        for index in range(count):
            reads = self.random.sample(self.buffers, self.random.randint(1, min(3, len(self.buffers))))
            writes = self.random.sample(self.buffers, self.random.randint(1, 2))
            salt = self.random.getrandbits(30)
            calls.append(
                Call(
                    index,
                    mix,
                    "sim.mix",
                    tuple(reads),
                    tuple(writes),
                    {"salt": salt},
                    None,
                    None,
                    self.random.randint(0, 2),
                    "auto",
                    None,
                )
            )
            old = {buffer.id: self.model[buffer.id] for buffer in (*reads, *writes)}
            outs = [old[b.id].copy() if b in reads else np.zeros_like(old[b.id]) for b in writes]
            mix.function([old[b.id] for b in reads], outs, salt=salt)
            for buffer, out in zip(writes, outs, strict=True):
                self.model[buffer.id] = out
        run = GraphRun(f"g{len(self.runs)}", calls, keep_going=False, on_end=lambda _: None)
        self.runs.append(run)
        self.world.engine.submit(run, [()] * count)

    def disturb(self) -> None:
        """Between graphs: bump, edit, split and join, release and register again."""
        for buffer in self.random.sample(self.buffers, 2):
            action = self.random.choice(["bump", "edit", "split", "renew"])
            if action == "bump" and not buffer._owned:
                buffer._data[0] ^= np.uint64(1)
                self.model[buffer.id][0] ^= np.uint64(1)
                buffer.bump()
            elif action == "edit":
                with buffer.edit() as draft:
                    draft[-1] += np.uint64(5)
                self.model[buffer.id][-1] += np.uint64(5)
            elif action == "split":
                buffer.split()
                buffer.join()
            elif action == "renew":
                self.buffers.remove(buffer)
                del self.model[buffer.id]
                buffer.release()
                self.buffers.append(self._new())
                self.model[self.buffers[-1].id] = self.buffers[-1]._data.copy()


def simulate(plan: Plan) -> World:
    """Run a plan to its end with all oracles on; raises at the first broken promise."""
    world = World(plan)
    try:
        _run(world)
    finally:
        if world.host is not None:
            world.host.close()
    return world


def _run(world: World) -> None:
    plan = world.plan
    if plan.mutant:
        from simulation.mutants import plant

        plant(world, plan.mutant)
    work = Workload(world)
    share = plan.calls // 3
    work.submit(share)
    work.submit(share)
    if plan.cancels:
        world.clock.run_for(0.3)
        world.engine.cancel(work.runs[1])
        world.clock.run_until(lambda: all(run.unfinished == 0 for run in work.runs), 600.0)
        work.model = {buffer.id: buffer._data.copy() for buffer in work.buffers}
    world.clock.run_until(lambda: all(run.unfinished == 0 for run in work.runs), 600.0)
    work.disturb()
    work.submit(plan.calls - 2 * share)
    world.clock.run_until(lambda: all(run.unfinished == 0 for run in work.runs), 600.0)
    if world.engine.failure is not None:
        raise world.engine.failure
    for run in work.runs:
        if run.failed:
            raise AssertionError(f"{run.name}: {run.failed[0].label()} failed: {run.failed[0].error}")
    for buffer in work.buffers:
        if buffer._data.tobytes() != work.model[buffer.id].tobytes():
            raise AssertionError(f"O2: {buffer} differs from the fault-free serial run")
    _heal(world)


def _heal(world: World) -> None:
    """O8, O9: when the faults are over, every worker is live in time, and no counter is left above zero."""
    last = max((fault.end for fault in world.plan.faults), default=0.0)
    if world.age < last:
        world.clock.run_for(last - world.age)
    # What was held just before the heal may come late; what was lost is asked for again.
    held = any(fault.kind in ("delay", "hold", "late_pull", "stall", "duplicate") for fault in world.plan.faults)
    world.clock.run_until(lambda: world.core.live == world.plan.workers, 60.0 if held else 25.0)
    world.clock.run_for(6.0)
    if world.core.in_flight or world.scheduler.queued or world.scheduler.calls:
        raise AssertionError(f"O8: {world.core.in_flight} in flight, {world.scheduler.queued} queued at rest")
    for agent in world.agents.values():
        if agent.core.held_jobs:
            raise AssertionError(f"O8: {agent.name} still holds {agent.core.held_jobs} jobs at rest")
        if agent.core.cache.pinned_bytes:
            raise AssertionError(f"O8: {agent.name} still pins {agent.core.cache.pinned_bytes} bytes")
