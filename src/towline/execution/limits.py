"""What bounds and orders the tasks of a run, as the scheduler sees it (SCHED)."""

from __future__ import annotations

from typing import Literal

import msgspec


class ModuleRules(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduling side of one module's settings."""

    priority: int = 0
    locks: frozenset[str] = frozenset()
    exclusive: bool = False
    pools: dict[str, int] = {}
    hint: Literal["cpu", "io"] | None = None
    always_run: bool = False


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The rights that exist: slots and cores of this node, tickets of each pool, and the two policies."""

    parallelism: int
    cores: int
    pools: dict[str, int] = {}
    keep_going: bool = False
    schedule: Literal["eager", "tiers"] = "eager"
    always_run_budget_s: float = 300.0
    max_tasks: int = 100_000
