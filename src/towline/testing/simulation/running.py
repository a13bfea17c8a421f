"""Run fault plans under virtual time, and find the smallest one that fails."""

from __future__ import annotations

from random import Random

from towline.testing.fault_plan import FaultPlan, random_plan, shrink
from towline.testing.simulation.cluster import SimulatedCluster
from towline.testing.simulation.oracle import SimulationError
from towline.testing.virtual_loop import run_virtual


def simulate(plan: FaultPlan, *, workers: int = 3, tasks: int = 40) -> None:
    """Run one plan under virtual time.

    Raises:
        SimulationError: The oracle found a fault.
    """

    async def scenario() -> None:
        await SimulatedCluster(plan, workers=workers, tasks=tasks).run_to_end()

    run_virtual(scenario())


def plan_of_seed(seed: int, *, workers: int = 3) -> FaultPlan:
    """Return the plan of a seed."""
    return random_plan(seed, Random(seed), workers=workers, length_s=40.0)


def smallest_failing(plan: FaultPlan) -> FaultPlan:
    """Shrink a failing plan to what it needs to fail; keep that one as a named test."""

    def fails(smaller: FaultPlan) -> bool:
        try:
            simulate(smaller)
        except SimulationError:
            return True
        return False

    return shrink(plan, fails)
