"""The master's feed and workers' events: COORD-C70 to C73."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from towline.testing.contract_cases.scene import events_of, expire, join, outcome_of, soon, task, value_of
from towline.testing.coordinator_contract import case

if TYPE_CHECKING:
    from towline.coordination.contract import MasterCoordinator
    from towline.testing.coordinator_contract import CoordinatorEnv


@case("COORD-C70")
async def the_feed_tells_everything_once_in_order(env: CoordinatorEnv) -> None:
    """It is the master's one window: what it misses here never gets into the plan."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a"), task("b")])
    first = await worker.claim()
    await worker.release(first)
    second = await worker.claim()
    await worker.claim()
    await worker.publish(second, value=[1, 2])
    await expire(env, master)

    entries = await master.feed(after=0, limit=100, wait_s=0)

    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert [(entry.kind, entry.task_id) for entry in entries] == [
        ("registered", None),
        ("claimed", "a"),
        ("released", "a"),
        ("claimed", "a"),
        ("claimed", "b"),
        ("finished", "a"),
        ("requeued", "b"),
        ("worker_gone", None),
    ]
    finished = entries[5]
    assert (finished.epoch, finished.worker_id) == (second.epoch, "w")
    assert finished.outcome is not None
    assert value_of(finished.outcome) == [1, 2]
    assert list(await master.feed(after=3, limit=2, wait_s=0)) == list(entries[3:5])
    assert await master.feed(after=0, limit=100, wait_s=0) == entries


@case("COORD-C70")
async def the_feed_wakes_its_reader(env: CoordinatorEnv) -> None:
    """A master that polled would add its poll to every edge of the graph."""
    master = await env.master()
    waiter = asyncio.ensure_future(master.feed(after=0, limit=10, wait_s=60))
    await env.waiting("feed")
    await join(env, "w")
    assert [entry.kind for entry in await soon(waiter)] == ["registered"]


async def _numbers(master: MasterCoordinator) -> list[tuple[str, int]]:
    batches = await master.receive_events(limit=100, wait_s=0)
    return [(batch.worker_id, event.n) for batch in batches for event in batch.events]


@case("COORD-C71")
async def an_event_is_stored_once(env: CoordinatorEnv) -> None:
    """A batch whose reply was lost comes again; one that skips something is refused."""
    master = await env.master()
    worker = await join(env, "w")
    send = worker.coordinator.send_events
    assert (await send(events_of(env, worker, 1, 3))).acked == 3
    assert (await send(events_of(env, worker, 1, 3))).acked == 3
    assert (await send(events_of(env, worker, 2, 5))).acked == 5
    gap = await send(events_of(env, worker, 7, 8))
    assert (gap.acked, gap.gap) == (5, True)
    old = await send(events_of(env, worker, 6, 6, owner_epoch=0))
    assert (old.acked, old.superseded) == (5, True)
    assert await _numbers(master) == [("w", n) for n in range(1, 6)]


@case("COORD-C71")
async def events_may_ride_with_the_outcome(env: CoordinatorEnv) -> None:
    """So that the log of a task is complete when its outcome is seen, at no extra round trip."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("a")])
    lease = await worker.claim()
    await worker.coordinator.publish_outcome(outcome_of(lease), lease=lease.ref, events=events_of(env, worker, 1, 2))
    assert await _numbers(master) == [("w", 1), ("w", 2)]


@case("COORD-C72")
async def events_come_again_until_acknowledged(env: CoordinatorEnv) -> None:
    """A master that died between reading and writing them has lost none."""
    master = await env.master()
    one, two = await join(env, "one"), await join(env, "two")
    waiter = asyncio.ensure_future(master.receive_events(limit=10, wait_s=60))
    await env.waiting("events")
    await one.coordinator.send_events(events_of(env, one, 1, 2))
    assert [event.n for event in (await soon(waiter))[0].events] == [1, 2]
    await two.coordinator.send_events(events_of(env, two, 1, 1))
    await one.coordinator.send_events(events_of(env, one, 3, 3))

    await env.pass_time(env.worker_timeout_s * 0.6)
    restarted = await env.master(master_id="m-2", owner_epoch=2)

    assert await _numbers(restarted) == [("one", 1), ("one", 2), ("two", 1), ("one", 3)]
    await restarted.acknowledge_events(one.ref, 2)
    await restarted.acknowledge_events(one.ref, 2)  # its answer may have been lost: it may be said again
    assert await _numbers(restarted) == [("two", 1), ("one", 3)]
    await restarted.acknowledge_events(one.ref, 3)
    await restarted.acknowledge_events(two.ref, 1)
    assert await _numbers(restarted) == []


@case("COORD-C73")
async def the_backlog_is_bounded(env: CoordinatorEnv) -> None:
    """When nobody reads the events, they stay with their senders and do not fill the store."""
    master = await env.master(event_backlog=3)
    worker = await join(env, "w")
    assert (await worker.coordinator.send_events(events_of(env, worker, 1, 3))).acked == 3
    full = await worker.coordinator.send_events(events_of(env, worker, 4, 4))
    assert (full.acked, full.gap) == (3, False)
    await master.acknowledge_events(worker.ref, 3)
    assert (await worker.coordinator.send_events(events_of(env, worker, 4, 4))).acked == 4
