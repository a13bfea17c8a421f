"""Use of the interface: COORD-C80, C81, C85."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from towline.coordination.signals import Signal
from towline.errors.coordination import CoordinatorClosedError, MasterLostError
from towline.testing.contract_cases.scene import cancel, join, refused, soon, task
from towline.testing.coordinator_contract import case

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from towline.testing.coordinator_contract import CoordinatorEnv


@case("COORD-C80")
async def every_wait_can_be_cancelled(env: CoordinatorEnv) -> None:
    """A call that outlives its cancellation holds up the end of the run."""
    master = await env.master()
    worker = (await join(env, "w")).coordinator
    waits: dict[str, Awaitable[object]] = {
        "wait_for_outcome": worker.wait_for_outcome("a"),
        "wait_for_signal": worker.wait_for_signal(seen=Signal.RUNNING),
        "feed": master.feed(after=10, limit=1, wait_s=60),
        "events": master.receive_events(limit=1, wait_s=60),
    }
    for name, call in waits.items():
        waiter = asyncio.ensure_future(call)
        await env.waiting(name)
        await cancel(waiter)
    seen = await worker.wait_for_work(seen=-1)
    wakes = asyncio.ensure_future(worker.wait_for_work(seen=seen))
    await env.waiting("wait_for_work")
    await master.enqueue([task("a")])
    assert await soon(wakes) > seen


@case("COORD-C81")
async def closing_ends_pending_calls(env: CoordinatorEnv) -> None:
    """Twice without harm, also before first use; a caller is told, not left waiting."""
    unused = await env.worker()
    await unused.aclose()
    await unused.aclose()
    await env.master()
    worker = await join(env, "w")
    claim = worker.start_claim()
    await env.waiting("claim")
    signal = asyncio.ensure_future(worker.coordinator.wait_for_signal(seen=Signal.RUNNING))
    await env.waiting("wait_for_signal")

    await worker.coordinator.aclose()

    await refused(soon(claim), CoordinatorClosedError)
    await refused(soon(signal), CoordinatorClosedError)
    await refused(worker.coordinator.run_state(), CoordinatorClosedError)


@case("COORD-C85")
async def nobody_waits_for_a_lost_master(env: CoordinatorEnv) -> None:
    """Without a master nothing will ever happen: a worker must end and say so."""
    await env.master()
    worker = (await join(env, "w")).coordinator
    waiter = asyncio.ensure_future(worker.wait_for_signal(seen=Signal.RUNNING))
    await env.waiting("wait_for_signal")
    await env.pass_time(env.worker_timeout_s * 4.2)
    error = await refused(soon(waiter), MasterLostError)
    assert env.run_id in str(error)
