"""Modules with many tasks: one per key of a matrix, one per item of a list that is known late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from towline import (
    Context,
    ExpandedModule,
    Failed,
    Options,
    Outcome,
    Pipeline,
    Succeeded,
    SyncContext,
    maybe_result_of,
    module,
    outcome_of,
    result_of,
)
from towline.errors.planning import ExpansionError
from towline.testing import clause
from towline.testing.modes import ModeName, in_modes, run_in_mode

pytestmark = pytest.mark.virtual_time


@clause("MOD-18")
@in_modes("local", "strict", "distributed")
async def test_matrix_gives_a_list_in_key_order(mode: ModeName) -> list[tuple[str, str]]:
    """Who reads three builds wants to know which is which."""

    @module(matrix={"python": ["3.11", "3.12"], "os": ["a", "b"]})
    async def test(ctx: Context, python: str, os: str) -> str:
        return f"{python}/{os}/{ctx.key}"

    @module
    async def merge(ctx: Context, results: list[str] = result_of(test)) -> list[str]:
        return results

    seen = await run_in_mode(Pipeline("matrix", [merge]), mode)
    keys = ["3.11,a", "3.11,b", "3.12,a", "3.12,b"]
    assert seen.value(merge) == [f"{key.replace(',', '/')}/{key}" for key in keys]
    assert set(seen.states) == {"merge", *(f"test[{key}]" for key in keys)}
    return seen.transitions


@clause("MOD-18")
async def test_failed_keys_are_none_for_an_optional_reader() -> None:
    """Partial results are read in their places."""

    @module(matrix={"n": [1, 2, 3]}, ignore_failure=True)
    async def part(ctx: Context, n: int) -> int:
        if n == 2:
            raise ValueError("two")
        return n

    @module
    async def merge(ctx: Context, parts: list[int | None] = maybe_result_of(part)) -> list[int | None]:
        return parts

    @module
    async def judge(ctx: Context, parts: list[Outcome[int]] = outcome_of(part)) -> list[str]:
        return [type(one).__name__ for one in parts]

    seen = await run_in_mode(Pipeline("places", [merge, judge]))
    assert seen.value(merge) == [1, None, 3]
    assert seen.value(judge) == ["Succeeded", "Failed", "Succeeded"]


@clause("MOD-19")
@in_modes("local", "strict", "distributed")
async def test_same_key_pairs_one_with_one(mode: ModeName) -> None:
    """The test of 3.12 needs the build of 3.12, and does not wait for the other."""

    @module(matrix={"python": ["3.11", "3.12"]})
    async def build(ctx: Context, python: str) -> str:
        await asyncio.sleep(1 if python == "3.11" else 100)
        return python

    @module(matrix={"python": ["3.11", "3.12"]})
    async def check(ctx: Context, python: str, built: str = result_of(build, same_key=True)) -> float:
        assert built == python
        return asyncio.get_running_loop().time()

    begun = asyncio.get_running_loop().time()
    seen = await run_in_mode(Pipeline("paired", [check]), mode)
    assert [round(one - begun) for one in seen.value(check)] == [1, 100]


@clause("PLAN-56", "PLAN-57", "PLAN-62")
@in_modes("local", "strict", "distributed")
async def test_items_that_are_known_late_become_tasks(mode: ModeName) -> None:
    """What there is to do is often the result of looking."""

    @module
    async def look(ctx: Context) -> list[str]:
        await asyncio.sleep(1)
        return ["b", "a"]

    @module(each=result_of(look), retries=1)
    def pack(ctx: SyncContext, item: str) -> str:
        if item == "a" and ctx.attempt == 1:
            raise OSError("once")
        return f"{item}:{ctx.key}"

    @module
    async def merge(ctx: Context, packed: list[str] = result_of(pack)) -> list[str]:
        return packed

    seen = await run_in_mode(Pipeline("late", [merge]), mode)
    assert seen.value(merge) == ["b:b", "a:a"]
    rows = {task.id: task for task in seen.report.tasks}
    assert rows["pack[a]"].attempts == 2
    kinds = [event.kind for event in seen.of_kind("tasks_added", "task_state")]
    assert kinds.index("tasks_added") > 0
    added = next(seen.of_kind("tasks_added"))
    assert [task["id"] for task in added.data["tasks"]] == ["pack[b]", "pack[a]"]
    assert seen.report.counts == {"succeeded": 4}


@clause("PLAN-60")
@pytest.mark.parametrize("items", [[], {}])
async def test_nothing_to_do_gives_an_empty_list(items: Any) -> None:
    """No new files is a normal day."""

    @module
    async def look(ctx: Context) -> list[int] | dict[str, int]:
        return items

    @module(each=result_of(look))
    async def pack(ctx: Context, item: int) -> int:
        return item

    @module
    async def merge(ctx: Context, packed: list[int] = result_of(pack)) -> list[int]:
        return packed

    seen = await run_in_mode(Pipeline("nothing", [merge]))
    assert seen.value(merge) == []
    assert seen.status == "succeeded"


@clause("PLAN-60")
async def test_source_that_fails_skips_the_join_and_who_reads_it() -> None:
    """Without a list there is nothing to walk."""

    @module
    async def look(ctx: Context) -> list[int]:
        raise OSError("no share")

    @module(each=result_of(look))
    async def pack(ctx: Context, item: int) -> int:
        return item

    @module
    async def merge(ctx: Context, packed: list[int] = result_of(pack)) -> list[int]:
        return packed

    seen = await run_in_mode(Pipeline("nolist", [merge]))
    assert seen.states["pack"] == seen.states["merge"] == "skipped/dependency_failed"


@clause("PLAN-58")
@pytest.mark.parametrize(
    ("items", "word"),
    [(["a", "a"], "a"), ([""], "128"), ([object()], "key"), (list(range(30)), "20"), ("text", "list"), (3, "int")],
)
async def test_wrong_keys_fail_the_join_and_not_its_source(items: Any, word: str) -> None:
    """Two tasks of one name would share a cursor."""

    @module
    async def look(ctx: Context) -> Any:
        return items

    @module(each=result_of(look))
    async def pack(ctx: Context, item: Any) -> int:
        return 1

    @module
    async def merge(ctx: Context, packed: list[int] = result_of(pack)) -> None: ...

    seen = await run_in_mode(Pipeline("keys", [merge], options=Options(max_tasks=20)))
    assert seen.states["look"] == "succeeded"
    assert seen.states["pack"] == "failed/expansion_failed"
    assert seen.states["merge"] == "skipped/dependency_failed"
    assert seen.status == "failed"
    assert word in seen.report.failures[0].text
    assert isinstance(seen.cause, ExpansionError)


@clause("MOD-20")
async def test_each_over_literal_items_and_dicts() -> None:
    """A dict names its items."""

    class Pack(ExpandedModule[str], each={"one": 1, "two": 2}):
        async def run(self, ctx: Context) -> str:
            return f"{ctx.key}={ctx.item}"

    seen = await run_in_mode(Pipeline("dict", [Pack]))
    assert sorted(one.value for one in seen.report.outcome_of(Pack) if isinstance(one, Succeeded)) == ["one=1", "two=2"]


@clause("PLAN-60")
async def test_an_empty_list_waits_for_what_else_its_module_needs() -> None:
    """The list ends before that dependency does: its end must end the join, or the run is stuck."""

    @module
    async def slow(ctx: Context) -> int:
        await asyncio.sleep(1)
        return 1

    @module(each=[])
    async def pack(ctx: Context, item: int, one: int = result_of(slow)) -> int:
        return one

    @module
    async def merge(ctx: Context, packed: list[int] = result_of(pack)) -> list[int]:
        return packed

    seen = await run_in_mode(Pipeline("empty", [merge]))
    assert seen.states == {"slow": "succeeded", "pack": "succeeded", "merge": "succeeded"}


async def test_failed_child_is_the_root_and_fails_the_run() -> None:
    """The join is bookkeeping: the operator sees the child."""

    @module
    async def look(ctx: Context) -> list[int]:
        return [1, 2, 3]

    @module(each=result_of(look))
    async def pack(ctx: Context, item: int) -> int:
        if item == 2:
            raise ValueError("two")
        await asyncio.sleep(5)
        return item

    @module
    async def merge(ctx: Context, packed: list[int] = result_of(pack)) -> None: ...

    seen = await run_in_mode(Pipeline("child", [merge], options=Options(keep_going=True)))
    assert [failure.task for failure in seen.report.failures] == ["pack[2]"]
    assert seen.states["pack[3]"] == "succeeded"
    assert seen.states["merge"] == "skipped/dependency_failed"
    [row] = [task for task in seen.report.tasks if task.id == "merge"]
    assert row.blocked_by == "pack[2]"
    assert isinstance(seen.report.outcome_of(pack)[1], Failed)
