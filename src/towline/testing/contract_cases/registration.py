"""Registration and liveness: COORD-C01 to C11."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.coordination.records import Lease, LeaseRef
from towline.errors.coordination import (
    ProgramMismatchError,
    RunUnknownError,
    SessionEndedError,
    SessionReplacedError,
    WorkerIdTakenError,
)
from towline.testing.contract_cases.scene import expire, join, outcome_of, refused, registration_of, task
from towline.testing.coordinator_contract import case

if TYPE_CHECKING:
    from towline.coordination.contract import MasterCoordinator
    from towline.testing.coordinator_contract import CoordinatorEnv


async def _ids(master: MasterCoordinator) -> list[str]:
    return [worker.worker_id for worker in await master.workers()]


@case("COORD-C01")
async def a_silent_worker_is_not_listed(env: CoordinatorEnv) -> None:
    """The master routes by this list: a dead worker in it would be waited for."""
    master = await env.master()
    alive, silent = await join(env, "alive"), await join(env, "silent")
    assert await _ids(master) == ["alive", "silent"]

    for _ in range(3):
        await env.pass_time(env.worker_timeout_s * 0.6)
        await alive.beat()

    assert await _ids(master) == ["alive"]
    await refused(silent.ask(), SessionEndedError, SessionReplacedError)
    await silent.beat()
    await silent.finds_nothing()


@case("COORD-C01")
async def asking_for_work_is_no_sign_of_life(env: CoordinatorEnv) -> None:
    """Only heartbeats are: a claim loop may live on while the thread that renews leases is dead."""
    master = await env.master()
    worker = await join(env, "w")

    await env.pass_time(env.worker_timeout_s * 0.6)
    await worker.finds_nothing()
    await env.pass_time(env.worker_timeout_s * 0.6)

    assert await _ids(master) == []


@case("COORD-C02")
async def registering_again_only_refreshes_life(env: CoordinatorEnv) -> None:
    """A worker that reconnects is the same worker; its last counters are not lost by that."""
    master = await env.master()
    worker = await join(env, "w")
    await worker.beat(is_final=True, commands={"a": 3})

    await worker.coordinator.register(worker.registration)

    assert await _ids(master) == ["w"]
    assert [status.commands for status in await master.worker_statuses()] == [{"a": 3}]
    assert [entry.kind for entry in await master.feed(after=0, limit=10, wait_s=0)] == ["registered", "worker_gone"]


@case("COORD-C03")
async def a_live_id_cannot_be_taken(env: CoordinatorEnv) -> None:
    """Two processes with one index is the most common mistake; both would renew each other's leases."""
    master = await env.master()
    await join(env, "w", "s1", host="box-1", pid=11)

    second = await env.worker()
    error = await refused(second.register(registration_of(env, "w", "s2", host="box-2", pid=22)), WorkerIdTakenError)

    assert "w" in str(error)
    assert "box-1" in str(error)
    assert "11" in str(error)
    assert [worker.session for worker in await master.workers()] == ["s1"]


@case("COORD-C04")
async def a_silent_id_goes_to_its_new_process(env: CoordinatorEnv) -> None:
    """A restarted worker must not make the dead one's leases look alive."""
    master = await env.master()
    old = await join(env, "w", "s1")
    await master.enqueue([task("a")])
    lease = await old.claim()
    await env.pass_time(env.worker_timeout_s * 1.1)

    new = await join(env, "w", "s2")

    assert list(await master.active_leases()) == []
    await refused(old.ask(), SessionReplacedError)
    await refused(old.beat(), SessionReplacedError)
    assert (await new.claim()).epoch > lease.epoch


@case("COORD-C05")
async def a_final_status_stays(env: CoordinatorEnv) -> None:
    """The run report counts the commands of workers that have left."""
    master = await env.master()
    worker = await join(env, "w")
    await worker.beat(is_final=True, commands={"a": 2, "b": 1}, unattributed_commands=4)

    await expire(env, master)

    assert await _ids(master) == ["w"]
    (status,) = await master.worker_statuses()
    assert (status.is_final, status.commands, status.unattributed_commands) == (True, {"a": 2, "b": 1}, 4)


@case("COORD-C06")
async def a_worker_that_said_goodbye_gets_nothing(env: CoordinatorEnv) -> None:
    """What it still held goes to others at once, and nobody counts that as a loss."""
    master = await env.master(requeue_limit=0)
    leaving, other = await join(env, "leaving"), await join(env, "other")
    await master.enqueue([task("a"), task("b")])
    await leaving.claim()

    await leaving.beat(is_final=True)

    await leaving.finds_nothing()
    assert {(await other.claim()).task_id, (await other.claim()).task_id} == {"a", "b"}


@case("COORD-C07")
async def a_worker_with_a_wrong_clock_is_like_any_other(env: CoordinatorEnv) -> None:
    """Leases and life are judged by the back end's clock; what a worker says of the time is for people."""
    master = await env.master()
    worker = await join(env, "w", registered_at="1999-01-01T00:00:00.000Z")
    await master.enqueue([task("a")])
    lease = await worker.claim()

    await env.pass_time(env.worker_timeout_s * 0.5)
    await worker.beat(lease)
    await env.pass_time(env.worker_timeout_s * 0.7)
    await master.requeue_expired()

    assert await _ids(master) == ["w"]
    assert [held.task_id for held in await master.active_leases()] == ["a"]


@case("COORD-C08")
async def another_program_is_refused(env: CoordinatorEnv) -> None:
    """A worker with other code would give other results under the same names."""
    master = await env.master()
    for fields in ({"program": "q.py:q"}, {"fingerprint": "sha256:other"}, {"wire": 99}):
        worker = await env.worker()
        error = await refused(worker.register(registration_of(env, "w", **fields)), ProgramMismatchError)
        assert str(next(iter(fields.values()))) in str(error)
    assert await _ids(master) == []


@case("COORD-C09")
async def a_run_that_is_not_open_is_unknown(env: CoordinatorEnv) -> None:
    """Workers may start before the master; they are told apart from those with a wrong run id by waiting."""
    worker = await env.worker()
    await refused(worker.register(registration_of(env, "w")), RunUnknownError)
    await env.master()
    assert (await worker.register(registration_of(env, "w"))).state == "running"


@case("COORD-C10")
async def a_reconnect_settles_what_is_held(env: CoordinatorEnv) -> None:
    """A claim whose answer was lost is not left to its timeout; a lease that is gone is not worked on."""
    master = await env.master(requeue_limit=0)
    worker = await join(env, "w")
    await master.enqueue([task("a"), task("b")])
    kept, forgotten = await worker.claim(), await worker.claim()
    stale = LeaseRef(task_id="c", epoch=9, worker_id="w")

    await worker.coordinator.register(registration_of(env, "w", held=(kept.ref, stale)))

    assert [lease.task_id for lease in await master.active_leases()] == [kept.task_id]
    reply = await worker.beat(kept)
    assert [(lost.task_id, lost.epoch, lost.why) for lost in reply.lost] == [("c", 9, "unknown")]
    assert (await worker.claim()).task_id == forgotten.task_id


@case("COORD-C11")
async def an_expelled_worker_is_told_so(env: CoordinatorEnv) -> None:
    """The master that saw a process die need not wait for its timeout."""
    master = await env.master()
    gone, other = await join(env, "gone"), await join(env, "other")
    await master.enqueue([task("a")])
    lease = await gone.claim()

    assert await master.expel("gone")

    assert not await master.expel("nobody")
    assert await _ids(master) == ["other"]
    taken = await other.claim()
    assert (taken.task_id, taken.epoch > lease.epoch) == ("a", True)
    for call in (gone.ask(), gone.beat(lease), gone.coordinator.register(gone.registration)):
        await refused(call, SessionEndedError)
    fresh = await join(env, "gone", "s2")
    assert not isinstance(await fresh.ask(), Lease)
    await other.coordinator.publish_outcome(outcome_of(taken), lease=taken.ref)
