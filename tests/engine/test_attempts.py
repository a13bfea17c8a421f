"""Attempts: how often a body is tried, how long, and what it may raise."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from towline import Cancelled, Context, Failed, Options, Pipeline, Retry, Succeeded, SyncContext, TimedOut, module
from towline.errors.run import UnexpectedCancellationError
from towline.errors.running import ModuleTimeoutError
from towline.errors.values import ResultTypeError
from towline.testing import clause
from towline.testing.modes import ModeName, in_modes, run_in_mode

pytestmark = pytest.mark.virtual_time


def now() -> float:
    """Virtual seconds since the test began."""
    return asyncio.get_running_loop().time()


# -------------------------------------------------------------------- retries


@clause("RUN-16", "RUN-19")
@in_modes("local", "strict", "distributed")
async def test_retries_are_extra_attempts(mode: ModeName) -> None:
    """One glitch must not fail a night of work; each attempt knows its number."""
    seen_numbers: list[int] = []

    @module(retries=2)
    async def flaky(ctx: Context) -> int:
        seen_numbers.append(ctx.attempt)
        if len(seen_numbers) < 3:
            raise ConnectionError(f"glitch {ctx.attempt}")
        return ctx.attempt

    seen_numbers.clear()
    seen = await run_in_mode(Pipeline("flaky", [flaky]), mode)
    assert seen_numbers == [1, 2, 3]
    assert seen.value(flaky) == 3
    assert seen.report.tasks[0].attempts == 3


@clause("RUN-19")
async def test_last_error_counts_and_the_earlier_ones_are_noted() -> None:
    """The first error is often the telling one."""
    count = 0

    @module(retries=1)
    async def failing(ctx: Context) -> None:
        nonlocal count
        count += 1
        raise ValueError(f"number {count}")

    seen = await run_in_mode(Pipeline("noted", [failing]))
    [failure] = seen.report.failures
    assert failure.text == "number 2"
    assert failure.notes == ("attempt 1: ValueError: number 1",)
    assert str(seen.cause) == "number 2"


@clause("RUN-17")
async def test_pauses_double_with_jitter_up_to_a_cap() -> None:
    """A struggling server is given more and more time, and not by everyone at the same moment."""

    @module(retries=Retry(6, base_s=1, max_s=8))
    async def failing(ctx: Context) -> None:
        raise OSError("down")

    seen = await run_in_mode(Pipeline("pauses", [failing]))
    pauses = [event.data["wait_s"] for event in seen.of_kind("attempt")]
    assert len(pauses) == 6
    for pause, longest in zip(pauses, [1, 2, 4, 8, 8, 8], strict=True):
        assert longest / 2 <= pause <= longest
    assert sum(pauses) <= now() + 0.01


@clause("RUN-17")
async def test_cancel_ends_a_pause_at_once() -> None:
    """Nobody waits out a back-off of minutes after Ctrl-C."""

    @module(retries=Retry(3, base_s=3_000, max_s=3_000))
    async def failing(ctx: Context) -> None:
        raise OSError("down")

    @module
    async def breaks(ctx: Context) -> None:
        await asyncio.sleep(5)
        raise ValueError("stop")

    seen = await run_in_mode(Pipeline("paused", [failing, breaks]))
    assert now() < 10
    assert seen.states == {"breaks": "failed/error", "failing": "cancelled/pipeline_failed"}


@clause("RUN-18")
@pytest.mark.parametrize(
    ("on", "attempts"), [(OSError, 1), ((OSError, ValueError), 3), (lambda error: "again" in str(error), 3)]
)
async def test_retry_only_what_is_worth_it(on: Any, attempts: int) -> None:
    """A wrong password is not a network glitch."""

    @module(retries=Retry(2, on=on))
    async def failing(ctx: Context) -> None:
        raise ValueError("again")

    seen = await run_in_mode(Pipeline("worth", [failing]))
    assert seen.outcome(failing).attempts == attempts


@clause("RUN-18")
async def test_broken_retry_predicate_means_no() -> None:
    """The body's own error is what the operator has to see."""

    def broken(error: Exception) -> bool:
        raise TypeError("the predicate is broken")

    @module(retries=Retry(2, on=broken))
    async def failing(ctx: Context) -> None:
        raise ValueError("the real trouble")

    seen = await run_in_mode(Pipeline("predicate", [failing]))
    assert str(seen.cause) == "the real trouble"
    assert seen.outcome(failing).attempts == 1


@clause("RUN-18")
async def test_a_wrong_value_is_not_tried_again() -> None:
    """A body that returns the wrong type will return it again."""

    @module(retries=5)
    async def wrong(ctx: Context) -> int:
        return "text"  # type: ignore[return-value]

    seen = await run_in_mode(Pipeline("wrong", [wrong]))
    assert isinstance(seen.cause, ResultTypeError)
    assert seen.outcome(wrong).attempts == 1


@clause("RUN-16")
async def test_pipeline_default_of_retries_and_timeout() -> None:
    """What holds for all modules is said once."""
    tries = 0

    @module
    async def slow(ctx: Context) -> None:
        nonlocal tries
        tries += 1
        await asyncio.sleep(100)

    options = Options(retries=Retry(1, base_s=0), module_timeout_s=10)
    seen = await run_in_mode(Pipeline("defaults", [slow], options=options))
    assert tries == 2
    assert isinstance(seen.cause, ModuleTimeoutError)
    assert 20 <= now() < 23


# -------------------------------------------------------------------- timeouts


@clause("RUN-16", "RUN-21")
@in_modes("local", "strict", "distributed")
async def test_timeout_ends_an_async_body(mode: ModeName) -> None:
    """A body that hangs must not hang the run; its clean-up still happens."""
    cleaned: list[float] = []
    begun = now()

    @module(timeout=30)
    async def hangs(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.5)  # an await in the clean-up is not cancelled again before the grace is over
            cleaned.append(now() - begun)

    seen = await run_in_mode(Pipeline("hangs", [hangs]), mode)
    assert cleaned == [30.5]
    outcome = seen.outcome(hangs)
    assert isinstance(outcome, TimedOut)
    assert not outcome.abandoned
    assert "30 s" in str(seen.cause)
    assert "attempt 1" in str(seen.cause)
    assert seen.states == {"hangs": "timed_out/timeout"}
    assert seen.report.exit_code == 1


@clause("RUN-16")
async def test_timeout_holds_per_attempt_and_zero_means_none() -> None:
    """Back-off and earlier attempts do not eat the time of the next."""

    @module(timeout=10, retries=Retry(2, base_s=100, max_s=100))
    async def slow(ctx: Context) -> int:
        await asyncio.sleep(5 if ctx.attempt == 3 else 60)
        return ctx.attempt

    @module(timeout=0)
    async def long(ctx: Context) -> str:
        await asyncio.sleep(100_000)
        return "done"

    seen = await run_in_mode(Pipeline("attempts", [slow, long]))
    assert seen.value(slow) == 3
    assert seen.value(long) == "done"


@clause("RUN-21")
async def test_body_that_swallows_its_end_in_the_grace_is_still_timed_out() -> None:
    """The limit was the limit, however politely it is ignored."""

    @module(timeout=5)
    async def stubborn(ctx: Context) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "swallowed"
        return "never"

    seen = await run_in_mode(Pipeline("stubborn", [stubborn]))
    outcome = seen.outcome(stubborn)
    assert isinstance(outcome, TimedOut)
    assert not outcome.abandoned


@clause("RUN-21", "RUN-23")
async def test_body_that_ignores_both_requests_is_abandoned() -> None:
    """The run goes on; who would not end is named, and never doubled by a retry."""
    starts = 0

    @module(timeout=5, retries=3)
    async def zombie(ctx: Context) -> None:
        nonlocal starts
        starts += 1
        ends = now() + 500
        while now() < ends:
            try:
                await asyncio.sleep(ends - now())
            except asyncio.CancelledError:
                continue
        ctx.progress(1)

    @module(always_run=True, after=[zombie])
    async def goes_on(ctx: Context) -> float:
        return now()

    seen = await run_in_mode(Pipeline("zombie", [zombie, goes_on], options=Options(parallelism=2)))
    outcome = seen.outcome(zombie)
    assert isinstance(outcome, TimedOut)
    assert outcome.abandoned
    assert starts == 1
    assert seen.value(goes_on) == pytest.approx(6.1, abs=0.05)
    assert seen.report.tasks[0].abandoned
    assert "abandoned" in seen.report.failures[0].text
    await asyncio.sleep(600)  # its late end disturbs nobody


@clause("RUN-20")
async def test_cancellation_outranks_a_timeout() -> None:
    """A run that is being stopped says so, whatever else expires meanwhile."""

    @module(timeout=5)
    async def slow(ctx: Context) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.9)
            raise

    @module
    async def breaks(ctx: Context) -> None:
        await asyncio.sleep(5.5)
        raise ValueError("no")

    seen = await run_in_mode(Pipeline("outranks", [slow, breaks]))
    assert seen.states["slow"] == "cancelled/pipeline_failed"


# -------------------------------------------------------------------- what a body may raise


@clause("RUN-40")
@pytest.mark.parametrize("error", [SystemExit(3), MemoryError("full"), RecursionError("deep"), BaseException("odd")])
@pytest.mark.parametrize("sync", [False, True])
async def test_odd_errors_are_failures(error: BaseException, sync: bool) -> None:
    """A library that calls sys.exit() in a body must not end the run as a success, or at all."""

    @module
    async def loop_body(ctx: Context) -> None:
        raise error

    @module
    def thread_body(ctx: SyncContext) -> None:
        raise error

    body = thread_body if sync else loop_body
    seen = await run_in_mode(Pipeline("odd", [body]))
    outcome = seen.outcome(body)
    assert isinstance(outcome, Failed)
    assert type(error).__name__ in outcome.error.type_name
    if isinstance(error, SystemExit):
        assert "3" in outcome.error.text


@clause("RUN-40")
@pytest.mark.parametrize("grouped", [False, True])
async def test_keyboard_interrupt_interrupts_the_run(grouped: bool) -> None:
    """Somebody pressed Ctrl-C: the run ends, it does not go on with the next task."""

    @module
    async def body(ctx: Context) -> None:
        if grouped:
            raise BaseExceptionGroup("several", [ValueError("x"), KeyboardInterrupt()])
        raise KeyboardInterrupt

    @module(after=[body])
    async def behind(ctx: Context) -> None: ...

    @module
    async def beside(ctx: Context) -> None:
        await asyncio.sleep(60)

    @module(always_run=True)
    async def clean(ctx: Context) -> None:
        await asyncio.sleep(60)

    seen = await run_in_mode(Pipeline("interrupted", [behind, beside, clean]))
    assert seen.status == "cancelled"
    assert seen.report.exit_code == 130
    assert set(seen.states.values()) == {"cancelled/interrupted"}
    assert now() < 1


@clause("RUN-41")
async def test_cancellation_that_nobody_asked_for_is_a_failure() -> None:
    """Something inside was cancelled: reporting it as a cancelled task would hide a bug."""

    @module
    async def body(ctx: Context) -> None:
        inner = asyncio.ensure_future(asyncio.sleep(60))
        inner.cancel()
        await inner

    seen = await run_in_mode(Pipeline("unexpected", [body]))
    assert isinstance(seen.cause, UnexpectedCancellationError)


@clause("RUN-41")
async def test_group_of_cancellations_while_cancelling_is_a_cancellation() -> None:
    """A task group in a body wraps what it gets; that is no failure of the body."""

    @module
    async def grouped(ctx: Context) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            raise BaseExceptionGroup("group", [error]) from None

    @module
    async def breaks(ctx: Context) -> None:
        await asyncio.sleep(1)
        raise ExceptionGroup("group", [ValueError("a"), KeyError("b")])

    seen = await run_in_mode(Pipeline("groups", [grouped, breaks]))
    assert isinstance(seen.outcome(grouped), Cancelled)
    failed = seen.outcome(breaks)
    assert isinstance(failed, Failed)
    assert [member.type_name.rpartition(".")[2] for member in failed.error.members] == ["ValueError", "KeyError"]


async def test_value_of_a_body_is_kept_when_nothing_is_asked() -> None:
    """The plain case, beside all these."""

    @module
    async def fine(ctx: Context) -> int:
        return 1

    seen = await run_in_mode(Pipeline("fine", [fine]))
    assert isinstance(seen.outcome(fine), Succeeded)


@clause("SER-12")
async def test_very_deep_errors_are_shown_as_far_as_makes_sense() -> None:
    """An error that wraps an error that wraps an error must not break the engine in place of the body."""

    @module
    async def chain(ctx: Context) -> None:
        error: BaseException | None = None
        for number in range(2_000):
            outer = ValueError(number)
            outer.__cause__ = error
            error = outer
        assert error is not None
        raise error

    @module
    async def groups(ctx: Context) -> None:
        error: Exception = ValueError("innermost")
        for _ in range(2_000):
            error = ExceptionGroup("group", [error])
        raise error

    seen = await run_in_mode(Pipeline("deep", [chain, groups], options=Options(keep_going=True)))
    assert {failure.error_type for failure in seen.report.failures} == {"ValueError", "ExceptionGroup"}
    assert all("cut" in failure.traceback for failure in seen.report.failures)
    assert len(seen.report.failures[0].traceback) < 200_000
