"""Faults of a simulated network and of its machines, as a plan that can be written down and shrunk."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from towline.offload.messages import Auth, CallMessage, Data, Fetch, Hello, Pull, Result, Welcome

LINK_FAULTS = (
    "drop",
    "duplicate",
    "delay",
    "corrupt",
    "truncate",
    "cut_up",
    "cut_down",
    "cut_both",
    "reset",
    "stall",
    "lose_greeting",
    "hold",
    "hold",
    "late_pull",
)
WORKER_FAULTS = ("kill", "vanish", "pause", "no_memory", "twin")
KERNEL_FAULTS = ("raise_retryable", "crash", "slow")


class Fault(msgspec.Struct, frozen=True):
    """One fault, from one moment to another (seconds from the start), at one worker, with a probability per frame."""

    kind: str
    worker: int
    start: float
    end: float
    chance: float = 1.0
    size: float = 0.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run: everything that happens follows from this record."""

    seed: int
    calls: int
    buffers: int
    workers: int
    faults: list[Fault]
    latency_s: float = 0.0
    cancels: bool = False
    result_deadline_s: float | None = None
    inline_bytes: int = 600
    mutant: str = ""
    shared: bool = False
    """All on one host: shared buffers, staged segments, results in segments."""


def make_plan(seed: int, mutant: str = "", *, shared: bool = False) -> Plan:
    """Draw a plan. Streams for sizes and faults are apart, so that one does not shift the other."""
    sizes, chance = Random(f"sizes/{seed}"), Random(f"faults/{seed}")
    workers = sizes.randint(1, 4)
    faults = []
    for _ in range(chance.randint(0, 7)):
        kind = chance.choice(LINK_FAULTS + WORKER_FAULTS + KERNEL_FAULTS)
        start = 0.0 if kind == "lose_greeting" else chance.choice([0.0, chance.uniform(0, 4), chance.uniform(0, 20)])
        length = chance.choice([0.3, 1.0, 3.0, 8.0, 40.0])
        faults.append(
            Fault(
                kind,
                chance.randrange(workers),
                start,
                start + length,
                chance.choice([0.05, 0.3, 1.0]),
                chance.choice([0.001, 0.1, 1.0, 6.0, 35.0]),
            )
        )
    plan = Plan(
        seed=seed,
        calls=sizes.randint(20, 60),
        buffers=sizes.randint(4, 12),
        workers=workers,
        faults=faults,
        latency_s=sizes.choice([0.0, 0.0005, 0.02]),
        cancels=sizes.random() < 0.1,
        result_deadline_s=sizes.choice([None, 1.0, 3.0]),
        inline_bytes=sizes.choice([100, 600]),
        mutant=mutant,
        shared=shared,
    )
    if shared:  # kernels that go on long after their call was given up or cancelled are what is asked about here
        slow = [Fault("slow", worker, chance.uniform(0, 1), 40.0, 0.3, 4.0) for worker in range(workers)]
        plan = msgspec.structs.replace(plan, faults=faults + slow, cancels=sizes.random() < 0.5)
    if sizes.random() < 0.05:  # few, for they take as long as all others together
        plan = msgspec.structs.replace(plan, calls=sizes.randint(60, 200), buffers=sizes.randint(4, 16))
    return plan


class Nemesis:
    """The network's part of a plan. Each decision is keyed by (seed, link, direction, n-th frame) alone."""

    def __init__(self, plan: Plan, time: Callable[[], float]) -> None:
        self._plan, self._time = plan, time
        self._began = time()
        self.worker_of: dict[int, int] = {}
        self.on_drop: Callable[[int, int, Any], None] = lambda link, worker, message: None

    def fate(self, link: int, direction: str, nth: int, frame: Any, now: float) -> list[float] | None:
        delays = [self._plan.latency_s]
        worker = self.worker_of.get(link, -1)
        for number, fault in enumerate(self._plan.faults):
            if fault.worker != worker or not fault.start <= now - self._began < fault.end:
                continue
            draw = Random(f"{self._plan.seed}/{number}/{link}/{direction}/{nth}").random()
            if fault.kind == "lose_greeting" and not isinstance(frame.message, (Auth, Hello, Welcome)):
                continue
            if fault.kind == "hold" and not isinstance(frame.message, (Pull, Data, CallMessage, Result, Fetch)):
                continue
            if fault.kind in ("cut_up", "cut_down", "cut_both"):
                if fault.kind == "cut_both" or (fault.kind == "cut_up") == (direction == "to master"):
                    return []
            elif draw >= fault.chance or (fault.kind == "late_pull" and not isinstance(frame.message, Pull)):
                continue
            elif fault.kind in ("drop", "lose_greeting"):
                self.on_drop(link, worker, frame.message)
                return []
            elif fault.kind == "reset":
                return None
            elif fault.kind == "duplicate":
                delays.append(self._plan.latency_s + fault.size * draw)
            elif fault.kind in ("delay", "hold", "late_pull"):
                delays[0] += fault.size * draw
            elif fault.kind == "stall":
                delays[0] = max(delays[0], self._began + fault.end - now)
        return delays

    def mangle(self, link: int, direction: str, nth: int, data: bytes) -> bytes:
        worker = self.worker_of.get(link, -1)
        for number, fault in enumerate(self._plan.faults):
            if fault.worker != worker or fault.kind not in ("corrupt", "truncate"):
                continue
            if not fault.start <= self._time() - self._began < fault.end:
                continue
            random = Random(f"{self._plan.seed}/{number}/mangle/{link}/{direction}/{nth}")
            if random.random() >= fault.chance * 0.1:
                continue
            place = random.randrange(len(data))
            if fault.kind == "truncate":
                return data[:place]
            return data[:place] + bytes([data[place] ^ (1 << random.randrange(8))]) + data[place + 1 :]
        return data
