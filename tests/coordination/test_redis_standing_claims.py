"""Claims that stand at the server: an enqueue serves them, and what is granted to nobody comes back."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from towline.coordination.records import DependencyRef, Lease, NoWork
from towline.errors.coordination import CoordinationError
from towline.testing import clause
from towline.testing.contract_cases.scene import Actor, outcome_of, registration_of, task
from towline.testing.coordinator_envs import RedisEnv

if TYPE_CHECKING:
    from towline.coordination.client import LinkedCoordinator
    from towline.coordination.records import ClaimReply

_runs = itertools.count()
LIMIT_S = 10.0
LEASE_S = 60.0
"""A lease so long that a worker that has asked in this test counts as one that has asked just now."""


class Desk:
    """One run on a server, with its master, and a count of the scripts that the server was sent."""

    def __init__(self, url: str) -> None:
        self.env = RedisEnv(url, f"standing-{next(_runs)}")  # it polls every 30 s: what comes earlier came by itself
        self._url = url
        self.master: LinkedCoordinator

    async def open(self) -> None:
        self.master = await self.env.master(worker_timeout_ms=round(LEASE_S * 1000))

    async def join(self, worker_id: str, **fields: Any) -> Actor:
        coordinator = await self.env.worker()
        registration = registration_of(self.env, worker_id, **fields)
        await coordinator.register(registration)
        return Actor(coordinator, registration)

    async def waiting_claim(self, worker: Actor) -> asyncio.Task[ClaimReply]:
        claim = worker.start_claim()
        await self.env.waiting("claim")
        return claim

    async def busy(self, worker_id: str = "w") -> tuple[Actor, Lease]:
        """Return a worker that stood idle and was granted the task ``a``."""
        worker = await self.join(worker_id)
        claim = await self.waiting_claim(worker)
        await self.master.enqueue([task("a")])
        return worker, await lease_of(claim)

    async def scripts(self) -> int:
        found = await self.command("INFO", "commandstats")
        line = bytes(found).partition(b"cmdstat_evalsha:calls=")[2]
        return int(line.partition(b",")[0] or b"0")

    async def command(self, *parts: str) -> Any:
        return await self.master._redis.command(*parts)  # type: ignore[attr-defined]

    def key(self, kind: str) -> str:
        return f"towline:run:{{{self.env.run_id}}}:{kind}"

    async def close(self) -> None:
        await self.env.aclose()


@pytest.fixture
async def desk(redis_url: str) -> Any:
    found = Desk(redis_url)
    await found.open()
    yield found
    await found.close()


async def lease_of(claim: asyncio.Task[ClaimReply]) -> Lease:
    async with asyncio.timeout(LIMIT_S):
        reply = await claim
    assert isinstance(reply, Lease), reply
    return reply


@clause("COORD-R11")
@pytest.mark.anyio
async def test_an_idle_worker_gets_its_lease_with_the_wake_up(desk: Desk) -> None:
    """A wake-up that is answered by a claim, and a claim by a read of the value before, are two round trips too many."""
    worker = await desk.join("w")
    await desk.master.enqueue([task("before")])
    before = await worker.claim()
    await worker.coordinator.publish_outcome(outcome_of(before, value=41), lease=before.ref)
    claim = await desk.waiting_claim(worker)
    sent = await desk.scripts()
    needed = DependencyRef(task_id="before", state="succeeded", has_value=True)
    await desk.master.enqueue([task("after", dependencies=(needed,))])
    lease = await lease_of(claim)
    assert await desk.scripts() == sent + 1
    assert (lease.task_id, lease.epoch, lease.session) == ("after", 1, worker.ref.session)
    assert lease.brought == (outcome_of(before, value=41),)
    assert [held.ref for held in await desk.master.active_leases()] == [lease.ref]


@clause("COORD-R11")
@pytest.mark.anyio
async def test_a_claim_goes_on_from_the_outcome_that_it_rode_on(desk: Desk) -> None:
    """A busy worker that finds nothing stands already: it need not say so again."""
    worker, lease = await desk.busy()
    sent = await desk.scripts()
    _, nothing = await worker.coordinator.publish_and_claim(
        outcome_of(lease), lease=lease.ref, worker=worker.ref, token="rides"
    )
    assert isinstance(nothing, NoWork)
    claim = asyncio.ensure_future(worker.coordinator.claim(worker.ref, token="rides", wait_s=None))
    await desk.env.waiting("claim")
    await desk.master.enqueue([task("b")])
    assert (await lease_of(claim)).task_id == "b"
    assert await desk.scripts() == sent + 2


@clause("COORD-R11")
@pytest.mark.anyio
async def test_a_grant_between_two_calls_is_kept(desk: Desk) -> None:
    """The wake-up comes before the worker has turned from its outcome to its next claim."""
    worker, lease = await desk.busy()
    await worker.coordinator.publish_and_claim(outcome_of(lease), lease=lease.ref, worker=worker.ref, token="rides")
    await desk.master.enqueue([task("b")])
    granted = await desk.master.active_leases()
    claim = asyncio.ensure_future(worker.coordinator.claim(worker.ref, token="rides", wait_s=None))
    assert [(await lease_of(claim)).ref] == [held.ref for held in granted]


@clause("COORD-R11")
@pytest.mark.anyio
async def test_a_wake_up_between_two_calls_is_kept(desk: Desk) -> None:
    """As a grant: a worker that was only woken asks at once, not when it next polls."""
    worker, lease = await desk.busy()
    await worker.coordinator.publish_and_claim(outcome_of(lease), lease=lease.ref, worker=worker.ref, token="rides")
    await desk.master.enqueue([task("once", at_most_once=True)])
    standing: Any = worker.coordinator
    while not standing._standing[worker.ref].watch._happened.is_set():  # noqa: ASYNC110 - bounded by the timeout of the test
        await asyncio.sleep(0.001)
    claim = asyncio.ensure_future(worker.coordinator.claim(worker.ref, token="rides", wait_s=None))
    assert (await lease_of(claim)).task_id == "once"


@clause("COORD-R11")
@pytest.mark.anyio
async def test_a_claim_under_another_token_gives_back_what_stood(desk: Desk) -> None:
    """Whoever turns from one claim to another does not take the first one's lease along unheard."""
    worker, lease = await desk.busy()
    await worker.coordinator.publish_and_claim(outcome_of(lease), lease=lease.ref, worker=worker.ref, token="rides")
    await desk.master.enqueue([task("b")])
    again = await worker.coordinator.claim(worker.ref, token="another", wait_s=0)
    assert isinstance(again, Lease)
    assert (again.task_id, again.epoch) == ("b", 2)  # the grant of epoch 1 was withdrawn first
    assert [held.ref for held in await desk.master.active_leases()] == [again.ref]


@clause("COORD-R11", "COORD-C35")
@pytest.mark.anyio
async def test_a_claim_that_waits_is_not_disturbed_by_another(desk: Desk) -> None:
    """Another slot hands over its outcome, or asks where it may not: the waiting one is served as before."""
    worker = await desk.join("w")
    await desk.master.enqueue([task("a")])
    lease = await worker.claim()
    claim = await desk.waiting_claim(worker)
    with pytest.raises(CoordinationError, match="one claim at a time"):
        await worker.coordinator.claim(worker.ref, token="second", wait_s=None)
    published, reply = await worker.coordinator.publish_and_claim(
        outcome_of(lease), lease=lease.ref, worker=worker.ref, token="third"
    )
    assert (published.accepted, reply) == (True, NoWork(-1))
    sent = await desk.scripts()
    await desk.master.enqueue([task("b")])
    assert (await lease_of(claim)).task_id == "b"
    assert await desk.scripts() == sent + 1


@clause("COORD-R11", "COORD-C33")
@pytest.mark.parametrize("ends_by", ["its bound", "a cancellation"])
@pytest.mark.anyio
async def test_a_wait_that_ends_leaves_nothing_standing(desk: Desk, ends_by: str) -> None:
    """What is granted to a claim whose caller has gone would have to run out first."""
    worker = await desk.join("w")
    if ends_by == "its bound":
        assert isinstance(await worker.coordinator.claim(worker.ref, token="bounded", wait_s=0.01), NoWork)
    else:
        claim = await desk.waiting_claim(worker)
        claim.cancel()
        await asyncio.wait([claim])
    await desk.master.enqueue([task("a")])
    assert not await desk.master.active_leases()
    assert (await worker.claim()).epoch == 1


@clause("COORD-R11", "COORD-C35")
@pytest.mark.anyio
async def test_a_lost_grant_is_found_by_asking_again(desk: Desk) -> None:
    """Nothing hangs on the message: whoever is subscribed anew asks, and gets the same lease by its token."""
    worker = await desk.join("w")
    claim = await desk.waiting_claim(worker)
    standing: Any = worker.coordinator
    standing._standing[worker.ref].watch.hear = lambda message: None  # the message arrives nowhere
    await desk.master.enqueue([task("a")])
    [granted] = await desk.master.active_leases()
    del standing._standing[worker.ref].watch.hear
    await desk.command("CLIENT", "KILL", "TYPE", "pubsub")
    lease = await lease_of(claim)
    assert lease.ref == granted.ref


@clause("COORD-R11", "COORD-C45")
@pytest.mark.anyio
async def test_a_task_that_must_not_be_lost_is_not_granted_unasked(desk: Desk) -> None:
    """A worker that was cut off since would lose it without having begun: it is woken, and asks."""
    worker = await desk.join("w")
    claim = await desk.waiting_claim(worker)
    sent = await desk.scripts()
    await desk.master.enqueue([task("once", at_most_once=True)])
    assert (await lease_of(claim)).task_id == "once"
    assert await desk.scripts() == sent + 2


@clause("COORD-R11")
@pytest.mark.anyio
async def test_a_worker_that_asked_long_ago_is_only_woken(desk: Desk) -> None:
    """A stopped process cannot take what it is granted; one that lives asks at once."""
    worker = await desk.join("w")
    claim = await desk.waiting_claim(worker)
    await desk.env.pass_time(LEASE_S / 10 + 1)
    sent = await desk.scripts()
    await desk.master.enqueue([task("a")])
    assert (await lease_of(claim)).task_id == "a"
    assert await desk.scripts() == sent + 2


@clause("COORD-R11")
@pytest.mark.anyio
async def test_a_damaged_outcome_does_not_come_along(desk: Desk) -> None:
    """Its own read says what is wrong and fails the task; the lease that it came with is good."""
    worker = await desk.join("w")
    claim = await desk.waiting_claim(worker)
    await desk.command("HSET", desk.key("outcomes"), "before", "succeeded|1|w|{torn")
    needed = DependencyRef(task_id="before", state="succeeded", has_value=True)
    await desk.master.enqueue([task("after", dependencies=(needed,))])
    lease = await lease_of(claim)
    assert (lease.task_id, lease.brought) == ("after", ())


@clause("COORD-R11")
@pytest.mark.anyio
async def test_idle_workers_are_served_by_what_they_can_do(desk: Desk) -> None:
    """The first one takes what it fits best; what it leaves goes to the next, not to a poll."""
    both = await desk.join("both", capabilities=("docker",))
    plain = await desk.join("plain")
    claims = [await desk.waiting_claim(both), plain.start_claim()]
    while sum(made.waiting["claim"] for made in desk.env.made) < 2:  # noqa: ASYNC110 - bounded by the timeout of the test
        await asyncio.sleep(0.001)
    await desk.master.enqueue([task("any"), task("special", (("docker",),))])
    assert [(await lease_of(claim)).task_id for claim in claims] == ["special", "any"]


@clause("COORD-R11", "DIST-24")
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.anyio
async def test_a_claim_that_is_withdrawn_is_granted_nothing(desk: Desk, is_late: bool) -> None:
    """A worker that leaves asks for nothing more; what was granted to it in that moment is at once another's."""
    leaving, staying = await desk.join("leaving"), await desk.join("staying")
    first = await desk.waiting_claim(leaving)
    await desk.master.enqueue([task("a")])
    lease = await lease_of(first)
    await leaving.coordinator.publish_and_claim(outcome_of(lease), lease=lease.ref, worker=leaving.ref, token="rides")
    if is_late:
        await desk.master.enqueue([task("b")])
    await leaving.coordinator.withdraw_claim(leaving.ref, token="rides")
    assert not await desk.master.active_leases()
    if not is_late:
        await desk.master.enqueue([task("b")])
        assert not await desk.master.active_leases()
    assert (await staying.claim()).epoch == (2 if is_late else 1)


@clause("COORD-R11")
@pytest.mark.anyio
async def test_who_became_idle_last_is_served_first(desk: Desk) -> None:
    """A chain stays in the process that is warm and has the value, not in the coldest of fifteen."""
    names = ("b", "a", "c")
    workers = [await desk.join(name) for name in names]
    claims = {}
    for number, worker in enumerate(workers, 1):
        claims[worker.ref.worker_id] = worker.start_claim()
        while sum(made.waiting["claim"] for made in desk.env.made) < number:  # noqa: ASYNC110 - bounded by the test's timeout
            await asyncio.sleep(0.001)
    for task_id, name in zip(("x", "y", "z"), reversed(names), strict=True):
        await desk.master.enqueue([task(task_id)])
        assert (await lease_of(claims[name])).task_id == task_id


@clause("COORD-R11")
@pytest.mark.anyio
async def test_a_worker_that_holds_a_task_comes_after_those_that_hold_none(desk: Desk) -> None:
    """One node with several slots would draw all tasks to itself, while whole machines stand idle."""
    large, small = await desk.join("large", parallelism=4), await desk.join("small")
    await desk.master.enqueue([task("a")])
    assert (await large.claim()).task_id == "a"
    claims = [await desk.waiting_claim(small), large.start_claim()]
    while sum(made.waiting["claim"] for made in desk.env.made) < 2:  # noqa: ASYNC110 - bounded by the timeout of the test
        await asyncio.sleep(0.001)
    await desk.master.enqueue([task("b")])
    assert (await lease_of(claims[0])).task_id == "b"
    await desk.master.enqueue([task("c")])
    assert (await lease_of(claims[1])).task_id == "c"
