"""What a failure, a stop and a clean-up mean for the rest of the run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from towline import Context, Options, Outcome, Pipeline, maybe_result_of, module, outcome_of, result_of
from towline.errors.run import (
    PipelineBlockedError,
    PipelineCancelledError,
    PipelineFailedError,
    RunActiveError,
    RunningLoopError,
)
from towline.testing import clause
from towline.testing.modes import ModeName, SeenRun, in_modes, run_in_mode

pytestmark = pytest.mark.virtual_time


def now() -> float:
    """Virtual seconds since the test began."""
    return asyncio.get_running_loop().time()


def some_pipeline(**options: Any) -> Pipeline[None]:
    """a fails after 1 s; b and c need it, in a row; beside runs 10 s, later follows it; clean always runs."""

    @module
    async def a(ctx: Context) -> int:
        await asyncio.sleep(1)
        raise ValueError("a is broken")

    @module
    async def b(ctx: Context, value: int = result_of(a)) -> int:
        return value

    @module(after=[b])
    async def c(ctx: Context) -> None: ...

    @module
    async def beside(ctx: Context) -> None:
        await asyncio.sleep(10)

    @module(after=[beside])
    async def later(ctx: Context) -> None: ...

    @module(always_run=True)
    async def clean(ctx: Context, outcome: Outcome[int] = outcome_of(b)) -> str:
        return type(outcome).__name__

    return Pipeline("failing", [c, later, clean], options=Options(**options))


def reasons(seen: SeenRun) -> dict[str, tuple[str | None, str | None]]:
    """Reason code and cause by task."""
    return {task.id: (task.reason, task.blocked_by) for task in seen.report.tasks}


@clause("RUN-50", "RUN-52", "RUN-55")
@clause("PLAN-42", "PLAN-43", "PLAN-44")
@in_modes("local", "strict", "distributed")
async def test_first_failure_cancels_what_is_not_needed_for_clean_up(mode: ModeName) -> list[tuple[str, str]]:
    """A broken build stops at once, says why everything else did not run, and cleans up."""
    seen = await run_in_mode(some_pipeline(), mode)
    assert seen.states == {
        "a": "failed/error",
        "b": "skipped/dependency_failed",
        "c": "skipped/dependency_failed",
        "beside": "cancelled/pipeline_failed",
        "later": "cancelled/pipeline_failed",
        "clean": "succeeded",
    }
    assert reasons(seen)["b"] == reasons(seen)["c"] == ("dependency_failed", "a")
    assert "via b" in next(task.reason_text or "" for task in seen.report.tasks if task.id == "c")
    assert [failure.task for failure in seen.report.failures] == ["a"]
    return sorted(seen.transitions)  # how long the cancelled body takes to end differs


@clause("RUN-51")
@clause("PLAN-44")
@in_modes("local", "strict", "distributed")
async def test_keep_going_runs_what_does_not_depend_on_the_failure(mode: ModeName) -> None:
    """A night of work is not lost for one broken table, and the run is still a failure."""
    seen = await run_in_mode(some_pipeline(keep_going=True), mode)
    assert (seen.states["beside"], seen.states["later"]) == ("succeeded", "succeeded")
    assert seen.states["c"] == "skipped/dependency_failed"
    assert (seen.status, seen.report.exit_code) == ("failed", 1)


@clause("RUN-52")
@clause("PLAN-45")
async def test_skips_go_through_and_name_the_first_cause() -> None:
    """Of ten skipped tasks the operator wants to see the one that matters."""

    @module(skip_if=lambda task: True)
    async def first(ctx: Context) -> None: ...

    @module(after=[first])
    async def second(ctx: Context) -> None: ...

    @module(after=[second])
    async def third(ctx: Context) -> None: ...

    @module(always_run=True, after=[third])
    async def clean(ctx: Context) -> None: ...

    seen = await run_in_mode(Pipeline("skips", [clean]))
    assert reasons(seen)["third"] == ("dependency_skipped", "first")
    assert seen.states["clean"] == "succeeded"
    assert seen.status == "succeeded"


@clause("RUN-54")
@pytest.mark.parametrize(
    ("rule", "is_ignored"),
    [
        (True, True),
        (lambda error: isinstance(error, ValueError), True),
        (lambda error: isinstance(error, OSError), False),
        (lambda error: 1, False),
        (lambda error: 1 / 0 > 0, False),
    ],
)
async def test_ignored_failure_lets_the_run_go_on(rule: Any, is_ignored: bool) -> None:
    """An optional upload may fail; its failure stays visible."""

    @module(ignore_failure=rule)
    async def upload(ctx: Context) -> int:
        raise ValueError("no network")

    @module(after=[upload])
    async def behind(ctx: Context) -> None: ...

    @module
    async def reads(ctx: Context, value: int | None = maybe_result_of(upload)) -> None: ...

    seen = await run_in_mode(Pipeline("ignored", [behind, reads]))
    [row] = [task for task in seen.report.tasks if task.id == "upload"]
    assert row.state == "failed"
    assert row.ignored is is_ignored
    assert seen.status == ("succeeded" if is_ignored else "failed")
    if is_ignored:
        assert (seen.states["behind"], seen.states["reads"]) == ("succeeded", "succeeded")
        assert seen.report.failures == ()


@clause("RUN-54")
async def test_cancellation_is_never_ignored() -> None:
    """`ignore_failure` is about failures."""

    @module(ignore_failure=True)
    async def slow(ctx: Context) -> None:
        await asyncio.sleep(100)

    @module
    async def breaks(ctx: Context) -> None:
        await asyncio.sleep(1)
        raise ValueError("no")

    seen = await run_in_mode(Pipeline("cancelled", [slow, breaks]))
    assert seen.states["slow"] == "cancelled/pipeline_failed"
    assert seen.status == "failed"


# -------------------------------------------------------------------- always-run


@clause("RUN-55")
async def test_always_run_waits_for_its_dependencies_and_runs_once() -> None:
    """Tear-down must not pull the floor from under what still runs."""
    order: list[str] = []

    @module
    async def server(ctx: Context) -> None:
        await asyncio.sleep(3)
        order.append("server ended")

    @module(always_run=True, after=[server])
    async def tear_down(ctx: Context) -> None:
        order.append("torn down")

    @module
    async def breaks(ctx: Context) -> None:
        await asyncio.sleep(1)
        raise ValueError("no")

    seen = await run_in_mode(Pipeline("tear", [tear_down, breaks]))
    assert order == ["torn down"]
    assert seen.states["server"] == "cancelled/pipeline_failed"
    order.clear()
    await run_in_mode(Pipeline("tear", [tear_down, breaks], options=Options(keep_going=True)))
    assert order == ["server ended", "torn down"]


@clause("RUN-56")
async def test_always_run_tasks_have_a_budget_to_start() -> None:
    """A clean-up that waits for ever would keep a broken run alive."""

    @module(timeout=1)
    async def zombie(ctx: Context) -> None:
        ends = now() + 50_000
        while now() < ends:
            try:
                await asyncio.sleep(ends - now())
            except asyncio.CancelledError:
                continue

    @module(always_run=True, after=[zombie])
    async def clean(ctx: Context) -> None: ...

    options = Options(always_run_budget_s=3, parallelism=1)
    seen = await run_in_mode(Pipeline("budget", [zombie, clean], options=options))
    assert seen.states["clean"] == "cancelled/always_run_budget"
    assert now() < 10


@clause("RUN-57")
async def test_failing_clean_up_adds_to_the_root_failure() -> None:
    """The clean-up's own trouble must not hide why it was needed."""

    @module
    async def build(ctx: Context) -> None:
        raise ValueError("the cause")

    @module(always_run=True, after=[build])
    async def clean(ctx: Context) -> None:
        raise OSError("and the disk is full")

    pipeline = Pipeline("adds", [clean], options=Options(state="memory:"))
    with pytest.raises(PipelineFailedError) as failed:
        await pipeline.run()
    assert [failure.task for failure in failed.value.report.failures] == ["build", "clean"]
    assert str(failed.value.__cause__) == "the cause"


@clause("RUN-49")
async def test_all_simultaneous_failures_are_kept_root_first() -> None:
    """Three things may break at once; the report hides none."""

    @module(timeout=2)
    async def x(ctx: Context) -> None:
        await asyncio.sleep(10)

    @module
    async def y(ctx: Context) -> None:
        await asyncio.sleep(2)
        raise ValueError("y")

    seen = await run_in_mode(Pipeline("both", [x, y], options=Options(keep_going=True)))
    assert {failure.task for failure in seen.report.failures} == {"x", "y"}
    root = seen.report.failures[0].task
    states = [task for task, state in seen.transitions if state in ("failed", "timed_out")]
    assert states[0] == root
    assert seen.cause is not None


# -------------------------------------------------------------------- what run() raises


@clause("RUN-53")
async def test_run_raises_with_the_report_and_the_cause() -> None:
    """A script that calls run() must notice, and find everything in one place."""
    pipeline = some_pipeline(state="memory:")
    with pytest.raises(PipelineFailedError) as failed:
        await pipeline.run()
    assert isinstance(failed.value.__cause__, ValueError)
    assert failed.value.report.failures[0].task == "a"
    assert "a is broken" in str(failed.value)
    report = await some_pipeline(state="memory:", raise_on_failure=False).run()
    assert report.status == "failed"


@clause("RUN-53", "RUN-44")
async def test_cancelled_await_stops_the_run_in_order() -> None:
    """An application that shuts down cancels the await: bodies end, the end is recorded, the cancel arrives."""
    ended: list[str] = []

    @module
    async def slow(ctx: Context) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append("slow")

    @module(after=[slow])
    async def behind(ctx: Context) -> None:
        ended.append("behind")

    pipeline = Pipeline("awaited", [behind], options=Options(state="memory:"))
    running = asyncio.ensure_future(pipeline.run())
    await asyncio.sleep(5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == ["slow"]
    assert now() < 7
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@pytest.mark.parametrize("turns", range(12))
async def test_cancel_at_any_early_moment_ends_the_run(turns: int) -> None:
    """A cancel that arrives before the first body had its first turn must not be lost, nor hang the run."""

    @module
    async def slow(ctx: Context) -> None:
        await asyncio.sleep(1_000)

    pipeline = Pipeline("early", [slow], options=Options(state="memory:"))
    running = asyncio.ensure_future(pipeline.run())
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises((asyncio.CancelledError, PipelineCancelledError)):
        await running
    assert now() < 5


@clause("RUN-09")
async def test_one_object_runs_once_at_a_time() -> None:
    """Two runs of one object would fight for one state; one after the other is fine."""

    @module
    async def slow(ctx: Context) -> None:
        await asyncio.sleep(5)

    pipeline = Pipeline("active", [slow], options=Options(state="memory:"))
    running = asyncio.ensure_future(pipeline.run())
    await asyncio.sleep(1)
    with pytest.raises(RunActiveError, match="active"):
        await pipeline.run()
    assert (await running).status == "succeeded"
    assert (await pipeline.run()).status == "succeeded"


@clause("RUN-45")
async def test_run_sync_inside_a_loop_is_refused() -> None:
    """A nested loop would deadlock; the text says what to write."""
    pipeline = Pipeline("nested", [], options=Options(state="memory:"))
    with pytest.raises(RunningLoopError, match="await"):
        pipeline.run_sync()
    with pytest.raises(RunningLoopError, match="await"):
        pipeline.main([])


# -------------------------------------------------------------------- gates


@clause("RUN-59", "RUN-60")
@clause("PLAN-51", "PLAN-52", "PLAN-50")
@in_modes("local", "strict", "distributed")
async def test_blocked_gate_holds_what_waits_for_it_and_lets_the_rest_finish(mode: ModeName) -> None:
    """An operator decides; until then nothing is imported and nothing is lost."""
    met: list[str] = []

    @module(phase="export")
    async def export(ctx: Context) -> int:
        return 3

    @module(phase="prepare", gate=True)
    async def judge(ctx: Context, value: int = result_of(export)) -> None:
        for _ in range(2):  # the same finding counts once
            ctx.finding("DOUBLE", "two rows", severity="blocking", evidence={"row": "1"})
        ctx.finding("ODD", "a row", evidence={"row": "x" * 10_000})

    @module(phase="prepare")
    async def other(ctx: Context) -> None:
        await asyncio.sleep(5)

    @module(phase="import")
    async def load(ctx: Context) -> None:
        met.append("loaded")

    @module(always_run=True)
    async def tell(ctx: Context, verdict: Outcome[None] = outcome_of(judge)) -> str:
        return f"{type(verdict).__name__} {verdict.reason.code if verdict.reason else ''}"

    pipeline = Pipeline("gates", [judge, other, load, tell], phases=("export", "prepare", "import"))
    seen = await run_in_mode(pipeline, mode)
    assert (seen.status, seen.report.exit_code) == ("blocked", 3)
    assert seen.states["judge"] == seen.states["load"] == "pending/blocked"
    assert reasons(seen)["load"] == ("blocked", "judge")
    assert (seen.states["other"], seen.value(tell)) == ("succeeded", "Skipped blocked")
    assert met == []
    assert [(one.code, len(one.evidence["row"])) for one in seen.report.findings] == [("DOUBLE", 1), ("ODD", 4096)]
    with pytest.raises(PipelineBlockedError, match="judge"):
        pipeline.judge(seen.report, None, Options())


@clause("PLAN-54")
async def test_blocking_finding_without_a_gate_is_refused() -> None:
    """It would block nothing, and everybody would think that it does."""
    from towline.errors.planning import FindingError

    @module
    async def judge(ctx: Context) -> None:
        ctx.finding("X", "x", severity="blocking")

    seen = await run_in_mode(Pipeline("nogate", [judge]))
    assert isinstance(seen.cause, FindingError)
    assert "gate=True" in str(seen.cause)


@clause("PLAN-54")
async def test_findings_are_bounded_but_blocking_ones_are_kept() -> None:
    """A table of millions of bad rows must not fill memory, nor lose the reason to stop."""

    @module(gate=True)
    async def judge(ctx: Context) -> None:
        for row in range(10_010):
            ctx.finding("ODD", "odd", evidence={"row": str(row)})
        ctx.finding("STOP", "stop", severity="blocking")

    seen = await run_in_mode(Pipeline("many", [judge]))
    assert seen.status == "blocked"
    assert len(seen.report.findings) == 10_001
    assert seen.report.findings[-1].code == "STOP"
    assert any("10" in event.data["text"] and "finding" in event.data["text"] for event in seen.of_kind("log"))


@clause("PLAN-55")
async def test_gate_that_fails_blocks_like_any_dependency() -> None:
    """A judge that cannot judge must not let anything through, also under keep_going."""

    @module(phase="prepare", gate=True)
    async def judge(ctx: Context) -> None:
        raise ValueError("cannot judge")

    @module(phase="import")
    async def load(ctx: Context) -> None: ...

    pipeline = Pipeline("gate", [judge, load], phases=("prepare", "import"), options=Options(keep_going=True))
    seen = await run_in_mode(pipeline)
    assert seen.states == {"judge": "failed/error", "load": "skipped/dependency_failed"}
    assert seen.report.exit_code == 1
