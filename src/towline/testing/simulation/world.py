"""What the processes of a simulated run share: its plan, what is durable, and the coordinator that they reach."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from towline.coordination.memory import MemoryLink, MemoryRun
from towline.distributed.options import DistributedOptions
from towline.testing.simulation.oracle import Ledgerbook

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from towline.coordination.link import Link
    from towline.testing.fault_plan import FaultPlan

WORKER_TIMEOUT_S = 6.0
HEARTBEAT_S = 2.0

OPTIONS = DistributedOptions(
    coordinator="memory:",
    heartbeat_interval_s=HEARTBEAT_S,
    worker_timeout_s=WORKER_TIMEOUT_S,
    master_timeout_s=400.0,
    registration_timeout_s=400.0,
    finalize_timeout_s=30.0,
    result_margin_s=0.0,
)


class Graph:
    """A random plan: each task depends on some earlier ones, and its value follows from theirs."""

    def __init__(self, random: Random, tasks: int) -> None:
        self.tasks: dict[str, tuple[str, ...]] = {}
        for number in range(tasks):
            earlier = list(self.tasks)[-6:]
            self.tasks[f"t{number}"] = tuple(random.sample(earlier, min(len(earlier), random.randrange(3))))
        self.durations = {name: round(random.choice((0.1, 1.0, 3.0)) * random.random(), 3) for name in self.tasks}

    def value(self, name: str) -> int:
        """What a task gives when all goes well."""
        known: dict[str, int] = {}
        for one, needs in self.tasks.items():
            known[one] = 1 + sum(known[need] for need in needs) % 1_000_003
        return known[name]


class JumpingRun(MemoryRun):
    """A ledger whose clock jumps forward."""

    jump_ms = 0

    def now_ms(self) -> int:
        """Return the back end's time, jumps included."""
        return super().now_ms() + self.jump_ms


class World:
    """One run, as its processes find it. ``book``: what has really happened, told by each of them.

    ``finals`` and ``epochs``: what a journal would hold, the value of each ended task and the last epoch heard of.
    """

    run_id = "sim"
    worker_timeout_s = WORKER_TIMEOUT_S

    def __init__(self, plan: FaultPlan, graph: Graph, make_link: Callable[[], Link] | None) -> None:
        self.plan, self.graph, self.book = plan, graph, Ledgerbook()
        self.finals: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.epoch_jumps = 0
        """How many masters have died: each successor skips the epochs that its own journal may have missed."""
        self.run = JumpingRun()
        self.make_link = make_link or (lambda: MemoryLink(self.run))
        self.all_final = asyncio.Event()
