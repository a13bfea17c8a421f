"""The road of one task: what comes in, what surrounds the body, in which order, what is seen of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from towline import (
    Context,
    Failed,
    Module,
    Options,
    Outcome,
    Pipeline,
    Skip,
    Skipped,
    Succeeded,
    SyncContext,
    cap,
    env,
    maybe_result_of,
    module,
    outcome_of,
    result_of,
)
from towline.errors.run import ConditionError, RequirementsError
from towline.testing import clause
from towline.testing.modes import ModeName, in_modes, run_in_mode

pytestmark = pytest.mark.virtual_time

said: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    said.clear()


class Told(Module[str]):
    """Says each step of its road."""

    async def before(self, ctx: Context) -> None:
        said.append("before")

    async def run(self, ctx: Context) -> str:
        said.append("run")
        return "value"

    async def on_failed(self, ctx: Context, outcome: Failed) -> None:  # type: ignore[override]
        said.append("on_failed")

    async def on_skipped(self, ctx: Context, outcome: Skipped) -> None:
        said.append("on_skipped")

    async def after(self, ctx: Context, outcome: Outcome[str]) -> None:
        said.append(f"after {type(outcome).__name__}")


# -------------------------------------------------------------------- values


@clause("RUN-03", "RUN-10")
@in_modes("local", "strict", "distributed")
async def test_values_reach_who_declared_them(mode: ModeName) -> list[tuple[str, str]]:
    """A dependency's value is the point of declaring it."""

    @module
    async def one(ctx: Context) -> list[int]:
        return [1]

    @module
    def two(ctx: SyncContext, ones: list[int] = result_of(one)) -> list[int]:
        return [*ones, 2]

    @module
    async def three(ctx: Context, first: list[int] = result_of(one), second: list[int] = result_of(two)) -> list[int]:
        first.append(0)
        return [*second, 3]

    seen = await run_in_mode(Pipeline("values", [three]), mode)
    assert seen.value(three) == [1, 2, 3]
    if mode == "strict":
        assert seen.value(one) == [1]  # the list that `three` changed was its own copy
    return seen.transitions


@in_modes("local", "strict", "distributed")
async def test_absent_and_failed_dependencies_are_none(mode: ModeName) -> None:
    """An optional value is there or it is None; it never stops its reader."""

    @module
    async def absent(ctx: Context) -> int:
        return 1

    @module(skip_if=lambda task: True)
    async def skipped(ctx: Context) -> int:
        return 2

    @module(ignore_failure=True)
    async def failing(ctx: Context) -> int:
        raise ValueError("no")

    @module
    async def reader(
        ctx: Context,
        a: int | None = maybe_result_of(absent),
        b: int | None = maybe_result_of(skipped),
        c: int | None = maybe_result_of(failing),
    ) -> str:
        return f"{a} {b} {c}"

    seen = await run_in_mode(Pipeline("optional", [reader, skipped, failing]), mode)
    assert seen.value(reader) == "None None None"
    assert "absent" not in seen.states


@in_modes("local", "strict", "distributed")
async def test_outcome_of_gives_every_end(mode: ModeName) -> None:
    """Clean-up has to know how things ended, whatever that was."""

    @module
    async def good(ctx: Context) -> int:
        return 7

    @module(timeout=1)
    async def slow(ctx: Context) -> int:
        await asyncio.sleep(60)
        return 0

    @module(always_run=True)
    async def clean(ctx: Context, g: Outcome[int] = outcome_of(good), s: Outcome[int] = outcome_of(slow)) -> list[str]:
        assert isinstance(g, Succeeded)
        return [f"{type(g).__name__} {g.value}", type(s).__name__]

    seen = await run_in_mode(Pipeline("outcomes", [good, clean]), mode)
    assert seen.value(clean) == ["Succeeded 7", "TimedOut"]
    assert seen.status == "failed"


async def test_empty_pipeline_succeeds() -> None:
    """Nothing to do is done."""
    seen = await run_in_mode(Pipeline("empty", []))
    assert (seen.status, seen.report.exit_code, seen.states) == ("succeeded", 0, {})


# -------------------------------------------------------------------- order


@clause("PLAN-05", "PLAN-06")
@in_modes("local", "strict", "distributed")
async def test_ready_tasks_are_inside_their_bodies_together(mode: ModeName) -> None:
    """Two slots are two bodies at work; each waits for the other inside its own."""
    meeting = asyncio.Barrier(2)

    @module
    async def left(ctx: Context) -> None:
        await meeting.wait()
        await asyncio.sleep(1)

    @module
    async def right(ctx: Context) -> None:
        await meeting.wait()
        await asyncio.sleep(1)

    @module(after=[left])
    async def last(ctx: Context) -> None: ...

    seen = await run_in_mode(Pipeline("meet", [last, right], options=Options(parallelism=2)), mode)
    assert seen.status == "succeeded"
    assert seen.report.metrics["peak"] == 2


@clause("PLAN-05")
@pytest.mark.parametrize(("schedule", "order"), [("eager", ["a", "b", "x"]), ("tiers", ["a", "x", "b"])])
async def test_tiers_are_a_barrier_only_on_request(schedule: Any, order: list[str]) -> None:
    """A slow stranger holds up nobody, unless somebody wants tiers."""
    ended: list[str] = []

    @module
    async def a(ctx: Context) -> None:
        ended.append("a")

    @module
    async def x(ctx: Context) -> None:
        await asyncio.sleep(5)
        ended.append("x")

    @module(after=[a])
    async def b(ctx: Context) -> None:
        ended.append("b")

    await run_in_mode(Pipeline("tiers", [x, b], options=Options(schedule=schedule)))
    assert ended == order


@clause("PLAN-17")
async def test_next_task_starts_only_after_the_end_of_the_last_is_durable() -> None:
    """What somebody saw must still be true after a power cut."""
    journal: list[str] = []

    @module
    async def first(ctx: Context) -> None: ...

    @module(after=[first])
    async def second(ctx: Context) -> None:
        journal.append("second runs")

    def watch(batch: Any) -> None:
        journal.extend(f"{event.task} {event.data['to']}" for event in batch if event.kind == "task_state")

    await run_in_mode(Pipeline("durable", [second]), watchers=(watch,))
    assert journal == [
        *("first running", "first succeeded", "second running"),
        *("second runs", "second succeeded"),
    ]


# -------------------------------------------------------------------- hooks


@clause("RUN-05")
async def test_failing_before_fails_the_task_without_its_body() -> None:
    """What could not be prepared must not run, and needs no `after`."""

    class Unready(Told):
        async def before(self, ctx: Context) -> None:
            raise OSError("no disk")

    seen = await run_in_mode(Pipeline("unready", [Unready]))
    assert said == ["on_failed"]
    assert isinstance(seen.cause, OSError)


@clause("RUN-05")
async def test_other_hooks_change_nothing() -> None:
    """A broken notification must not break a release."""

    class Noisy(Told):
        async def after(self, ctx: Context, outcome: Outcome[str]) -> None:
            raise RuntimeError("chat is down")

    seen = await run_in_mode(Pipeline("noisy", [Noisy]))
    assert seen.status == "succeeded"
    assert any("chat is down" in event.data["text"] for event in seen.of_kind("log"))


@clause("RUN-04")
async def test_hooks_run_once_per_task_and_are_bounded() -> None:
    """A hook is about the task: three attempts are one notification, and it cannot hang the run."""

    class Tried(Told, retries=2):
        async def run(self, ctx: Context) -> str:
            said.append("run")
            raise ValueError("no")

        async def on_failed(self, ctx: Context, outcome: Failed) -> None:  # type: ignore[override]
            said.append("on_failed")
            await asyncio.sleep(10_000)

    seen = await run_in_mode(Pipeline("tried", [Tried]))
    assert said == ["before", "run", "run", "run", "on_failed", "after Failed"]
    assert asyncio.get_running_loop().time() < 100
    assert seen.status == "failed"


@clause("RUN-06")
async def test_skips_of_the_scheduler_reach_no_hook() -> None:
    """What never came to a node cannot call code there."""

    @module(ignore_failure=True)
    async def failing(ctx: Context) -> None:
        raise ValueError("no")

    class Behind(Told):
        value: None = result_of(failing)

    seen = await run_in_mode(Pipeline("behind", [Behind]))
    assert said == []
    assert seen.states["Behind"] == "skipped/dependency_failed"


async def test_hooks_of_sync_classes_run_in_threads() -> None:
    """A sync hook may block; it gets a blocking context."""

    class Sync(Module[int]):
        def before(self, ctx: SyncContext) -> None:
            said.append("before")

        def run(self, ctx: SyncContext) -> int:
            return 3

        def after(self, ctx: SyncContext, outcome: Outcome[int]) -> None:
            said.append("after")

    seen = await run_in_mode(Pipeline("sync", [Sync]))
    assert said == ["before", "after"]
    assert seen.value(Sync) == 3


# -------------------------------------------------------------------- conditions


@clause("RUN-12", "RUN-06")
@in_modes("local", "strict", "distributed")
async def test_conditions_decide_after_dependencies(mode: ModeName) -> None:
    """A condition may look at what is known when the task would start, and says itself why it skipped."""
    said.clear()

    def never(task: Any) -> bool:
        said.append(f"asked {task.task_id}")
        return False

    class Unwanted(Told, run_if=never): ...

    @module(after=[Unwanted])
    async def behind(ctx: Context) -> None: ...

    seen = await run_in_mode(Pipeline("conditions", [behind]), mode)
    assert said == ["asked Unwanted", "on_skipped", "after Skipped"]
    assert seen.states == {"Unwanted": "skipped/condition", "behind": "skipped/dependency_skipped"}
    assert "never" in seen.outcome(Unwanted).reason.text  # type: ignore[union-attr]
    assert seen.report.exit_code == 0


@clause("RUN-13")
async def test_condition_objects_are_known_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator sees in the plan what this machine will skip."""
    monkeypatch.delenv("RELEASE", raising=False)

    @module(run_if=env("RELEASE"))
    async def publish(ctx: Context) -> None: ...

    pipeline = Pipeline("known", [publish], options=Options(state="memory:"))
    shown = (await pipeline.plan()).to_text("json")
    assert '"skip"' in shown
    seen = await run_in_mode(pipeline)
    assert seen.states == {"publish": "skipped/condition"}
    assert [kind for _, kind in seen.transitions] == ["skipped"]


@clause("RUN-14")
@pytest.mark.parametrize("answer", ["raise", 1, None])
async def test_condition_that_cannot_be_told_fails_its_task(answer: Any) -> None:
    """A broken condition must not silently skip a deployment, nor start it."""

    def broken(task: Any) -> bool:
        if answer == "raise":
            raise KeyError("x")
        return answer  # type: ignore[no-any-return]

    @module(run_if=broken)
    async def deploy(ctx: Context) -> None:
        said.append("ran")

    seen = await run_in_mode(Pipeline("broken", [deploy]))
    assert isinstance(seen.cause, ConditionError)
    assert "broken" in str(seen.cause)
    assert said == []


@clause("RUN-15")
async def test_requirement_that_this_machine_lacks_skips() -> None:
    """A laptop without a GPU can still run the rest."""

    @module(requires=cap("gpu"))
    async def train(ctx: Context) -> None: ...

    seen = await run_in_mode(Pipeline("gpu", [train]))
    assert seen.states == {"train": "skipped/requirement_unmet"}
    seen = await run_in_mode(Pipeline("gpu", [train]), capabilities=("gpu",))
    assert seen.states == {"train": "succeeded"}


@clause("RUN-11")
async def test_start_checks_are_all_reported_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look says everything that is missing."""
    monkeypatch.delenv("TOKEN", raising=False)

    def is_monday() -> bool:
        return False

    @module
    async def body(ctx: Context) -> None:
        said.append("ran")

    with pytest.raises(RequirementsError) as refused:
        await run_in_mode(Pipeline("checked", [body], options=Options(require=[env("TOKEN"), is_monday])))
    assert len(refused.value.unmet) == 2
    assert "TOKEN" in str(refused.value)
    assert "is_monday" in str(refused.value)
    assert said == []


@clause("RUN-62")
@clause("PLAN-47")
@in_modes("local", "strict", "distributed")
async def test_a_body_may_skip_itself(mode: ModeName) -> None:
    """Only the body may know that there is nothing to do; that is no success and no failure."""

    @module(retries=3)
    async def nothing_to_do(ctx: Context) -> None:
        said.append("entered")
        raise Skip("no new files")

    @module
    async def behind(ctx: Context, value: None = result_of(nothing_to_do)) -> None: ...

    @module
    async def beside(ctx: Context, value: None = maybe_result_of(nothing_to_do)) -> None: ...

    said.clear()
    seen = await run_in_mode(Pipeline("skips", [behind, beside]), mode)
    assert seen.states["nothing_to_do"] == "skipped/module_skipped"
    assert seen.outcome(nothing_to_do).reason.text == "no new files"  # type: ignore[union-attr]
    assert seen.states["behind"] == "skipped/dependency_skipped"
    assert seen.states["beside"] == "succeeded"
    assert said == ["entered"]
    assert seen.status == "succeeded"
