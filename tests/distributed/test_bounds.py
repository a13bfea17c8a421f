"""What bounds a node, what bounds the run, what comes from a cache, and what one operator's cancel reaches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from distributed.together import run_together
from towline import Cache, Context, Pipeline, Pool, TaskFacts, module, result_of
from towline.coordination.memory import MemoryCoordinators
from towline.distributed.options import DistributedOptions
from towline.execution.limits import ModuleRules
from towline.execution.node_rights import NodeRights
from towline.execution.options import Options
from towline.execution.run_request import RunRequest
from towline.testing import clause, run_virtual

if TYPE_CHECKING:
    from pathlib import Path

busy: dict[str, int] = {}
most: dict[str, int] = {}


async def _be_busy(*names: str) -> None:
    for name in names:
        busy[name] = busy.get(name, 0) + 1
        most[name] = max(most.get(name, 0), busy[name])
    await asyncio.sleep(1)
    for name in names:
        busy[name] -= 1


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    busy.clear()
    most.clear()


@module(matrix={"number": list(range(12))}, hint="cpu")
async def computes(ctx: Context, number: int) -> int:
    await _be_busy(ctx.worker_id, "all")
    return number


@clause("DIST-36", "RUN-02")
def test_computing_tasks_are_bounded_by_the_cores_of_their_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node has its own processors: two nodes of two cores run four such tasks at once, none more than two."""
    monkeypatch.setattr("towline.pipeline.worker_node.node_cores", lambda: 2)
    run = run_virtual(run_together([computes], options={"parallelism": 6}))
    assert run.report.status == "succeeded"
    assert most == {"w-1": 2, "w-2": 2, "all": 4}


@module(matrix={"number": list(range(8))}, pools={"disk": 1, "licence": 1})
async def uses_pools(ctx: Context, number: int) -> int:
    await _be_busy(ctx.worker_id, "all")
    return number


@clause("DIST-36", "SCHED-11")
@pytest.mark.parametrize(
    ("pools", "per_node", "in_all"),
    [({"disk": 1, "licence": 100}, 1, 2), ({"disk": 100, "licence": Pool(3, scope="run")}, 3, 3)],
)
def test_pools_are_counted_per_node_or_over_all(pools: dict[str, Any], per_node: int, in_all: int) -> None:
    """A disk belongs to a machine; a licence is counted by who sold it."""
    run = run_virtual(run_together([uses_pools], options={"parallelism": 4, "pools": pools}))
    assert run.report.status == "succeeded"
    assert most.pop("all") == in_all
    assert max(most.values()) <= per_node


@clause("DIST-36")
def test_rights_of_a_node_go_in_order_and_come_back() -> None:
    """A task that wants much is not overtaken for ever; one that was cancelled while it waited holds nothing."""
    rules = {name: ModuleRules(pools={"p": count}) for name, count in (("small", 1), ("large", 2))}
    rights = NodeRights(rules, cores=1, pools={"p": 2})
    order: list[str] = []

    async def use(name: str) -> None:
        await rights.take(name)
        order.append(name)
        await asyncio.sleep(1)
        rights.give_back(name)

    async def scenario() -> None:
        first = asyncio.ensure_future(use("small"))
        await asyncio.sleep(0.5)
        cancelled = asyncio.ensure_future(use("large"))
        large = asyncio.ensure_future(use("large"))
        last = asyncio.ensure_future(use("small"))
        await asyncio.sleep(0.1)
        cancelled.cancel()
        await asyncio.gather(first, large, last, return_exceptions=True)
        await asyncio.gather(use("large"))

    run_virtual(scenario())
    assert order == ["small", "large", "small", "large"]


executed: list[str] = []


@module(cache=Cache(version="1"))
async def remembered(ctx: Context) -> int:
    executed.append("remembered")
    return 7


@module(cache=Cache(version="1"))
async def follows(ctx: Context, value: int = result_of(remembered)) -> int:
    executed.append("follows")
    return value + 1


@clause("DIST-37")
def test_what_is_cached_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hit is an outcome like any other, of the master; a worker's success is there for the next run."""
    monkeypatch.chdir(tmp_path)
    executed.clear()
    first = asyncio.run(run_together([follows], workers={"w-1": ()}))
    assert (first.report.status, executed) == ("succeeded", ["remembered", "follows"])

    again = asyncio.run(run_together([follows], workers={"w-1": ()}))

    assert (again.report.status, executed) == ("succeeded", ["remembered", "follows"])
    assert again.report.outcome_of(follows).value == 8
    assert again.workers == {"remembered": "local", "follows": "local"}
    assert {task.origin for task in again.report.tasks} == {"cached"}

    executed.clear()
    asyncio.run(run_together([follows], workers={"w-1": ()}, options={"no_cache": True}))
    assert executed == ["remembered", "follows"]


def is_wanted(facts: TaskFacts) -> bool:
    executed.append(f"asked on {facts.worker_id}")
    return True


@module(cache=Cache(version="1"), run_if=is_wanted)
async def conditional(ctx: Context) -> int:
    executed.append("conditional")
    return 3


@clause("CACHE-06")
def test_a_node_looks_up_after_the_conditions_that_it_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What only a node can decide comes before the cache: a task that is not wanted there is skipped, not restored."""
    monkeypatch.chdir(tmp_path)
    executed.clear()
    asyncio.run(run_together([remembered, conditional], workers={"w-1": ()}))
    assert sorted(executed) == ["asked on w-1", "conditional", "remembered"]
    executed.clear()

    again = asyncio.run(run_together([remembered, conditional], workers={"w-1": ()}))

    assert executed == ["asked on w-1"]
    assert again.workers == {"remembered": "local", "conditional": "w-1"}
    assert {task.origin for task in again.report.tasks} == {"cached"}


@module
async def endless(ctx: Context) -> int:
    try:
        await asyncio.sleep(10_000)
    except asyncio.CancelledError:
        executed.append(f"cancelled at {asyncio.get_running_loop().time():.0f}")
        raise
    return 1


@module(requires="quantum")
async def never_taken(ctx: Context) -> int:
    return 1


@module
async def goes_on(ctx: Context) -> int:
    await asyncio.sleep(60)
    return 1


@clause("DIST-42")
def test_one_task_is_cancelled_wherever_it_is() -> None:
    """Queued: taken back. On a worker: ended at once for the run, and its holder learns it by its next heartbeat."""
    executed.clear()
    look: list[Any] = []
    made = DistributedOptions(
        coordinator=MemoryCoordinators(), master_parallelism=0, registration_timeout_s=600.0, heartbeat_interval_s=5.0
    )
    given = Options(state="memory:", parallelism=4, raise_on_failure=False, keep_going=True)
    modules = [endless, never_taken, goes_on]

    async def scenario() -> Any:
        request = RunRequest(options=given, distributed=made, run_id="run-1")
        working = asyncio.ensure_future(Pipeline("p", modules).work_for(request, "run-1", worker_id="w"))
        running = asyncio.ensure_future(
            Pipeline("p", modules).run_for(
                RunRequest(options=given, distributed=made, run_id="run-1", look=look.append)
            )
        )
        await asyncio.sleep(30)
        session = look[0]._session
        for name in ("endless", "never_taken"):
            session.engine.ask_stop("operator", task=session.opened.plan.index[name])
        await asyncio.sleep(0.1)
        early = {row.id: row.state for row in session.opened.plan.document.tasks}
        report, _ = await running
        await working
        return early, report

    early, report = run_virtual(scenario())
    assert early == {"endless": "cancelled", "never_taken": "cancelled", "goes_on": "running"}
    (said,) = executed
    assert 30 <= int(said.rpartition(" ")[2]) <= 36
    assert {task.id: task.state for task in report.tasks} == early | {"goes_on": "succeeded"}
