"""A user's own tests of modules: as plain functions, and through the real runner."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from towline import (
    Context,
    ExpandedModule,
    Failed,
    Module,
    Outcome,
    Skipped,
    Succeeded,
    SyncContext,
    TimedOut,
    maybe_result_of,
    module,
    outcome_of,
    result_of,
    tagged,
)
from towline.errors.testing import UnscriptedCallError, UnseededInputError
from towline.testing import FakeContext, FakeSyncContext, ModuleTester, clause, failed, run_virtual, succeeded

# ------------------------------------------------------------------ the modules under test


@dataclass(frozen=True)
class Release:
    channel: str = "nightly"


@module
async def restore(ctx: Context) -> str:
    return "uv.lock"


@module(retries=2, produces={"wheel": "wheel.txt"})
async def build(ctx: Context, lockfile: str = result_of(restore)) -> str:
    version = await ctx.run("git", "describe")
    if ctx.attempt == 1:
        raise ConnectionError("flaky")
    token = ctx.secret("TOKEN").reveal()
    (ctx.workdir / "wheel.txt").write_text(token)
    ctx.finding("BUILT", f"built from {lockfile}")
    return f"{version.stdout}-{ctx.params(Release).channel}"


@module(matrix={"python": ["3.11", "3.12"]}, consumes=[build.artifact("wheel", into="upload")], tags={"checks"})
def check(ctx: SyncContext, python: str, wheel: str = result_of(build)) -> str:
    return f"{python} {(ctx.workdir / 'upload' / 'wheel.txt').read_text()} {wheel}"


@module(timeout=3600)
async def hangs(ctx: Context) -> None:
    import anyio

    await anyio.sleep_forever()


class Publish(Module[str], after=[restore]):
    region: str
    wheel: str = result_of(build)
    notes: str | None = maybe_result_of(restore)
    reports: list[str] = result_of(tagged("checks", result=str))

    async def run(self, ctx: Context) -> str:
        return f"{self.region} {self.wheel} {self.notes} {self.reports}"


class Pack(ExpandedModule[int], each=["a", "bb"]):
    def run(self, ctx: SyncContext) -> int:
        return len(ctx.item)


@module(always_run=True)
async def tell(ctx: Context, built: Outcome[str] = outcome_of(build)) -> str:
    return type(built).__name__


@module
def copies(ctx: SyncContext) -> int:
    cursor = ctx.cursor(key=lambda number: number, total=5)
    return sum(len(batch) for batch in cursor.batches(range(5), size=2) if cursor.commit(batch) is None)


# ------------------------------------------------------------------ tests


@clause("TEST-02")
@pytest.mark.anyio
async def test_seeded_module_runs_through_the_real_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries, parameters, secrets, findings and artifacts behave as in a run; commands are given."""
    monkeypatch.chdir(tmp_path)
    tester = (
        ModuleTester(build)
        .with_result(restore, "a.lock")
        .with_params(Release("stable"))
        .with_secret("TOKEN", "s3cret-token")
        .command("git", "describe", stdout="v1")
    )
    outcome = await tester.run()
    assert isinstance(outcome, Succeeded)
    assert (outcome.value, outcome.attempts) == ("v1-stable", 2)
    assert tester.commands == (("git", "describe"), ("git", "describe"))
    assert [finding.code for finding in tester.findings] == ["BUILT"]
    assert [artifact.name for artifact in outcome.artifacts] == ["wheel"]
    assert {event.kind for event in tester.events} >= {"run_started", "task_state", "finding", "run_ended"}
    assert os.listdir(tmp_path) == []


@clause("TEST-02")
def test_failures_are_returned_and_virtual_hours_pass() -> None:
    """A test asks how a task ended; a timeout of an hour must not take one."""

    async def main() -> Outcome[None]:
        return await ModuleTester(hangs).run()

    assert isinstance(run_virtual(main()), TimedOut)


@clause("TEST-02")
@pytest.mark.anyio
async def test_inputs_of_every_kind_are_given(tmp_path: Path) -> None:
    """Values, optional values, outcomes, selectors, axes, items and artifacts."""
    outcome = await ModuleTester(Publish("eu")).with_result(build, "w").with_result(tagged("checks"), ["r"]).run()
    assert isinstance(outcome, Succeeded)
    assert outcome.value == "eu w None ['r']"

    wheel = tmp_path / "wheel.txt"
    wheel.write_text("bytes")
    tester = ModuleTester(check, matrix={"python": "3.12"}).with_result(build, "w").with_artifact(build, "wheel", wheel)
    checked = await tester.run()
    assert isinstance(checked, Succeeded)
    assert (checked.value, checked.task_id) == ("3.12 bytes w", "check[3.12]")

    packed = await ModuleTester(Pack, item="bb").run()
    assert isinstance(packed, Succeeded)
    assert packed.value == 2

    told = await ModuleTester(tell).with_outcome(build, failed(OSError("disk full"))).run()
    assert isinstance(told, Succeeded)
    assert told.value == "Failed"

    moved = await ModuleTester(copies).run()
    assert isinstance(moved, Succeeded)
    assert moved.value == 5


@clause("TEST-02")
@pytest.mark.anyio
async def test_failed_dependency_skips_as_in_a_run() -> None:
    """A body must not see the value of what failed."""
    outcome = await ModuleTester(build).with_outcome(restore, failed(OSError("gone"))).run()
    assert isinstance(outcome, Skipped)
    assert outcome.reason is not None
    assert (outcome.reason.code, outcome.reason.blocked_by) == ("dependency_failed", "restore")


@clause("TEST-03")
@pytest.mark.anyio
async def test_what_was_not_given_fails_by_name() -> None:
    """A test that forgot something must say what, not pass or hang."""
    with pytest.raises(UnseededInputError, match="restore"):
        await ModuleTester(build).run()
    with pytest.raises(UnseededInputError, match="no dependency"):
        await ModuleTester(build).with_result(restore, "x").with_result(hangs, None).run()
    with pytest.raises(UnseededInputError, match="wheel"):
        await ModuleTester(check, matrix={"python": "3.11"}).with_result(build, "w").run()

    seeded = ModuleTester(build).with_result(restore, "x").with_params(Release())
    unknown_command = await seeded.run()
    assert isinstance(unknown_command, Failed)
    assert "git describe" in unknown_command.error.text
    unknown_secret = await seeded.command("git", "describe", stdout="v1").run()
    assert isinstance(unknown_secret, Failed)
    assert "TOKEN" in unknown_secret.error.text


@clause("TEST-02")
@pytest.mark.anyio
async def test_function_module_is_a_plain_function_with_a_fake_context() -> None:
    """The smallest test of a body needs no run at all."""
    ctx = FakeContext().command("git", "describe", stdout="v2").with_params(Release()).with_secret("TOKEN", "t")
    with pytest.raises(ConnectionError):
        await build(ctx, lockfile="x")
    assert ctx.commands == (("git", "describe"),)
    with pytest.raises(UnscriptedCallError, match="git describe"):
        await build(FakeContext(), lockfile="x")
    assert copies(FakeSyncContext()) == 5
    assert (await tell(FakeContext(), built=succeeded("w"))) == "Succeeded"


@pytest.mark.anyio
async def test_steps_of_a_fake_context_are_remembered() -> None:
    """A body that is called twice must find its steps done."""
    ctx, calls = FakeContext(), []
    for _ in range(2):
        async with ctx.step("mail", result=int) as step:
            if not step.done:
                calls.append("mail")
                step.set(7)
            assert step.value == 7
    assert await ctx.step("count", len, "abc") == 3
    assert calls == ["mail"]
