"""What a claim costs with many tasks queued, and what the simulation does per CPU minute; both in this process."""

from __future__ import annotations

import asyncio
import statistics
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from towline.coordination.records import Lease
from towline.coordination.redis.coordinator import RedisCoordinators
from towline.testing.contract_cases.scene import opening_of, registration_of, task
from towline.testing.simulation import plan_of_seed, simulate

if TYPE_CHECKING:
    from towline.coordination.redis.coordinator import RedisCoordinator

REQUIREMENTS = ((), (("linux",),), (("docker",),), (("linux",), ("docker",)))
FEW, MANY, CLAIMS = 100, 100_000, 60


async def _open(factory: RedisCoordinators, run_id: str, count: int) -> tuple[RedisCoordinator, Any]:
    master = await factory.create_master(run_id)
    await master.open_run(opening_of(run_id, 600.0, master_timeout_ms=60_000))
    scene: Any = SimpleNamespace(run_id=run_id)
    worker = registration_of(scene, "w", capabilities=("docker", "linux"), parallelism=1000)
    await master.register(worker)
    await master.enqueue([task(f"t{number}", REQUIREMENTS[number % 4]) for number in range(count)])
    return master, worker.ref


async def _claim_ms(master: RedisCoordinator, worker: Any, token: str) -> float:
    began = time.perf_counter()
    lease = await master.claim(worker, token=token, wait_s=0)
    assert isinstance(lease, Lease)
    return (time.perf_counter() - began) * 1e3


async def claim_ms(url: str) -> tuple[float, float]:
    """Return the median of a claim with few and with many tasks queued in four buckets, claimed in turn."""
    factory = RedisCoordinators(url)
    few, of_few = await _open(factory, "few", FEW)
    many, of_many = await _open(factory, "many", MANY)
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(CLAIMS):
        found[0].append(await _claim_ms(few, of_few, f"token-{number}"))
        found[1].append(await _claim_ms(many, of_many, f"token-{number}"))
    await few.aclose()
    await many.aclose()
    return statistics.median(found[0]), statistics.median(found[1])


def seeds_per_cpu_minute(seeds: int) -> float:
    """Simulate runs of 40 tasks on 3 workers with their faults."""
    began = time.process_time()
    for seed in range(seeds):
        simulate(plan_of_seed(seed))
    return seeds / (time.process_time() - began) * 60


def measure_claims(url: str) -> tuple[float, float]:
    """Run :func:`claim_ms` on a loop of its own."""
    return asyncio.run(claim_ms(url))
