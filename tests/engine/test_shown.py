"""What is shown before a run and written after it: plan, report, metrics."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from towline import Context, Options, Pipeline, RunReport, SyncContext, env, module, result_of
from towline.execution.run_request import RunRequest
from towline.testing import clause, run_in_mode, run_virtual

virtual = pytest.mark.virtual_time


def files_below(folder: Path) -> dict[Path, bytes]:
    """Everything that lies in a folder."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def release(entered: list[str]) -> Pipeline[None]:
    """prepare -> build -> publish, which a condition object skips; maybe has a condition that only a node can tell."""

    @module
    async def prepare(ctx: Context) -> int:
        entered.append("prepare")
        return 1

    @module
    async def build(ctx: Context, value: int = result_of(prepare)) -> int:
        entered.append("build")
        return value

    @module(after=[build], run_if=env("TOWLINE_TEST_RELEASE"))
    async def publish(ctx: Context) -> None:
        entered.append("publish")

    @module(after=[publish])
    async def tell(ctx: Context) -> None:
        entered.append("tell")

    @module(after=[build], run_if=lambda task: True)
    async def maybe(ctx: Context) -> None:
        entered.append("maybe")

    @module(after=[maybe])
    async def after_maybe(ctx: Context) -> None:
        entered.append("after_maybe")

    return Pipeline("release", [tell, after_maybe])


@clause("PLAN-11")
@pytest.mark.anyio
async def test_planning_writes_nothing_and_says_what_is_known(tmp_path: Path) -> None:
    """An operator may look before leaping, as often as wanted."""
    entered: list[str] = []
    pipeline = release(entered)
    plan = await pipeline.plan_for(RunRequest(options=pipeline.program.options, workdir=tmp_path))
    assert files_below(tmp_path) == {}
    assert entered == []
    shown = {row["id"]: row for row in json.loads(plan.to_text("json"))["tasks"]}
    assert {name: row["decision"] for name, row in shown.items()} == {
        "prepare": "run",
        "build": "run",
        "publish": "skip",
        "tell": "skip",
        "maybe": "unknown",
        "after_maybe": "unknown",
    }
    assert [shown[name]["tier"] for name in ("prepare", "build", "publish", "tell")] == [0, 1, 2, 3]


@clause("PLAN-11")
@pytest.mark.anyio
async def test_plan_of_a_resume_shows_what_is_kept(tmp_path: Path) -> None:
    """Before a resume the operator sees what it will not do again."""
    entered: list[str] = []
    pipeline = release(entered)
    options = msgspec.structs.replace(pipeline.program.options, state=str(tmp_path / "state"))
    await run_in_mode(pipeline, options=options, workdir=tmp_path)
    before = files_below(tmp_path)
    request = RunRequest(options=options, workdir=tmp_path, earlier="resume")
    shown = json.loads((await pipeline.plan_for(request)).to_text("json"))["tasks"]
    assert {row["id"]: row["decision"] for row in shown}["build"] == "kept"
    assert files_below(tmp_path) == before


@clause("RUN-22")
def test_check_warns_of_a_limit_that_cannot_be_enforced() -> None:
    """Before the night, not after it: a thread that hangs at its timeout goes on working."""

    @module(timeout=5)
    def thread(ctx: SyncContext) -> None: ...

    @module(timeout=5, isolation="process")
    def process(ctx: SyncContext) -> None: ...

    @module(timeout=5)
    async def awaits(ctx: Context) -> None: ...

    @module
    def unlimited(ctx: SyncContext) -> None: ...

    pipeline = Pipeline("limits", [thread, process, awaits, unlimited])
    problems, warnings = pipeline.check_for(RunRequest(options=pipeline.program.options))
    assert problems == []
    assert len(warnings) == 1
    assert warnings[0].startswith("thread has timeout=5")
    assert 'isolation="process"' in warnings[0]


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[tuple[int, ...], bool, int]]:
    """Tasks as (needs, is skipped, seconds); each needs some of those before it."""
    count = draw(st.integers(2, 8))
    return [
        (
            tuple(sorted(draw(st.sets(st.integers(0, place - 1), max_size=2)))) if place else (),
            draw(st.booleans()) and draw(st.booleans()),
            draw(st.integers(1, 5)),
        )
        for place in range(count)
    ]


@clause("PLAN-12")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs())
def test_planned_skips_equal_those_of_the_run(graph: list[tuple[tuple[int, ...], bool, int]]) -> None:
    """A plan that lies is worse than none."""
    modules: list[Any] = []
    for place, (needs, is_skipped, seconds) in enumerate(graph):

        async def body(ctx: Context, seconds: int = seconds) -> None:
            await asyncio.sleep(seconds)

        condition = {"run_if": env("TOWLINE_TEST_RELEASE")} if is_skipped else {}
        modules.append(module(name=f"t{place}", after=[modules[one] for one in needs], **condition)(body))  # type: ignore[arg-type]

    pipeline = Pipeline("random", modules, options=Options(state="memory:"))

    async def both() -> tuple[dict[str, str], dict[str, str]]:
        plan = await pipeline.plan()
        seen = await run_in_mode(pipeline)
        shown = {row["id"]: row["decision"] for row in json.loads(plan.to_text("json"))["tasks"]}
        return shown, {task.id: task.state for task in seen.report.tasks}

    shown, ended = run_virtual(both())
    assert {name for name, decision in shown.items() if decision == "skip"} == {
        name for name, state in ended.items() if state == "skipped"
    }


@clause("REP-01", "REP-02")
@virtual
async def test_report_counts_what_happened(tmp_path: Path) -> None:
    """One document for the archive, the chat and the next run."""

    @module(retries=1)
    async def flaky(ctx: Context) -> int:
        await asyncio.sleep(10)
        if ctx.attempt == 1:
            raise OSError("once")
        return 1

    @module
    async def beside(ctx: Context) -> None:
        await asyncio.sleep(10)

    @module(skip_if=lambda task: True)
    def skipped(ctx: SyncContext) -> None: ...

    options = Options(state="memory:", parallelism=4)
    seen = await run_in_mode(
        Pipeline("report", [flaky, beside, skipped], options=options), report=str(tmp_path / "r.json")
    )
    report = msgspec.json.decode((tmp_path / "r.json").read_bytes(), type=RunReport)
    assert report.counts == {"skipped": 1, "succeeded": 2}
    assert report.metrics["peak"] == 2
    assert report.metrics["retries"] == 1
    assert {task.id: task.attempts for task in report.tasks}["flaky"] == 2
    assert report.started_at < report.finished_at
    assert report.program == "test_shown/report"
    assert report.run_id == seen.report.run_id
    assert "find" not in json.loads((tmp_path / "r.json").read_bytes())


@clause("REP-03")
@pytest.mark.anyio
async def test_report_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    """A full disk does not turn a good release into a failure, nor a failure into a success."""

    @module
    async def body(ctx: Context) -> None: ...

    (tmp_path / "file").write_text("")
    pipeline = Pipeline("unwritten", [body])
    seen = await run_in_mode(pipeline, workdir=tmp_path, report=str(tmp_path / "file" / "report.json"))
    assert seen.status == "succeeded"
    assert any("could not be written" in warning for warning in seen.report.warnings)


@virtual
async def test_outcomes_are_read_from_the_report() -> None:
    """A script goes on with what the run gave."""

    @module(matrix={"n": [1, 2]})
    async def many(ctx: Context, n: int) -> int:
        return n

    @module
    async def other(ctx: Context) -> None: ...

    report = await Pipeline("read", [many], options=Options(state="memory:")).run()
    assert [outcome.value for outcome in report.outcome_of(many)] == [1, 2]  # type: ignore[union-attr]
    with pytest.raises(LookupError, match="other"):
        report.outcome_of(other)
    copied = msgspec.json.decode(msgspec.json.encode(report), type=RunReport)
    with pytest.raises(LookupError, match="disk"):
        copied.outcome_of(many)
