"""Replies that were long on their way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pytest

from towline.coordination import operations as ops
from towline.coordination.client import LinkedCoordinator
from towline.coordination.ledger.state import LedgerState
from towline.coordination.memory import MemoryCoordinators, MemoryLink
from towline.coordination.records import ClaimReply, Lease, LeaseRef, NoWork, WorkerRegistration, WorkerStatus
from towline.testing import clause, run_virtual
from towline.testing.contract_cases.scene import opening_of, outcome_of, registration_of, task

if TYPE_CHECKING:
    from towline.coordination.operations import Operation

R = TypeVar("R")


class _LateLink(MemoryLink):
    """The first reply with a lease takes ten seconds."""

    late_s = 10.0

    async def call(self, operation: Operation[R]) -> R:
        reply = await super().call(operation)
        lease = reply[-1] if isinstance(operation, ops.PublishAndClaim) and isinstance(reply, tuple) else reply
        if isinstance(lease, Lease) and lease.task_id == "wanted" and self.late_s:
            self.late_s, late_s = 0.0, self.late_s
            await asyncio.sleep(late_s)
        return reply


async def _claim_late(*, with_outcome: bool, taken: bool) -> ClaimReply:
    """Claim over a slow link; meanwhile the lease runs out, and another worker takes the task, or nobody does."""
    shared = MemoryCoordinators()
    master = await shared.create_master("r")
    await master.open_run(opening_of("r", 2.0, master_timeout_ms=60_000))
    scene: Any = SimpleNamespace(run_id="r")
    slow = LinkedCoordinator(_LateLink(shared.run("r")), "r")
    first, second = registration_of(scene, "w-1"), registration_of(scene, "w-2")
    await slow.register(first)
    await master.register(second)
    lease = LeaseRef(task_id="", epoch=0, worker_id="")
    if with_outcome:
        await master.enqueue([task("before")])
        got = await slow.claim(first.ref, token="t0", wait_s=0)
        assert isinstance(got, Lease)
        lease = got.ref
    await master.enqueue([task("wanted")])
    if with_outcome:
        claiming = asyncio.ensure_future(
            slow.publish_and_claim(outcome_of(lease), lease=lease, worker=first.ref, token="t1")
        )
    else:
        claiming = asyncio.ensure_future(slow.claim(first.ref, token="t1", wait_s=0))
    beating = asyncio.ensure_future(_beat(master, first, second))
    await asyncio.sleep(3)
    if taken:
        await master.requeue_expired()
        assert isinstance(await master.claim(second.ref, token="x", wait_s=0), Lease)
    reply = await claiming
    beating.cancel()
    return reply[1] if isinstance(reply, tuple) else reply


async def _beat(master: LinkedCoordinator, *workers: WorkerRegistration) -> None:
    while True:
        for worker in workers:
            await master.heartbeat(WorkerStatus(worker_id=worker.worker_id, session=worker.session))
        await asyncio.sleep(1)


@clause("COORD-C35", "DIST-21")
@pytest.mark.parametrize("with_outcome", [False, True], ids=["claim", "publish and claim"])
def test_a_lease_that_came_too_late_is_asked_for_again(*, with_outcome: bool) -> None:
    """A body that blocks the loop keeps the next lease unread while it runs out: its task must not start here too."""
    assert isinstance(run_virtual(_claim_late(with_outcome=with_outcome, taken=True)), NoWork)


@clause("COORD-C35")
def test_a_late_lease_that_is_still_ours_is_taken() -> None:
    """Late alone is no loss: the same token brings it again as long as nobody has it."""
    reply = run_virtual(_claim_late(with_outcome=False, taken=False))
    assert isinstance(reply, Lease)
    assert reply.task_id == "wanted"


@clause("COORD-R24", "COORD-R19")
def test_a_trim_from_before_the_loss_of_all_data_changes_nothing() -> None:
    """It may be repeated until the server is back; the run that was opened anew meanwhile counts its feed from one."""

    async def scenario() -> tuple[int, int]:
        shared = MemoryCoordinators()
        old, new = await shared.create_master("r"), await shared.create_master("r")
        opening = opening_of("r", 2.0, master_timeout_ms=60_000)
        await old.open_run(opening)
        shared.run("r").state = LedgerState()
        await new.open_run(msgspec.structs.replace(opening, epoch_jumps=1_000))
        scene: Any = SimpleNamespace(run_id="r")
        await new.register(registration_of(scene, "w-1"))
        await old.trim_feed(up_to=57)
        kept = len(await new.feed(after=0, limit=10, wait_s=0))
        await new.trim_feed(up_to=1)
        return kept, len(await new.feed(after=0, limit=10, wait_s=0))

    assert run_virtual(scenario()) == (1, 0)
