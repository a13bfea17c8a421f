"""Signals, completion, mastership: COORD-C60 to C65."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from towline.coordination.records import LeaseRef, OutcomeRecord
from towline.coordination.signals import Signal
from towline.errors.coordination import MasterAliveError, MasterReplacedError, ProgramMismatchError, RunIdUsedError
from towline.testing.contract_cases.scene import cancel, join, refused, soon, task
from towline.testing.coordinator_contract import case

if TYPE_CHECKING:
    from towline.testing.coordinator_contract import CoordinatorEnv


@case("COORD-C60")
async def a_signal_reaches_early_and_late_waiters(env: CoordinatorEnv) -> None:
    """It is durable: who starts to wait later sees it at once."""
    master = await env.master()
    worker = (await join(env, "w")).coordinator
    gives_up, waits = (asyncio.ensure_future(worker.wait_for_signal(seen=Signal.RUNNING)) for _ in range(2))
    await env.waiting("wait_for_signal")
    await cancel(gives_up)

    await master.send_signal(Signal.PIPELINE_FAILED)

    assert await soon(waits) is Signal.PIPELINE_FAILED
    assert await soon(worker.wait_for_signal(seen=Signal.RUNNING)) is Signal.PIPELINE_FAILED


@case("COORD-C61")
async def a_signal_only_rises(env: CoordinatorEnv) -> None:
    """A stop after a failure must reach everybody; nothing takes it back."""
    master = await env.master()
    worker = (await join(env, "w")).coordinator
    sent = await asyncio.gather(*[master.send_signal(s) for s in (Signal.STOPPED, Signal.PIPELINE_FAILED)])
    assert sent[0] is Signal.STOPPED
    assert await master.send_signal(Signal.RUNNING) is Signal.STOPPED
    assert await soon(worker.wait_for_signal(seen=Signal.PIPELINE_FAILED)) is Signal.STOPPED
    assert (await worker.run_state()).signal is Signal.STOPPED


@case("COORD-C62")
async def completion_cancels_nothing(env: CoordinatorEnv) -> None:
    """It says that no more work will come; running work may end."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a")])
    lease = await worker.claim()

    await master.complete()
    await master.complete()

    reply = await worker.beat(lease)
    assert (reply.completed, reply.signal, reply.lost) == (True, Signal.RUNNING, ())
    assert (await worker.publish(lease)).accepted


@case("COORD-C63")
async def the_state_of_a_run_is_told(env: CoordinatorEnv) -> None:
    """A worker must know whether to wait, to work, to leave, or to say that its master is lost."""
    worker = await env.worker()
    assert (await worker.run_state()).state == "unknown"
    master = await env.master(state_id="dir:1")
    state = await worker.run_state()
    assert (state.state, state.program, state.state_id) == ("running", "p.py:p", "dir:1")
    assert bytes(state.params) == b'{"region": "eu"}'  # type: ignore[arg-type]
    await env.pass_time(env.worker_timeout_s * 4.2)
    assert (await worker.run_state()).state == "lost"
    await master.beat()
    assert (await worker.run_state()).state == "running"
    await master.complete()
    assert (await worker.run_state()).state == "completed"


@case("COORD-C64")
async def a_living_master_keeps_the_run(env: CoordinatorEnv) -> None:
    """Two masters would each send their own half of the plan."""
    first = await env.master()
    await refused(env.master(master_id="m-2", owner_epoch=2), MasterAliveError)
    await refused(env.master(master_id="m-2", owner_epoch=1), MasterAliveError)
    await env.pass_time(env.worker_timeout_s * 0.3)
    await first.beat()
    await env.pass_time(env.worker_timeout_s * 0.3)
    await refused(env.master(master_id="m-2", owner_epoch=2), MasterAliveError)
    await env.master(master_id="m-2", owner_epoch=2, replaces=1)
    await env.pass_time(env.worker_timeout_s * 0.6)
    await refused(env.master(master_id="m-3", owner_epoch=2), MasterAliveError)
    await env.master(master_id="m-3", owner_epoch=3)


@case("COORD-C64")
async def only_its_own_unfinished_run_is_taken_over(env: CoordinatorEnv) -> None:
    """Another program under the same id, or an id that was used up, is a mistake of the caller."""
    master = await env.master()
    await env.pass_time(env.worker_timeout_s)
    await refused(env.master(master_id="m-2", owner_epoch=2, fingerprint="sha256:x"), ProgramMismatchError)
    await master.complete()
    await refused(env.master(master_id="m-2", owner_epoch=2), RunIdUsedError)


@case("COORD-C65")
async def a_replaced_master_changes_nothing(env: CoordinatorEnv) -> None:
    """It may have been paused for an hour; whatever it still sends is void."""
    old = await env.master()
    worker = await join(env, "w")
    await old.enqueue([task("a")])
    await env.pass_time(env.worker_timeout_s * 0.6)
    await worker.beat()
    new = await env.master(master_id="m-2", owner_epoch=2)
    seen = await new.feed(after=0, limit=100, wait_s=0)
    void = OutcomeRecord(task_id="a", epoch=0, worker_id="m-1", state="cancelled")

    for call in (
        old.beat(),
        old.enqueue([task("b")]),
        old.withdraw(["a"]),
        old.active_leases(),
        old.requeue_expired(),
        old.expel("w"),
        old.workers(),
        old.worker_statuses(),
        old.feed(after=0, limit=1, wait_s=0),
        old.receive_events(limit=1, wait_s=0),
        old.acknowledge_events(worker.ref, 1),
        old.send_signal(Signal.STOPPED),
        old.complete(),
        old.publish_outcome(void, lease=None),
    ):
        await refused(call, MasterReplacedError)

    assert await new.feed(after=0, limit=100, wait_s=0) == seen
    assert (await new.run_state()).state == "running"
    lease = await worker.claim()
    assert lease.ref == LeaseRef(task_id="a", epoch=lease.epoch, worker_id="w")
