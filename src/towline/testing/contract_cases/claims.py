"""Claims under cancellation, concurrency and signals: COORD-C33 to C39."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from towline.coordination.records import Closed, Lease
from towline.coordination.signals import Signal
from towline.errors.coordination import CoordinationError
from towline.testing.contract_cases.scene import cancel, join, outcome_of, refused, soon, task
from towline.testing.coordinator_contract import case

if TYPE_CHECKING:
    from towline.testing.contract_cases.scene import Actor
    from towline.testing.coordinator_contract import CoordinatorEnv


@case("COORD-C33")
async def a_cancelled_claim_keeps_nothing(env: CoordinatorEnv) -> None:
    """A lease that nobody saw would block its task until it runs out."""
    master = await env.master()
    worker, other = await join(env, "w"), await join(env, "other")
    waiter = worker.start_claim()
    await env.waiting("claim")
    await cancel(waiter)

    racing = worker.start_claim()
    await env.waiting("claim")
    enqueued = asyncio.ensure_future(master.enqueue([task("a")]))
    await asyncio.sleep(0)
    racing.cancel()
    await asyncio.wait([racing, enqueued])

    assert racing.cancelled() or isinstance(racing.result(), Lease)
    if racing.cancelled():
        assert list(await master.active_leases()) == []
        assert (await other.claim()).task_id == "a"


@case("COORD-C34")
async def concurrent_claims_share_no_task(env: CoordinatorEnv) -> None:
    """Each task is leased exactly once, however many ask."""
    master = await env.master()
    workers = [await join(env, f"w{number}") for number in range(5)]
    await master.enqueue([task(f"t{number}") for number in range(20)])

    async def drain(worker: Actor) -> list[str]:
        taken = []
        while isinstance(reply := await worker.ask(), Lease):
            taken.append(reply.task_id)
            assert len(taken) <= 20, "more leases than tasks"
        return taken

    taken = await asyncio.gather(*map(drain, workers))

    assert Counter(name for names in taken for name in names) == Counter(f"t{number}" for number in range(20))


@case("COORD-C35")
async def the_same_token_gives_the_same_lease(env: CoordinatorEnv) -> None:
    """A claim whose reply was lost is asked again; it must not take a second task."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a"), task("b")])
    first = await worker.ask(token="t1")
    again = await worker.ask(token="t1")
    assert isinstance(first, Lease)
    assert isinstance(again, Lease)
    assert again.ref == first.ref

    await worker.coordinator.publish_outcome(outcome_of(first), lease=first.ref)
    anew = await worker.ask(token="t1")

    assert isinstance(anew, Lease)
    assert anew.task_id == "b"


@case("COORD-C35")
async def one_claim_at_a_time(env: CoordinatorEnv) -> None:
    """Two pending claims of one session could not be told apart by the last token."""
    await env.master()
    worker = await join(env, "w")
    waiter = worker.start_claim()
    await env.waiting("claim")
    await refused(worker.ask(), CoordinationError)
    await cancel(waiter)


@case("COORD-C38")
async def after_a_failure_only_always_run_work_is_given(env: CoordinatorEnv) -> None:
    """Clean-up tasks run after a failure; nothing else starts."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("ordinary", priority=9), task("cleanup", always_run=True)])
    await master.send_signal(Signal.PIPELINE_FAILED)

    assert (await worker.claim()).task_id == "cleanup"
    waiter = worker.start_claim()
    await env.waiting("claim")
    assert not waiter.done()

    await master.enqueue([task("late", always_run=True)])
    lease = await soon(waiter)
    assert isinstance(lease, Lease)
    assert lease.task_id == "late"


@case("COORD-C39")
async def a_stop_closes_every_claim(env: CoordinatorEnv) -> None:
    """Pending and later claims, with work of any kind in the queue, however many wait."""
    master = await env.master()
    workers = [await join(env, f"w{number}") for number in range(10)]
    waiters = [worker.start_claim() for worker in workers]
    await env.waiting("claim")

    await master.send_signal(Signal.STOPPED)
    await master.enqueue([task("a"), task("b", always_run=True)])

    for waiter in waiters:
        assert await soon(waiter) == Closed("stopped")
    assert await workers[0].ask() == Closed("stopped")


@case("COORD-C39")
async def completion_closes_every_claim(env: CoordinatorEnv) -> None:
    """A worker that missed the message learns it from its next claim."""
    master = await env.master()
    waiting, late = await join(env, "waiting"), await join(env, "late")
    waiter = waiting.start_claim()
    await env.waiting("claim")

    await master.complete()

    assert await soon(waiter) == Closed("completed")
    assert await late.ask() == Closed("completed")
