"""What goes wrong in a simulated run, when and to whom: made from a seed, shown, shrunk, given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

FaultKind: TypeAlias = Literal["kill", "pause", "partition", "restart_master", "lose_data", "jump"]

KINDS: tuple[FaultKind, ...] = ("kill", "pause", "partition", "restart_master", "lose_data", "jump")
"""A worker dies; sleeps with its bodies; is cut off while they go on; the master dies; the server loses all; its clock jumps."""


class Fault(msgspec.Struct, frozen=True):
    """One thing that goes wrong: at which second, to which worker, for how long."""

    at_s: float
    kind: FaultKind
    worker: int = 0
    for_s: float = 0.0


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that goes wrong in one run. Chances are per call of a worker or the master."""

    seed: int
    drop: float = 0.0
    """A request is lost before it is executed."""
    lose_reply: float = 0.0
    """The reply is lost: the caller repeats what was executed already."""
    delay_s: float = 0.0
    """Calls take up to this long."""
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()


def random_plan(seed: int, random: Random, *, workers: int, length_s: float) -> FaultPlan:
    """Make a plan of up to six faults within ``length_s`` seconds."""
    faults = [
        Fault(
            round(random.uniform(0.0, length_s), 2),
            random.choice(KINDS),
            random.randrange(workers),
            round(random.choice((1.0, 8.0, 20.0)) * random.uniform(0.5, 1.5), 2),
        )
        for _ in range(random.randrange(7))
    ]
    return FaultPlan(
        seed=seed,
        drop=random.choice((0.0, 0.02, 0.2)),
        lose_reply=random.choice((0.0, 0.02, 0.2)),
        delay_s=random.choice((0.0, 0.05, 2.0)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
    )


def shrink(plan: FaultPlan, fails: Callable[[FaultPlan], bool]) -> FaultPlan:
    """Leave out what a failing plan does not need; returns the smallest that still fails."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(plan):
            if fails(smaller):
                plan, changed = smaller, True
                break
    return plan


def _smaller(plan: FaultPlan) -> list[FaultPlan]:
    replace = msgspec.structs.replace
    fewer = [replace(plan, faults=plan.faults[:place] + plan.faults[place + 1 :]) for place in range(len(plan.faults))]
    calmer = [replace(plan, **{name: 0.0}) for name in ("drop", "lose_reply", "delay_s") if getattr(plan, name)]
    return fewer + calmer
