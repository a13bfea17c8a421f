"""Outcomes: which one counts: COORD-C50 to C57."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from towline.artifacts.records import ArtifactRef
from towline.coordination.records import Lease, LeaseRef, NoWork, OutcomeRecord
from towline.errors.coordination import CoordinationError
from towline.serialization.errors_record import ErrorRecord
from towline.testing.contract_cases.scene import cancel, expire, join, outcome_of, refused, soon, task, value_of
from towline.testing.coordinator_contract import case

if TYPE_CHECKING:
    from towline.coordination.contract import MasterCoordinator
    from towline.testing.contract_cases.scene import Actor
    from towline.testing.coordinator_contract import CoordinatorEnv


async def _claimed_twice(env: CoordinatorEnv, master: MasterCoordinator) -> tuple[Actor, Lease, Actor, Lease]:
    """A task whose first holder slept too long, and which a second one holds now."""
    late = await join(env, "late")
    await master.enqueue([task("a")])
    first = await late.claim()
    await expire(env, master)
    holder = await join(env, "holder")
    return late, first, holder, await holder.claim()


@case("COORD-C50")
async def whoever_waits_gets_the_whole_outcome(env: CoordinatorEnv) -> None:
    """Before or after it was published, and whatever becomes of other waiters."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a")])
    lease = await worker.claim()
    gives_up, waits = (asyncio.ensure_future(worker.coordinator.wait_for_outcome("a")) for _ in range(2))
    await env.waiting("wait_for_outcome")
    await cancel(gives_up)
    artifact = ArtifactRef(task_id="a", name="wheel", digest="sha256:" + "1" * 64, size_bytes=3, kind="file")
    value = {"text": "é|\u2028", "list": [], "big": 2**53, "float": 1e-300}

    await worker.publish(lease, value=value, artifacts=(artifact,))

    for outcome in (await soon(waits), await soon(master.wait_for_outcome("a"))):
        assert (outcome.task_id, outcome.worker_id, outcome.epoch) == ("a", "w", lease.epoch)
        assert outcome.artifacts == (artifact,)
        assert value_of(outcome) == value


@case("COORD-C51")
async def the_first_outcome_is_final(env: CoordinatorEnv) -> None:
    """After a requeue two workers may finish the same task: the first one counts."""
    master = await env.master()
    late, first, holder, second = await _claimed_twice(env, master)

    assert (await holder.publish(second, value="second")).accepted
    reply = await late.publish(first, value="first")

    assert (reply.accepted, reply.final_state, reply.final_epoch) == (False, "succeeded", second.epoch)
    assert value_of(await soon(master.wait_for_outcome("a"))) == "second"


@case("COORD-C52")
async def a_zombie_fails_nothing(env: CoordinatorEnv) -> None:
    """A worker that lost its lease was cut off or cancelled: its failure says nothing about the task."""
    master = await env.master()
    late, first, holder, second = await _claimed_twice(env, master)
    for state in ("failed", "timed_out", "cancelled"):
        assert not (await late.publish(first, state)).accepted
    await holder.release(second)
    assert not (await late.publish(first, "failed")).accepted
    assert not (await holder.publish(second, "failed")).accepted
    never = LeaseRef(task_id="a", epoch=99, worker_id="late")
    assert not (await late.coordinator.publish_outcome(outcome_of(never), lease=never)).accepted
    below = LeaseRef(task_id="a", epoch=0, worker_id="late")
    assert not (await late.coordinator.publish_outcome(outcome_of(below), lease=below)).accepted

    third = await holder.claim()
    assert (await holder.publish(third, "failed")).accepted


@case("COORD-C53")
async def done_work_of_a_former_holder_counts(env: CoordinatorEnv) -> None:
    """It is done: the copy that is queued or runs elsewhere is taken away in the same step."""
    master = await env.master()
    late, first, holder, second = await _claimed_twice(env, master)

    assert (await late.publish(first, value="first")).accepted

    assert list(await master.active_leases()) == []
    assert [(lost.task_id, lost.why) for lost in (await holder.beat(second)).lost] == [("a", "finished")]
    assert not (await holder.publish(second)).accepted
    await holder.finds_nothing()
    assert value_of(await soon(master.wait_for_outcome("a"))) == "first"


@case("COORD-C53")
async def done_work_removes_the_queued_copy(env: CoordinatorEnv) -> None:
    """The worker was late, its task not yet given away: it is not run again."""
    master = await env.master()
    late = await join(env, "late")
    await master.enqueue([task("a")])
    lease = await late.claim()
    await expire(env, master)

    assert (await late.publish(lease)).accepted

    fresh = await join(env, "fresh")
    await fresh.finds_nothing()


@case("COORD-C54")
async def publishing_twice_is_harmless(env: CoordinatorEnv) -> None:
    """A reply may be lost; the worker asks again and must not be told that it was too late."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a")])
    lease = await worker.claim()
    for _ in range(2):
        assert (await worker.publish(lease)).accepted
    restored = OutcomeRecord(task_id="restored", epoch=0, worker_id="m-1", state="succeeded", value=msgspec.Raw(b"5"))
    for _ in range(2):
        assert (await master.publish_outcome(restored, lease=None)).accepted
    assert value_of(await soon(worker.coordinator.wait_for_outcome("restored"))) == 5


@case("COORD-C54")
async def a_worker_cannot_publish_without_a_lease(env: CoordinatorEnv) -> None:
    """Only the master decides without one."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a")])
    lease = await worker.claim()
    await refused(worker.coordinator.publish_outcome(outcome_of(lease), lease=None), CoordinationError)
    assert (await worker.publish(lease)).accepted


@case("COORD-C55")
async def the_masters_timeout_stands(env: CoordinatorEnv) -> None:
    """When the master gave up on a stalled worker, the run has gone on by that."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a")])
    lease = await worker.claim()
    timeout = OutcomeRecord(task_id="a", epoch=lease.epoch, worker_id="m-1", state="timed_out", reason="result_timeout")
    assert (await master.publish_outcome(timeout, lease=None)).accepted

    reply = await worker.publish(lease)

    assert (reply.accepted, reply.final_state) == (False, "timed_out")
    assert list(await master.active_leases()) == []


@case("COORD-C57")
async def a_huge_traceback_is_cut(env: CoordinatorEnv) -> None:
    """One failing recursion must not fill the store; its two ends tell what happened."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a")])
    lease = await worker.claim()
    trace = "first line\n" + "x" * 1_000_000 + "\nlast line"
    error = ErrorRecord(type_name="ValueError", text="boom", traceback=trace)

    await worker.publish(lease, "failed", error=error)

    outcome = await soon(master.wait_for_outcome("a"))
    assert len(msgspec.json.encode(outcome)) <= 256 * 1024
    assert outcome.error is not None
    assert outcome.error.traceback.startswith("first line")
    assert outcome.error.traceback.endswith("last line")


@case("COORD-C50", "COORD-C30")
async def publishing_and_claiming_go_together(env: CoordinatorEnv) -> None:
    """The common step of a busy worker; a back end may do it in one round trip."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a"), task("b")])
    lease = await worker.claim()

    published, reply = await worker.coordinator.publish_and_claim(
        outcome_of(lease), lease=lease.ref, worker=worker.ref, token=worker.token()
    )

    assert published.accepted
    assert isinstance(reply, Lease)
    assert reply.task_id == "b"


@case("COORD-C35", "COORD-C30")
async def a_claim_that_rode_on_an_outcome_goes_on(env: CoordinatorEnv) -> None:
    """It found nothing; the claim that waits under its token gets what comes, also what came between the two."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a")])
    lease = await worker.claim()
    for number, comes_between in enumerate((False, True)):
        token = worker.token()
        _, reply = await worker.coordinator.publish_and_claim(
            outcome_of(lease), lease=lease.ref, worker=worker.ref, token=token
        )
        assert isinstance(reply, NoWork)
        if comes_between:
            await master.enqueue([task(f"next-{number}")])
        claim = asyncio.ensure_future(worker.coordinator.claim(worker.ref, token=token, wait_s=None))
        if not comes_between:
            await env.waiting("claim")
            await master.enqueue([task(f"next-{number}")])
        got = await soon(claim)
        assert isinstance(got, Lease)
        assert (got.task_id, got.epoch) == (f"next-{number}", 1)
        lease = got
