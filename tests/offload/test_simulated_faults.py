"""Whatever network and machines do, a run that ends has the bytes of a run without faults; and planted bugs are found."""

from __future__ import annotations

import os

import msgspec
import pytest
from simulation.faults import Fault, Plan, make_plan
from simulation.mutants import MUTANTS, SHARED_MUTANTS
from simulation.world import simulate

from towline.testing import clause

SEEDS = int(os.environ.get("TOWLINE_OFFLOAD_SEEDS", "200"))
BATCH = 20
GATE_SEEDS = int(os.environ.get("TOWLINE_OFFLOAD_GATE_SEEDS", "0"))

FOUND_AT = {
    "older_fence_accepted": 2, "fence_constant_per_call": 2, "late_result_applied": 1, "hello_once": 11,
    "current_bytes_for_any_version": 1, "dedupe_by_call_alone": 7, "cache_by_buffer_alone": 0, "no_war_edges": 0,
    "no_deadline_no_inventory": 2, "finished_jobs_listed": 2, "partial_commit": 0, "in_out_in_place": 0,
    "written_region_used_again": 0, "stopped_kernel_has_ended": 0, "staged_used_again_at_once": 0,
    "lost_session_returns_loans": 41, "loan_ends_with_the_piece": 4,
}  # fmt: skip
"""A seed that finds each planted bug; ``make soak-offload`` looks for them anew among the first 100."""


@clause("OFF-301", "OFF-501", "OFF-502", "OFF-503", "OFF-504", "OFF-505", "OFF-507", "OFF-610", "OFF-617", "OFF-955")
@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_nemesis_changes_no_byte(first: int) -> None:
    """The promise of the room, under every fault of the specification; a failing seed is in the message."""
    for seed in range(first, min(first + BATCH, SEEDS)):
        try:
            simulate(make_plan(seed))
        except Exception as error:
            plan = msgspec.json.encode(make_plan(seed)).decode()
            raise AssertionError(f"seed {seed}: {error}\nplan: {plan}") from error


SHARED_SEEDS = int(os.environ.get("TOWLINE_OFFLOAD_SEEDS", "60"))


@clause("OFF-708", "OFF-709")
@pytest.mark.parametrize("first", range(0, SHARED_SEEDS, BATCH))
def test_nemesis_changes_no_byte_of_shared_memory(first: int) -> None:
    """On one host a worker that is stopped, cut off or given up still has the memory: it reads and writes later than anyone thinks."""
    for seed in range(first, min(first + BATCH, SHARED_SEEDS)):
        try:
            simulate(make_plan(seed, shared=True))
        except Exception as error:
            plan = msgspec.json.encode(make_plan(seed, shared=True)).decode()
            raise AssertionError(f"seed {seed}: {error}\nplan: {plan}") from error


@pytest.mark.parametrize("mutant", [*MUTANTS, *SHARED_MUTANTS])
def test_a_planted_bug_is_found(mutant: str) -> None:
    """A soak that finds no planted bug proves nothing about the others."""
    seeds = range(GATE_SEEDS) if GATE_SEEDS else [FOUND_AT[mutant]]
    for seed in seeds:
        try:
            simulate(make_plan(seed, mutant, shared=mutant in SHARED_MUTANTS))
        except Exception:
            return
    pytest.fail(f"{mutant} was not found in {len(seeds)} seeds")


@clause("OFF-702")
@pytest.mark.parametrize("seed", [3, 51])
def test_one_seed_gives_one_run(seed: int) -> None:
    """O7: a failure that cannot be repeated cannot be mended."""
    first, second = simulate(make_plan(seed)), simulate(make_plan(seed))

    assert first.digest.hexdigest() == second.digest.hexdigest()
    assert (first.clock.events, first.commits) == (second.clock.events, second.commits)


@clause("OFF-702")
def test_one_seed_gives_one_run_under_any_hash_seed() -> None:
    """Iteration over a set would differ between processes; the core must have none."""
    import subprocess
    import sys
    from pathlib import Path

    here = Path(__file__).parent
    program = (
        "import numpy as np; np.seterr(all='ignore')\n"
        "from simulation.faults import make_plan\nfrom simulation.world import simulate\n"
        "print(simulate(make_plan(7)).digest.hexdigest())"
    )
    path = os.pathsep.join([str(here), str(here.parents[1] / "src")])
    both = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    seen = {process.communicate(timeout=60)[0] for process in both}
    assert len(seen) == 1
    assert seen != {""}


REGRESSIONS = {
    # A re-sent offer renewed the deadline of the fetch it had started, so a lost FETCH was never repeated.
    "fetch_kept_alive_by_offers": Plan(
        seed=187, calls=37, buffers=11, workers=2,
        faults=[
            Fault("drop", 1, 1.65, 9.65, 0.05, 1.0), Fault("kill", 1, 0.0, 0.3), Fault("drop", 0, 0.0, 8.0, 0.3, 0.001),
            Fault("raise_retryable", 1, 4.45, 12.45, 0.3, 1.0),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REGRESSIONS)
def test_a_plan_that_found_a_bug_stays_found(name: str) -> None:
    """Every found plan is kept by name."""
    simulate(REGRESSIONS[name])
