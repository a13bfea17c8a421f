"""What of a task is kept: artifacts before its outcome, values that can be encoded, counts of commands."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from towline import Context, Failed, Options, Pipeline, RunReport, Succeeded, SyncContext, module, result_of
from towline.artifacts.directory import DirectoryArtifactStore
from towline.testing import clause


def run(tmp_path: Path, *modules: Any, **options: Any) -> RunReport:
    state = str(tmp_path / "state")
    pipeline = Pipeline("kept", list(modules), options=Options(state=state, raise_on_failure=False, **options))
    return asyncio.run(pipeline.run())


def journal(tmp_path: Path) -> str:
    return (tmp_path / "state" / "plan.journal").read_text()


@module(produces={"wheel": "made/*.whl"})
def make(ctx: SyncContext) -> str:
    (ctx.workdir / "made").mkdir(exist_ok=True)
    (ctx.workdir / "made" / "one.whl").write_text("bytes")
    return "made"


@module(consumes=[make.artifact("wheel", into="taken")])
def take(ctx: SyncContext) -> str:
    return (ctx.workdir / "taken" / "one.whl").read_text()


@clause("ART-04")
def test_a_failed_upload_fails_the_producer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outcome never names bytes that were not stored: the producer failed, and its consumer does not start."""
    monkeypatch.chdir(tmp_path)

    async def full(self: object, chunks: object, *, run_id: str | None = None) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DirectoryArtifactStore, "put", full)
    report = run(tmp_path, take)

    assert isinstance(report.outcome_of(make), Failed)
    assert "No space left on device" in report.failures[0].text
    assert report.outcome_of(take).reason.code == "dependency_failed"  # type: ignore[union-attr]


@clause("ART-05")
def test_a_consumer_gets_what_the_accepted_outcome_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not whatever lies there under the same name: the reference in the outcome decides."""
    monkeypatch.chdir(tmp_path)

    report = run(tmp_path, take)
    (tmp_path / "made" / "one.whl").write_text("changed behind its back")
    again = Pipeline("kept", [take], resume="auto", options=Options(state=str(tmp_path / "state")))
    asyncio.run(again.run())

    made = report.outcome_of(make)
    assert isinstance(made, Succeeded)
    assert report.outcome_of(take).value == "bytes"  # type: ignore[union-attr]
    assert made.artifacts[0].digest in journal(tmp_path) + (tmp_path / "state" / "plan.json").read_text()


@module
async def two_commands(ctx: Context) -> None:
    await ctx.run(sys.executable, "-c", "")
    await ctx.run(sys.executable, "-c", "")


@module(after=[two_commands])
async def one_command(ctx: Context) -> None:
    await ctx.run(sys.executable, "-c", "")


@clause("CMD-12")
def test_commands_are_counted_per_task(tmp_path: Path) -> None:
    """A report tells how much of a run was commands, and whose."""
    report = run(tmp_path, one_command)

    assert {task.id: task.commands for task in report.tasks} == {"two_commands": 2, "one_command": 1}
    assert report.commands == 3


@module
async def leaks(ctx: Context) -> str:
    return f"token {ctx.secret('KEPT_TOKEN').reveal()}"


@clause("SEC-09")
@pytest.mark.parametrize(("policy", "status"), [("warn", "succeeded"), ("fail", "failed")])
def test_a_secret_in_a_result_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, status: str
) -> None:
    """Results are stored as they are: a secret in one is said, or refused."""
    monkeypatch.setenv("KEPT_TOKEN", "s3cr3t-value-12345")

    report = run(tmp_path, leaks, secret_in_result=policy)

    assert report.status == status
    (log,) = (tmp_path / "state" / "runs").glob("*/events.jsonl")
    said = [json.loads(line) for line in log.read_text().splitlines()]
    told = [one["data"] for one in said if one["kind"] in ("log", "task_state") and "secret" in json.dumps(one["data"])]
    assert told
    assert "s3cr3t-value" not in log.read_text()


class Live:
    """A value that no JSON can hold."""


@module
async def open_thing(ctx: Context) -> Live:
    return Live()


@module
async def use_thing(ctx: Context, thing: Live = result_of(open_thing)) -> bool:
    if (ctx.workdir / "fail").exists():
        raise RuntimeError("not now")
    return isinstance(thing, Live)


@clause("SER-03")
def test_a_value_that_cannot_be_stored_passes_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain local run may hand on anything; a resume that needs such a value runs its task again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fail").touch()
    first = run(tmp_path, use_thing)
    (tmp_path / "fail").unlink()

    resumed = Pipeline(
        "kept", [use_thing], resume="auto", options=Options(state=str(tmp_path / "state"), raise_on_failure=False)
    )
    second = asyncio.run(resumed.run())

    assert first.status == "failed"
    assert second.outcome_of(use_thing).value is True  # type: ignore[union-attr]
    assert {task.id: task.origin for task in second.tasks}["open_thing"] == "executed"


@module
async def wrong_inside(ctx: Context) -> list[int]:
    return ["x"]  # type: ignore[list-item]


@clause("SER-15")
def test_an_outcome_that_cannot_travel_is_a_failure(tmp_path: Path) -> None:
    """Where values travel, whoever waits hears of the failure at once instead of for ever nothing."""
    report = run(tmp_path, wrong_inside, strict_values=True)

    assert isinstance(report.outcome_of(wrong_inside), Failed)
    assert "value[0]" in report.failures[0].text
