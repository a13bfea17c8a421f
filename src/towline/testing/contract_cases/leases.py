"""Leases and epochs: COORD-C40 to C49."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.coordination.records import LeaseRef
from towline.testing.contract_cases.scene import expire, join, soon, task
from towline.testing.coordinator_contract import case

if TYPE_CHECKING:
    from towline.coordination.contract import MasterCoordinator
    from towline.testing.coordinator_contract import CoordinatorEnv


async def _held(master: MasterCoordinator) -> list[str]:
    return [lease.task_id for lease in await master.active_leases()]


@case("COORD-C40")
async def a_lease_ends_with_its_outcome(env: CoordinatorEnv) -> None:
    """A finished task never comes back."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a")])
    lease = await worker.claim()
    assert await _held(master) == ["a"]

    assert (await worker.publish(lease)).accepted

    assert await _held(master) == []
    await expire(env, master)
    await worker.coordinator.register(worker.registration)
    await worker.finds_nothing()


@case("COORD-C41")
async def an_expired_lease_goes_back_to_its_place(env: CoordinatorEnv) -> None:
    """The work of a dead worker is done by another, unchanged, before what came later, under a higher epoch."""
    master = await env.master()
    dead = await join(env, "dead")
    await master.enqueue([task("a", timeout_ms=7), task("b")])
    lost = await dead.claim()
    await expire(env, master)
    other = await join(env, "other")

    again = await other.claim()

    assert (again.task_id, again.assignment) == ("a", lost.assignment)
    assert again.epoch > lost.epoch
    assert (await other.claim()).task_id == "b"


@case("COORD-C42")
async def a_heartbeat_renews_what_it_lists(env: CoordinatorEnv) -> None:
    """And nothing else: a lease that the worker forgot must not be kept alive by its other work."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("kept"), task("forgotten")])
    kept = await worker.claim()
    await worker.claim()

    for _ in range(3):
        await env.pass_time(env.worker_timeout_s * 0.5)
        assert (await worker.beat(kept)).lost == ()
        await master.beat()
    await master.requeue_expired()

    assert await _held(master) == ["kept"]


@case("COORD-C42")
async def a_late_heartbeat_revives_what_nobody_took(env: CoordinatorEnv) -> None:
    """Expired is not lost until it was given away: the work done so far is worth keeping."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a")])
    lease = await worker.claim()

    await env.pass_time(env.worker_timeout_s * 1.1)
    assert (await worker.beat(lease)).lost == ()
    await master.beat()
    await master.requeue_expired()

    assert await _held(master) == ["a"]


@case("COORD-C43")
async def a_lost_lease_is_named_with_its_reason(env: CoordinatorEnv) -> None:
    """A worker that slept through its lease must stop, and say why."""
    master = await env.master()
    sleeper, other = await join(env, "sleeper"), await join(env, "other")
    await master.enqueue([task("expired"), task("taken"), task("finished")])
    leases = [await sleeper.claim() for _ in range(3)]
    await env.pass_time(env.worker_timeout_s * 0.6)
    await other.beat()
    await sleeper.beat()
    await env.pass_time(env.worker_timeout_s * 0.6)
    await master.beat()
    await master.requeue_expired()
    await other.beat()
    claimed = {lease.task_id: lease for lease in [await other.claim() for _ in range(3)]}
    await other.publish(claimed["finished"])
    await other.release(claimed["expired"], started=False)

    unknown = LeaseRef(task_id="never", epoch=1, worker_id="sleeper")
    reply = await sleeper.beat(*leases, unknown)

    assert {(lost.task_id, lost.epoch, lost.why) for lost in reply.lost} == {
        ("expired", leases[0].epoch, "expired"),
        ("taken", leases[1].epoch, "taken"),
        ("finished", leases[2].epoch, "finished"),
        ("never", 1, "unknown"),
    }


@case("COORD-C44")
async def a_task_that_kills_workers_fails(env: CoordinatorEnv) -> None:
    """Else it would take down the fleet, one worker after the other; releases do not count."""
    master = await env.master(requeue_limit=2)
    await master.enqueue([task("killer")])
    for number in range(3):
        worker = await join(env, f"victim-{number}")
        await worker.release(await worker.claim())
        await worker.claim()
        await expire(env, master)

    outcome = await soon(master.wait_for_outcome("killer"))

    assert (outcome.state, outcome.reason) == ("failed", "requeue_limit")
    assert outcome.error is not None
    assert all(f"victim-{number}" in outcome.error.text for number in range(3))


@case("COORD-C45")
async def at_most_once_is_never_started_twice(env: CoordinatorEnv) -> None:
    """A payment must rather fail than be made twice; a late success must not hide that."""
    master = await env.master()
    dead, other = await join(env, "dead"), await join(env, "other")
    await master.enqueue([task("lost", at_most_once=True), task("released", at_most_once=True)])
    lost, released = await dead.claim(), await other.claim()
    assert await other.release(released, started=False)
    released = await other.claim()
    assert await other.release(released, started=True)
    await expire(env, master)

    for task_id in ("lost", "released"):
        outcome = await soon(master.wait_for_outcome(task_id))
        assert (outcome.state, outcome.reason) == ("failed", "lease_lost")
    assert not (await dead.publish(lost)).accepted
    fresh = await join(env, "fresh")
    await fresh.finds_nothing()


@case("COORD-C46")
async def a_loser_is_passed_over_while_another_fits(env: CoordinatorEnv) -> None:
    """A machine that is ill would take its own lost task again and again, being the one with free slots."""
    master = await env.master()
    loser, other = await join(env, "loser"), await join(env, "other")
    await master.enqueue([task("a"), task("b")])
    await loser.claim()
    await env.pass_time(env.worker_timeout_s * 0.6)
    await loser.beat()
    await other.beat()
    await env.pass_time(env.worker_timeout_s * 0.6)
    await master.requeue_expired()

    assert (await loser.claim()).task_id == "b"
    await loser.finds_nothing()
    assert (await other.claim()).task_id == "a"


@case("COORD-C46")
async def the_only_worker_that_fits_gets_its_own_back(env: CoordinatorEnv) -> None:
    """Passing it over for ever would be a hang."""
    master = await env.master()
    only = await join(env, "only")
    await master.enqueue([task("a")])
    await only.claim()
    await env.pass_time(env.worker_timeout_s * 0.6)
    await only.beat()
    await env.pass_time(env.worker_timeout_s * 0.6)
    await master.requeue_expired()
    assert (await only.claim()).task_id == "a"


@case("COORD-C47")
async def after_a_take_over_holders_get_time(env: CoordinatorEnv) -> None:
    """Living workers could not renew while nobody led the run; their work is not thrown away."""
    await env.master()
    master = await env.master(master_id="m-1", owner_epoch=1)
    worker = await join(env, "w")
    await master.enqueue([task("a")])
    lease = await worker.claim()
    await env.pass_time(env.worker_timeout_s * 1.1)

    second = await env.master(master_id="m-2", owner_epoch=2)
    assert list(await second.requeue_expired()) == []
    await worker.beat(lease)
    await env.pass_time(env.worker_timeout_s * 0.8)
    await second.requeue_expired()
    assert await _held(second) == ["a"]

    await env.pass_time(env.worker_timeout_s * 1.1)
    assert [entry.kind for entry in await second.requeue_expired()][:1] == ["requeued"]


@case("COORD-C48")
async def epochs_only_grow(env: CoordinatorEnv) -> None:
    """The epoch is the fence on every write: one that came twice would let two holders write."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a"), task("floored", epoch_floor=7)])
    first = await worker.claim()
    assert first.epoch == 1
    assert (await worker.claim()).epoch == 8
    await worker.release(first)
    assert (await worker.claim()).epoch == 2

    await env.pass_time(env.worker_timeout_s * 0.6)
    second = await env.master(master_id="m-2", owner_epoch=2, epoch_jumps=1)
    await worker.beat()
    await second.enqueue([task("b")])
    assert (await worker.claim()).epoch > 2**20


@case("COORD-C49")
async def a_released_task_is_there_at_once(env: CoordinatorEnv) -> None:
    """A worker that is shut down hands over its work; nobody waits for a lease to run out."""
    master = await env.master(requeue_limit=0)
    leaving, other = await join(env, "leaving"), await join(env, "other")
    await master.enqueue([task("a"), task("b")])
    lease = await leaving.claim()

    assert await leaving.release(lease)

    assert not await leaving.release(lease)
    taken = await other.claim()
    assert (taken.task_id, taken.epoch > lease.epoch) == ("a", True)


@case("COORD-C49")
async def a_release_wakes_a_waiter(env: CoordinatorEnv) -> None:
    """The next worker need not wait for its poll."""
    master = await env.master()
    leaving, other = await join(env, "leaving"), await join(env, "other")
    await master.enqueue([task("a")])
    lease = await leaving.claim()
    waiter = other.start_claim()
    await env.waiting("claim")
    await leaving.release(lease)
    assert (await soon(waiter)).task_id == "a"  # type: ignore[union-attr]
