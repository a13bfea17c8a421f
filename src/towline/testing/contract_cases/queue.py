"""The queue: who gets what, in which order: COORD-C21 to C32, C36, C37."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.artifacts.records import ArtifactRef
from towline.coordination.records import DependencyRef, Lease
from towline.testing.contract_cases.scene import Actor, join, soon, task
from towline.testing.coordinator_contract import case

if TYPE_CHECKING:
    from towline.testing.coordinator_contract import CoordinatorEnv


async def _drain(worker: Actor) -> list[str]:
    """Claim until there is nothing; returns the task ids in order."""
    taken: list[str] = []
    while isinstance(reply := await worker.ask(), Lease):
        taken.append(reply.task_id)
        assert len(taken) <= 100, "the same tasks again and again"
    return taken


@case("COORD-C21")
async def every_clause_needs_a_shared_name(env: CoordinatorEnv) -> None:
    """A task that needs docker on Linux or macOS must not reach a machine that lacks one of these."""
    master = await env.master()
    docker, linux, both = (
        await join(env, "docker", capabilities=("docker",)),
        await join(env, "linux", capabilities=("linux",)),
        await join(env, "both", capabilities=("Docker", "LINUX")),
    )
    await master.enqueue([task("a", (("docker",), ("linux", "macos")))])

    await docker.finds_nothing()
    await linux.finds_nothing()
    assert (await both.claim()).task_id == "a"


@case("COORD-C23")
async def a_requirement_survives_the_wire(env: CoordinatorEnv) -> None:
    """What was declared is what is matched and shown."""
    master = await env.master()
    worker = await join(env, "w", capabilities=("docker", "linux"))
    requires = (("docker",), ("linux", "macos"))
    await master.enqueue([task("a", requires)])
    assert (await worker.claim()).assignment.requires == requires


@case("COORD-C30")
async def a_waiting_worker_gets_the_whole_assignment(env: CoordinatorEnv) -> None:
    """Every field that the master set is what the worker runs by."""
    master = await env.master()
    worker = await join(env, "w")
    waiter = worker.start_claim()
    await env.waiting("claim")
    assignment = task(
        "build[3.12]",
        key="3.12",
        always_run=True,
        priority=-7,
        critical_path_ms=1234,
        timeout_ms=60_000,
        attempts_allowed=3,
        dependencies=(DependencyRef(task_id="ré|store", state="succeeded", has_value=True),),
        consumes=(ArtifactRef(task_id="a", name="w", digest="sha256:" + "0" * 64, size_bytes=2**40, kind="file"),),
        required_artifacts=("wheel",),
        params_digest="sha256:p",
    )

    await master.enqueue([assignment])

    lease = await soon(waiter)
    assert isinstance(lease, Lease)
    assert (lease.assignment, lease.worker_id, lease.session) == (assignment, "w", "s1")
    assert lease.epoch > 0


@case("COORD-C31")
async def claims_follow_one_order(env: CoordinatorEnv) -> None:
    """Urgent first; then what few workers can run; then the pickier; then the longer path; then the older."""
    master = await env.master()
    both = await join(env, "both", capabilities=("linux", "gpu", "docker"))
    await join(env, "linux", capabilities=("linux", "docker"))
    await master.enqueue(
        [
            task("older"),
            task("newer"),
            task("longer", critical_path_ms=5000),
            task("picky", (("docker",), ("linux",))),
            task("plain", (("linux",),)),
            task("rare", (("gpu",),)),
            task("urgent", priority=5),
            task("last", priority=-1),
        ]
    )
    assert await _drain(both) == ["urgent", "rare", "picky", "plain", "longer", "older", "newer", "last"]


@case("COORD-C31")
async def scarcity_counts_the_living(env: CoordinatorEnv) -> None:
    """A worker that died no longer makes a requirement common."""
    master = await env.master()
    both = await join(env, "both", capabilities=("a", "b"))
    await join(env, "only-a", capabilities=("a",))
    await env.pass_time(env.worker_timeout_s * 0.6)
    await both.beat()
    await join(env, "only-b", capabilities=("b",))
    await env.pass_time(env.worker_timeout_s * 0.6)
    await both.beat()

    await master.enqueue([task("for-b", (("b",),)), task("for-a", (("a",),))])

    assert await _drain(both) == ["for-a", "for-b"]


@case("COORD-C32")
async def work_for_others_wakes_nobody_for_nothing(env: CoordinatorEnv) -> None:
    """A worker that cannot run what is queued neither gets it nor stops waiting."""
    master = await env.master()
    worker = await join(env, "w", capabilities=("linux",))
    await master.enqueue([task("foreign", (("windows",),))])
    waiter = worker.start_claim()
    await env.waiting("claim")
    await master.enqueue([task("foreign-2", (("windows",),))])
    assert not waiter.done()

    await master.enqueue([task("own", (("linux",),))])

    lease = await soon(waiter)
    assert isinstance(lease, Lease)
    assert lease.task_id == "own"


@case("COORD-C36")
async def a_task_is_queued_once(env: CoordinatorEnv) -> None:
    """A master that repeats a call after a lost reply must not make work twice."""
    master = await env.master()
    worker = await join(env, "w")
    assert list(await master.enqueue([task("a"), task("b"), task("a")])) == [True, True, False]
    leased = await worker.claim()
    assert list(await master.enqueue([task("a"), task("b"), task("c")])) == [False, False, True]
    await worker.publish(leased)
    assert list(await master.enqueue([task("a", priority=900)])) == [False]
    assert await _drain(worker) == ["b", "c"]


@case("COORD-C37")
async def only_queued_tasks_are_withdrawn(env: CoordinatorEnv) -> None:
    """A cancel takes back what nobody started, and leaves the others in their order."""
    master = await env.master()
    worker = await join(env, "w")
    await master.enqueue([task("leased"), task("a"), task("b"), task("c")])
    lease = await worker.claim()

    assert await master.withdraw(["leased", "b", "never"]) == {"b"}

    assert await master.withdraw(["b"]) == frozenset()
    assert [held.task_id for held in await master.active_leases()] == ["leased"]
    await worker.publish(lease)
    assert await master.withdraw(["leased"]) == frozenset()
    assert await _drain(worker) == ["a", "c"]
    assert list(await master.enqueue([task("b")])) == [True]
    assert await _drain(worker) == ["b"]
