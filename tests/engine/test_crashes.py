"""Killed after any durable change, or after any effect, and started again: the end is that of an undisturbed run."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

from engine.stores import Moment, Moments, World, run_state_in, tasks_in, use_store
from towline import (
    Context,
    Module,
    Options,
    Outcome,
    Pipeline,
    Retry,
    Skip,
    SyncContext,
    maybe_result_of,
    module,
    outcome_of,
    result_of,
)
from towline.planning.records import FINAL_STATES
from towline.testing import SeenRun, clause, run_in_mode
from towline.testing.modes import ModeName

pytestmark = pytest.mark.virtual_time

ITEMS = 6


def migration(world: World) -> Pipeline[None]:
    """Something of everything: late expansion, cursors, steps, retries, skips, a failure that is ignored, clean-up."""

    @module
    async def look(ctx: Context) -> list[str]:
        world.enter(ctx.task_id)
        return ["a", "b", "c"]

    @module(each=result_of(look), retries=Retry(1, base_s=0.1))
    async def move(ctx: Context, item: str) -> int:
        world.enter(ctx.task_id)

        def key(row: int) -> int:
            return row

        cursor = await ctx.cursor(key=key, total=ITEMS)
        async for batch in cursor.batches(range(1, ITEMS + 1), size=2):
            for row in batch:
                world.put(f"{item}/{row}", row)
            if item == "b" and 3 in batch and f"glitch {item}" not in world.target:
                world.put(f"glitch {item}", 1)
                raise ConnectionError("glitch")
            await cursor.commit(batch)
        return ITEMS

    @module
    def count(ctx: SyncContext, moved: list[int] = result_of(move)) -> int:
        world.enter(ctx.task_id)
        return ctx.step("sum", sum_of, moved)

    def sum_of(moved: list[int]) -> int:
        world.put("sum", sum(moved))
        return sum(moved)

    @module
    async def skips(ctx: Context) -> int:
        world.enter(ctx.task_id)
        raise Skip("nothing")

    @module(ignore_failure=True)
    async def fails(ctx: Context) -> int:
        world.enter(ctx.task_id)
        raise ValueError("fails")

    class Report(Module[str]):
        total: int = result_of(count)
        skipped: int | None = maybe_result_of(skips)
        failed: Outcome[int] = outcome_of(fails)

        async def run(self, ctx: Context) -> str:
            world.enter(ctx.task_id)
            world.put("report", f"{self.total} {self.skipped} {type(self.failed).__name__}")
            return "reported"

    @module(always_run=True, after=[Report])
    async def clean(ctx: Context) -> None:
        world.enter(ctx.task_id)
        world.put("clean", 1)

    return Pipeline("migration", [clean, skips], options=Options(parallelism=2))


ROWS = {f"{item}/{row}": row for item in "abc" for row in range(1, ITEMS + 1)}
EXPECTED_TARGET = ROWS | {"glitch b": 1, "sum": 18, "report": "18 None Failed", "clean": 1}
SUCCEEDED = ("look", "move", "move[a]", "move[b]", "move[c]", "count", "Report", "clean")
EXPECTED_STATES = dict.fromkeys(SUCCEEDED, "succeeded") | {
    "skips": "skipped/module_skipped",
    "fails": "failed/error",
}


async def run_on(
    monkeypatch: pytest.MonkeyPatch, start: Moment | None = None, mode: ModeName = "local"
) -> tuple[SeenRun, Moments, World]:
    """Run the migration from a moment; a process that dies releases nothing, so the owner is just gone."""
    world = World()
    store = Moments(world, start)
    use_store(monkeypatch, store)
    return await run_in_mode(migration(world), mode), store, world


def check(seen: SeenRun, world: World) -> None:
    """The states and the target are those of an undisturbed run, and nothing counts twice."""
    assert seen.status == "succeeded"
    assert seen.states == EXPECTED_STATES
    assert world.target == EXPECTED_TARGET
    for row in seen.report.tasks:
        assert row.done is None or (row.done == row.total == ITEMS)


@clause("PLAN-29", "PLAN-57", "PLAN-61")
@clause("PLAN-41")
async def test_resume_after_any_moment_ends_like_an_undisturbed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The promise of the whole library: kill it anywhere, start it again, nothing is lost and nothing is done twice."""
    seen, store, world = await run_on(monkeypatch)
    check(seen, world)
    moments = store.taken
    assert len(moments) > 60
    for number, moment in enumerate(moments):
        again = Moments(World(), moment)
        before = await tasks_in(again)
        seen, _, world = await run_on(monkeypatch, moment)
        try:
            check(seen, world)
            # A run that had reached its end is followed by a new plan; any other one goes on.
            if before and await run_state_in(again) == "running":
                done = {name for name, task in before.items() if task.state == "succeeded"}
                assert not done & set(world.entered) - {"clean"}, "entered again"
                assert max(Counter(world.entered).values(), default=0) <= 2
        except BaseException as error:
            error.add_note(f"killed after moment {number} of {len(moments)}")
            raise


@clause("PLAN-29")
@pytest.mark.parametrize("mode", ["strict", "distributed"])
async def test_resume_after_some_moments_in_other_modes(mode: ModeName, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same promise where values travel, and where a master and its workers share the plan."""
    _, store, _ = await run_on(monkeypatch, mode=mode)
    for number, moment in enumerate(store.taken):
        if number % 5 == 0:
            seen, _, world = await run_on(monkeypatch, moment, mode)
            try:
                check(seen, world)
            except BaseException as error:
                error.add_note(f"killed after moment {number} of {len(store.taken)}")
                raise


@clause("PLAN-40")
async def test_a_resume_may_be_killed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power does not wait until the repair is done."""
    _, store, _ = await run_on(monkeypatch)
    chance = Random(7)
    for first in chance.sample(store.taken[2:-2], 6):
        _, second_store, _ = await run_on(monkeypatch, first)
        for second in chance.sample(second_store.taken, min(6, len(second_store.taken))):
            seen, _, world = await run_on(monkeypatch, second)
            check(seen, world)


@clause("PLAN-40")
async def test_two_resumes_in_a_row_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second `--resume` finds nothing to do and says so with success."""
    world = World()
    store = Moments(world)
    use_store(monkeypatch, store)
    pipeline = migration(world)
    await run_in_mode(pipeline)
    entered = list(world.entered)
    before = await tasks_in(store)
    seen = await run_in_mode(pipeline, earlier="resume")
    assert seen.report.exit_code == 0
    assert world.entered == entered
    after = await tasks_in(store)
    assert {name: task.state for name, task in after.items()} == {name: task.state for name, task in before.items()}
    assert {task.state for task in after.values()} <= FINAL_STATES


@clause("PLAN-17")
async def test_no_event_is_ahead_of_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a view has shown is on disk."""
    world = World()
    store = Moments(world)
    use_store(monkeypatch, store)
    checked = 0
    shown: list[tuple[str, str]] = []

    def watch(batch: Any) -> None:
        shown.extend((event.task, event.data["to"]) for event in batch if event.kind == "task_state")

    running = asyncio.ensure_future(run_in_mode(migration(world), watchers=(watch,)))
    while not running.done():
        await asyncio.sleep(0)
        on_disk = await tasks_in(store)
        for name, state in dict(shown).items():
            order = ["pending", "running", "succeeded", "failed", "skipped", "cancelled"]
            assert order.index(on_disk[name].state) >= order.index(state)
            checked += 1
    assert checked > 100
