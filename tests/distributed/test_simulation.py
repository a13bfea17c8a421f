"""Simulated runs: many seeds of faults, an oracle, and bugs planted to prove that it finds them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from towline.coordination import operations as ops
from towline.coordination.ledger import apply, leases, outcomes
from towline.distributed.dispatch import Dispatch
from towline.distributed.feed import MasterFeed
from towline.distributed.master import Master
from towline.distributed.sending import Sending
from towline.distributed.worker import Worker
from towline.testing import clause
from towline.testing.fault_plan import Fault, FaultPlan
from towline.testing.simulation import SimulationError, plan_of_seed, shrink, simulate, smallest_failing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from towline.coordination.records import FeedEntry

SEEDS = int(os.environ.get("TOWLINE_TEST_SIMULATIONS", "1000"))
"""As many with each push, 20,000 by `make soak`."""


@clause("DIST-22", "DIST-25", "DIST-31", "DIST-44", "DIST-50", "DIST-52", "COORD-R19", "COORD-C80")
@pytest.mark.parametrize("start", range(0, SEEDS, 50))
def test_faults_change_nothing_but_time(start: int) -> None:
    """Kills, pauses, partitions, lost messages, a restarted master, a server that lost all: the same values, each once."""
    for seed in range(start, min(start + 50, SEEDS)):
        simulate(plan_of_seed(seed))


def test_a_seed_replays() -> None:
    """A failure that cannot be seen again cannot be repaired."""
    plan = FaultPlan(seed=5, drop=0.1, faults=(Fault(2.0, "kill", 1, 3.0),))
    assert str(plan_of_seed(5)) == str(plan_of_seed(5))
    simulate(plan)


def test_a_failing_plan_shrinks() -> None:
    """What is left is what it takes."""
    noise = (Fault(1.0, "pause", 0, 2.0), Fault(3.0, "kill", 1, 1.0), Fault(5.0, "jump", 0, 9.0))
    plan = FaultPlan(seed=1, drop=0.2, delay_s=1.0, faults=noise)
    smallest = shrink(plan, lambda one: any(fault.kind == "kill" for fault in one.faults))
    assert smallest == FaultPlan(seed=1, faults=(Fault(3.0, "kill", 1, 1.0),))


def _finds(limit: int = 500) -> FaultPlan | None:
    for seed in range(limit):
        try:
            simulate(plan_of_seed(seed))
        except SimulationError:
            return plan_of_seed(seed)
    return None


def _zombies_fail_tasks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outcomes, "_may_publish", lambda step, outcome: outcome.task_id in step.state.tasks)
    original = Worker.heard

    def heard(self: Worker, reply: Any) -> None:
        original(self, reply)
        for execution in self._running.values():
            execution.discarded = False

    patch.setattr(Worker, "heard", heard)


def _lost_tasks_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "put_back", lambda state, row: setattr(row, "state", "queued"))


def _the_queued_copy_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outcomes, "take_out", lambda state, row: None)


def _epochs_come_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "EPOCHS_PER_JUMP", 0)


def _nothing_is_requeued(patch: pytest.MonkeyPatch) -> None:
    handlers = apply.__globals__["_HANDLERS"]
    patch.setitem(handlers, ops.RequeueExpired, lambda step, operation: ())
    patch.setattr("towline.coordination.ledger.sessions.lose_lease", lambda step, task_id: None)


def _the_feed_skips(patch: pytest.MonkeyPatch) -> None:
    heard = Dispatch.heard

    def skipping(self: Dispatch, entries: Iterable[FeedEntry]) -> bool:
        return heard(self, [entry for entry in entries if entry.seq % 17])

    patch.setattr(Dispatch, "heard", skipping)


def _a_restarted_master_adopts_nothing(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Sending, adopted: Any) -> None:
        return None

    patch.setattr(Sending, "_adopt", nothing)
    patch.setattr(MasterFeed, "_position", property(lambda self: 10**9, lambda self, value: None), raising=False)


def _a_lost_run_is_not_opened_anew(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Master) -> None:
        await asyncio.sleep(1.0)

    patch.setattr(Master, "_reopen", nothing)


PLANTED: list[Callable[[pytest.MonkeyPatch], None]] = [
    _zombies_fail_tasks,
    _lost_tasks_are_forgotten,
    _the_queued_copy_stays,
    _epochs_come_again,
    _nothing_is_requeued,
    _the_feed_skips,
    _a_restarted_master_adopts_nothing,
    _a_lost_run_is_not_opened_anew,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.strip("_"))
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle that finds nothing proves nothing."""
    plant(monkeypatch)
    assert _finds() is not None


def test_a_planted_bug_shrinks_to_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest plan names what it takes."""
    _nothing_is_requeued(monkeypatch)
    plan = FaultPlan(seed=3, drop=0.02, faults=(Fault(1.0, "jump", 0, 1.0), Fault(2.0, "kill", 1, 2.0)))
    smallest = smallest_failing(plan)
    assert [fault.kind for fault in smallest.faults] == ["kill"]
    assert smallest.drop == 0
