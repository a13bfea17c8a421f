"""Master, workers and coordinator in one process under virtual time, with faults from a seed, and an oracle.

The master's shell, its dispatch, the workers, their heartbeats and the coordinator are the real ones; bodies are
pauses, and the plan is a small random graph.
"""

from towline.testing.fault_plan import Fault, FaultPlan, random_plan, shrink
from towline.testing.simulation.cluster import SimulatedCluster
from towline.testing.simulation.oracle import SimulationError
from towline.testing.simulation.running import plan_of_seed, simulate, smallest_failing

__all__ = [
    "Fault",
    "FaultPlan",
    "SimulatedCluster",
    "SimulationError",
    "plan_of_seed",
    "random_plan",
    "shrink",
    "simulate",
    "smallest_failing",
]
