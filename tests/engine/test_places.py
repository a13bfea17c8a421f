"""Where bodies run for real: in threads that cannot be killed, in processes that can, and the same in each mode."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from engine import parity_program as program
from towline import Cancelled, Context, Module, Options, Outcome, Pipeline, SyncContext, TimedOut, module
from towline.errors.running import ModuleTimeoutError, TooManyAbandonedError
from towline.testing import clause, in_modes, run_in_mode
from towline.testing.modes import ModeName

pytestmark = pytest.mark.anyio

GRACE_S = 0.2
said: list[str] = []


@pytest.fixture
def release() -> Any:
    """Ends the bodies that ignore their end, when the test is over."""
    event = threading.Event()
    yield event
    event.set()


@clause("RUN-03")
@in_modes("local", "strict", "process", "distributed")
async def test_a_pipeline_does_the_same_in_every_mode(mode: ModeName) -> list[Any]:
    """What works on the laptop must not differ on a worker."""
    seen = await run_in_mode(program.pipeline, mode)
    assert seen.value(program.Merge) == {"aa": 2, "bb": 2, "Failed": 0}
    assert seen.status == "succeeded"
    texts = [event.data["text"] for event in seen.of_kind("log", "output")]
    assert set(texts) == {"looking", "packing a", "packing b", "before"}
    return [sorted(seen.transitions), sorted(seen.states.items()), seen.report.counts]


@clause("RUN-01", "RUN-04")
async def test_steps_of_a_task_come_in_one_order(tmp_path: Path) -> None:
    """Whoever writes a hook has to know what has happened before it."""
    order: list[str] = []

    class Full(Module[str], produces={"out": "out.txt"}):
        async def before(self, ctx: Context) -> None:
            order.append("before")

        async def run(self, ctx: Context) -> str:
            order.append("run")
            (ctx.workdir / "out.txt").write_text("x")
            return "value"

        async def after(self, ctx: Context, outcome: Outcome[str]) -> None:
            order.append(f"after with {len(outcome.artifacts)} artifact")

    seen = await run_in_mode(Pipeline("order", [Full]), workdir=tmp_path)
    assert order == ["before", "run", "after with 1 artifact"]
    kinds = [event.data.get("to", event.kind) for event in seen.of_kind("task_state", "artifact")]
    assert kinds == ["running", "artifact", "succeeded"]


# -------------------------------------------------------------------- threads


@clause("RUN-22", "RUN-23")
async def test_thread_that_ignores_its_end_is_abandoned(release: threading.Event) -> None:
    """It cannot be killed, so it is named, its slot stays taken, and nobody tries the same again beside it."""
    starts: list[str] = []
    written: list[str] = []

    @module(timeout=0.2, retries=3)
    def stuck(ctx: SyncContext) -> None:
        starts.append("stuck")
        release.wait(20)
        try:
            ctx.log.info("still here")
            ctx.progress(1)
            written.append("progress")
        except asyncio.CancelledError:
            starts.append("refused")
            raise

    @module(always_run=True, after=[stuck])
    async def goes_on(ctx: Context) -> None: ...

    options = Options(cancel_grace_s=GRACE_S, parallelism=2)
    seen = await run_in_mode(Pipeline("stuck", [stuck, goes_on], options=options))
    outcome = seen.outcome(stuck)
    assert isinstance(outcome, TimedOut)
    assert outcome.abandoned
    assert seen.states["goes_on"] == "succeeded"
    text = str(seen.cause)
    for word in ("stuck", "0.2 s", "attempt 1", "in wait", 'isolation="process"'):
        assert word in text
    release.set()
    deadline = time.monotonic() + 5
    while "refused" not in starts and time.monotonic() < deadline:  # noqa: ASYNC110 - an abandoned thread tells nobody
        await asyncio.sleep(0.01)
    assert (starts, written) == (["stuck", "refused"], [])


@clause("RUN-22")
async def test_thread_that_asks_ends_in_time(release: threading.Event) -> None:
    """A long loop that looks at ctx.cancelled, or calls ctx, ends within the grace."""

    @module(timeout=0.2)
    def asks(ctx: SyncContext) -> None:
        while not ctx.cancelled:
            release.wait(0.01)

    @module(timeout=0.2)
    def calls(ctx: SyncContext) -> None:
        while True:
            ctx.progress(1)
            release.wait(0.01)

    @module(timeout=0.2)
    def waits(ctx: SyncContext) -> None:
        ctx.run("sleep", "30")

    options = Options(cancel_grace_s=2, keep_going=True)
    begun = time.monotonic()
    seen = await run_in_mode(Pipeline("asks", [asks, calls, waits], options=options))
    assert time.monotonic() - begun < 3
    assert [task.abandoned for task in seen.report.tasks] == [False, False, False]
    assert set(seen.states.values()) == {"timed_out/timeout"}


@clause("RUN-25")
async def test_too_many_abandoned_bodies_stop_thread_bodies(release: threading.Event) -> None:
    """A node full of zombies must say so, and not fill its memory with more."""

    @module(timeout=0.1, ignore_failure=True, matrix={"n": [1, 2]})
    def stuck(ctx: SyncContext, n: int) -> None:
        release.wait(20)

    @module(after=[stuck])
    def next_one(ctx: SyncContext) -> None:
        said.append("entered")

    said.clear()
    options = Options(cancel_grace_s=0.1, max_abandoned=2, parallelism=4)
    seen = await run_in_mode(Pipeline("full", [next_one], options=options))
    assert isinstance(seen.cause, TooManyAbandonedError)
    assert "stuck[1]" in str(seen.cause)
    assert "stuck[2]" in str(seen.cause)
    assert said == []


@clause("RUN-24")
async def test_task_that_needs_a_retained_lock_fails_and_says_whose(release: threading.Event) -> None:
    """Waiting for a zombie would be waiting for ever."""

    @module(timeout=0.1, ignore_failure=True, locks={"db"})
    def stuck(ctx: SyncContext) -> None:
        release.wait(20)

    @module(after=[stuck], locks={"db"})
    async def needs(ctx: Context) -> None: ...

    options = Options(cancel_grace_s=0.1, parallelism=4)
    seen = await run_in_mode(Pipeline("retained", [needs], options=options))
    assert seen.states["needs"] == "failed/right_abandoned"
    [row] = [task for task in seen.report.tasks if task.id == "needs"]
    assert row.blocked_by == "stuck"


@clause("RUN-23")
async def test_slot_of_a_body_that_ends_late_is_free_again(release: threading.Event) -> None:
    """Only a body that has really ended gives its slot to the next (one slot: nothing else could run)."""
    order: list[str] = []

    @module(timeout=0.1, ignore_failure=True)
    def stuck(ctx: SyncContext) -> None:
        release.wait(0.8)
        order.append("ended late")

    @module(after=[stuck])
    async def next_one(ctx: Context) -> None:
        order.append("next")

    seen = await run_in_mode(Pipeline("late", [next_one], options=Options(cancel_grace_s=0.1, parallelism=1)))
    assert order == ["ended late", "next"]
    assert seen.status == "succeeded"


# -------------------------------------------------------------------- processes


@clause("RUN-33", "RUN-35")
async def test_isolated_body_is_really_killed_at_its_timeout(tmp_path: Path) -> None:
    """The limit is the limit: what runs in a process does nothing after it."""
    begun = time.monotonic()
    options = Options(cancel_grace_s=0.1, terminate_grace_s=0.1)
    seen = await run_in_mode(program.killing, workdir=tmp_path, options=options)
    took_s = time.monotonic() - begun
    outcome = seen.outcome(program.killed)
    assert isinstance(outcome, TimedOut)
    assert not outcome.abandoned
    assert isinstance(seen.cause, ModuleTimeoutError)
    assert "killed" in str(seen.cause)
    await asyncio.sleep(max(0.0, 1.8 - took_s))
    assert not (tmp_path / "late.txt").exists()


async def test_isolated_body_has_its_own_process() -> None:
    """Memory that it breaks is its own."""
    seen = await run_in_mode(program.isolating)
    assert seen.value(program.isolated) != os.getpid()


@clause("MOD-27")
async def test_process_isolation_without_a_file_is_refused_before_anything_runs() -> None:
    """A notebook cell cannot be loaded by another process; that is said at the start."""
    from towline.errors.declaration import TargetLoadError

    @module(isolation="process")
    def body(ctx: SyncContext) -> None: ...

    with pytest.raises(TargetLoadError, match="body"):
        await run_in_mode(Pipeline("local", [body]))


@clause("SER-02")
async def test_values_that_cannot_reach_a_process_are_refused_before_anything_runs() -> None:
    """An input without a JSON form is known from the types; hours later is too late to say so."""
    from towline import result_of
    from towline.errors.planning import PlanBuildError

    @module
    def odd(ctx: SyncContext) -> complex:
        return 1j

    @module(isolation="process")
    def reads(ctx: SyncContext, value: complex = result_of(odd)) -> int:
        return 1

    with pytest.raises(PlanBuildError, match=r"reads .* odd.*complex"):
        await run_in_mode(Pipeline("odd", [reads]))


@clause("RUN-20")
async def test_cancelled_thread_keeps_its_name_for_it(release: threading.Event) -> None:
    """A stop of the run that a thread ignores is an abandoned cancellation, not a timeout."""

    @module
    def stuck(ctx: SyncContext) -> None:
        release.wait(20)

    @module
    async def breaks(ctx: Context) -> None:
        await asyncio.sleep(0.1)
        raise ValueError("no")

    options = Options(cancel_grace_s=0.1)
    seen = await run_in_mode(Pipeline("stopped", [stuck, breaks], options=options))
    outcome = seen.outcome(stuck)
    assert isinstance(outcome, Cancelled)
    assert outcome.abandoned
    assert seen.states["stuck"] == "cancelled/pipeline_failed"


# -------------------------------------------------------------------- the watchdog


@clause("RUN-27", "RUN-28")
async def test_body_that_blocks_the_loop_is_named_with_its_stack() -> None:
    """One forgotten time.sleep holds everything up; the log says which line."""

    @module
    async def blocks(ctx: Context) -> None:
        time.sleep(0.6)  # noqa: ASYNC251 - what nobody should write

    options = Options(loop_block_warning_s=0.1)
    seen = await run_in_mode(Pipeline("blocks", [blocks], options=options))
    warnings = [event.data["text"] for event in seen.of_kind("log") if event.data["level"] == "warning"]
    assert any("blocks has blocked the event loop" in text for text in warnings)
    assert any("time.sleep(0.6)" in text for text in warnings)
    assert seen.status == "succeeded"
    assert 1 <= sum("blocked the event loop" in text for text in warnings) <= 4
