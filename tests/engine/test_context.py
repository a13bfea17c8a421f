"""What a body asks of its context: steps, cursors, progress, facts, logs."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from towline import Context, Event, Observer, Options, Pipeline, Plan, RunReport, SyncContext, module, result_of
from towline.errors.run import RunRefusedError
from towline.testing import clause
from towline.testing.modes import ModeName, in_modes, run_in_mode

pytestmark = pytest.mark.virtual_time


# -------------------------------------------------------------------- steps and cursors


@clause("CUR-14", "RUN-19")
@in_modes("local", "strict", "distributed")
async def test_done_steps_are_remembered_over_attempts(mode: ModeName) -> None:
    """The mail is sent once, however often the rest is tried."""
    sent: list[str] = []

    async def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    @module(retries=2)
    async def body(ctx: Context) -> str:
        receipt = await ctx.step("mail", send, "a@b")
        async with ctx.step("count", result=int) as step:
            if not step.done:
                sent.append("count")
                step.set(3)
        if ctx.attempt < 3:
            raise OSError("later")
        return f"{receipt} {step.value}"

    sent.clear()
    seen = await run_in_mode(Pipeline("steps", [body]), mode)
    assert seen.value(body) == "sent to a@b 3"
    assert sent == ["a@b", "count"]


@clause("CUR-14")
@in_modes("local", "strict", "distributed")
@pytest.mark.parametrize("call", ["step", "run", "cursor"])
async def test_a_call_that_was_never_awaited_fails_the_task(mode: ModeName, call: str) -> None:
    """A step that silently never ran is found weeks later; the word that was forgotten is named at once."""
    ran: list[str] = []

    @module(retries=3)
    async def body(ctx: Context) -> None:
        ran.append("body")
        if call == "step":
            ctx.step("mail", ran.append, "mail")  # type: ignore[unused-awaitable,unused-ignore]
        elif call == "run":
            ctx.run("touch", "never.txt")  # type: ignore[unused-coroutine]
        else:
            ctx.cursor(key=int)  # type: ignore[unused-coroutine]

    seen = await run_in_mode(Pipeline("forgot", [body]), mode)

    assert ran == ["body"]
    [failure] = seen.report.failures
    assert failure.error_type.endswith("NotAwaitedError")
    assert f"await ctx.{call}(" in failure.text


async def test_an_error_that_comes_of_a_forgotten_await_says_so() -> None:
    """'coroutine' object has no attribute 'batches' leads nobody to the word that is missing."""

    @module
    async def body(ctx: Context) -> None:
        cursor: Any = ctx.cursor(key=int)
        async for _ in cursor.batches([1, 2], size=1):
            pass

    seen = await run_in_mode(Pipeline("forgot", [body]))

    [failure] = seen.report.failures
    assert failure.notes == ("ctx.cursor() was called without await",)


@in_modes("local", "strict", "distributed")
async def test_a_value_that_does_not_fit_is_blamed_on_its_module(mode: ModeName) -> None:
    """Of two hundred modules one returns text for a number: which, and where in its value?"""

    @module
    async def count(ctx: Context) -> list[int]:
        wrong: Any = [1, "x"]
        return wrong  # type: ignore[no-any-return]

    seen = await run_in_mode(Pipeline("misfit", [count]), mode)

    said = [*seen.report.warnings, *(event.data["text"] for event in seen.of_kind("log"))]
    said += [failure.text for failure in seen.report.failures]
    assert [text for text in said if "module 'count': value[1]" in text]


@clause("CUR-14")
@in_modes("local", "strict", "distributed")
async def test_steps_of_sync_bodies(mode: ModeName) -> None:
    """The same, blocking."""
    calls: list[int] = []

    def count(start: int) -> int:
        calls.append(start)
        return start + 1

    @module(retries=1)
    def body(ctx: SyncContext) -> int:
        value = ctx.step("count", count, 4)
        with ctx.step("more", result=str) as step:
            if not step.done:
                step.set("x")
        if ctx.attempt == 1:
            raise OSError("once")
        return value

    calls.clear()
    seen = await run_in_mode(Pipeline("steps", [body]), mode)
    assert (seen.value(body), calls) == (5, [4])


@clause("CUR-01", "RUN-19")
@in_modes("local", "strict", "distributed")
async def test_cursor_goes_on_in_the_next_attempt(mode: ModeName) -> None:
    """A glitch at item 3 of a million costs one item, not a million."""
    written: list[int] = []

    def key(item: int) -> int:
        return item

    @module(retries=1)
    async def walk(ctx: Context) -> int:
        cursor = await ctx.cursor(key=key, total=5)
        async for batch in cursor.batches([1, 2, 3, 4, 5], size=1):
            [item] = batch
            if item == 3 and ctx.attempt == 1:
                raise ConnectionError("glitch")
            written.append(item)
            await cursor.commit(batch)
        return len(written)

    written.clear()
    seen = await run_in_mode(Pipeline("walk", [walk]), mode)
    assert written == [1, 2, 3, 4, 5]
    [row] = seen.report.tasks
    assert (row.done, row.total) == (5, 5)


@clause("CUR-01")
async def test_cursor_of_a_sync_body() -> None:
    """The same from a thread."""
    written: list[int] = []

    @module
    def walk(ctx: SyncContext) -> int:
        def key(item: int) -> int:
            return item

        cursor = ctx.cursor(key=key)
        for batch in cursor.batches(range(1, 6), size=2):
            written.extend(batch)
            cursor.commit(batch)
        return len(written)

    seen = await run_in_mode(Pipeline("walk", [walk]))
    assert (seen.value(walk), written) == (5, [1, 2, 3, 4, 5])


# -------------------------------------------------------------------- facts


@dataclass(frozen=True)
class Params:
    """Parameters of a run."""

    region: str = "eu"


@in_modes("local", "strict", "distributed")
async def test_facts_of_a_context(mode: ModeName) -> None:
    """A body knows who and where it is."""

    @module
    async def facts(ctx: Context) -> list[str]:
        return [ctx.task_id, ctx.params(Params).region, str(ctx.attempt), str(ctx.epoch), ctx.worker_id]

    @module
    def sync_facts(ctx: SyncContext, earlier: list[str] = result_of(facts)) -> bool:
        return bool(ctx.run_id) and ctx.workdir.is_absolute()

    pipeline = Pipeline("facts", [sync_facts], params=Params)
    seen = await run_in_mode(pipeline, mode, params=Params("us"))
    assert seen.value(facts) == ["facts", "us", "1", "1", "local"]
    assert seen.value(sync_facts) is True


@clause("MOD-15")
async def test_calling_a_module_inside_a_body_is_refused() -> None:
    """A hidden dependency would run twice and be planned never."""
    from towline import UndeclaredDependencyError

    @module
    async def helper(ctx: Context) -> int:
        return 1

    @module
    async def body(ctx: Context) -> int:
        return await helper(ctx)

    seen = await run_in_mode(Pipeline("hidden", [body]))
    assert isinstance(seen.cause, UndeclaredDependencyError)


# -------------------------------------------------------------------- logs, prints, progress


@clause("RUN-37", "RUN-38")
@in_modes("local", "strict", "distributed")
async def test_what_a_body_says_is_its_own(mode: ModeName, capsys: pytest.CaptureFixture[str]) -> None:
    """Four bodies at once print and log; each line belongs to one of them."""

    @module
    async def talks(ctx: Context) -> None:
        ctx.log.info("hello from %s", ctx.task_id)
        logging.getLogger("some.library").warning("library in %s", ctx.task_id)
        print("printed")
        print("two", end="")
        await asyncio.sleep(1)
        print(" halves")
        sys.stderr.write("unfinished")

    @module
    def thread(ctx: SyncContext) -> None:
        print("printed in a thread")
        ctx.log.debug("debug in a thread")

    before = (sys.stdout, sys.stderr)
    seen = await run_in_mode(Pipeline("talk", [talks, thread]), mode)
    assert (sys.stdout, sys.stderr) == before
    said = [(event.task, event.data["text"]) for event in seen.of_kind("log", "output")]
    assert [text for task, text in said if task == "talks"] == [
        *("hello from talks", "library in talks", "printed", "two halves", "unfinished"),
    ]
    assert sorted(text for task, text in said if task == "thread") == ["debug in a thread", "printed in a thread"]


@clause("RUN-38")
async def test_capture_can_be_switched_off() -> None:
    """A debugger needs the streams as they are."""

    @module
    async def talks(ctx: Context) -> str:
        print("through")
        return type(sys.stdout).__name__

    before = type(sys.stdout).__name__
    seen = await run_in_mode(Pipeline("off", [talks], options=Options(capture="off")))
    assert seen.value(talks) == before
    assert list(seen.of_kind("output")) == []


@clause("RUN-38")
async def test_nested_runs_restore_the_streams() -> None:
    """A run may start another one; what they print stays apart, and the streams come back."""

    @module
    async def inner(ctx: Context) -> None:
        print("inner")

    @module
    async def outer(ctx: Context) -> None:
        print("before")
        await run_in_mode(Pipeline("inner", [inner]))
        print("after")

    before = sys.stdout
    seen = await run_in_mode(Pipeline("outer", [outer]))
    texts = [event.data["text"] for event in seen.of_kind("output") if event.task == "outer"]
    assert texts == ["before", "after"]
    assert sys.stdout is before


@clause("RUN-38")
async def test_concurrent_runs_restore_the_streams() -> None:
    """Two runs that overlap end in another order than they began."""

    def pipeline(name: str, seconds: float) -> Pipeline[None]:
        @module(name=name)
        async def talks(ctx: Context) -> None:
            await asyncio.sleep(seconds)
            print(f"from {name}")

        return Pipeline(name, [talks])

    before = sys.stdout
    first, second = await asyncio.gather(run_in_mode(pipeline("first", 2)), run_in_mode(pipeline("second", 5)))
    for name, seen in (("first", first), ("second", second)):
        assert [event.data["text"] for event in seen.of_kind("output")] == [f"from {name}"]
    assert sys.stdout is before


@clause("RUN-37")
async def test_a_broken_log_call_does_not_fail_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logging is for people."""
    # pytest listens too, and its own handler raises for a record that cannot be formatted.
    monkeypatch.setattr(logging.getLogger("towline.task"), "handlers", [])

    @module
    async def body(ctx: Context) -> None:
        ctx.log.info("%d", "x")

    seen = await run_in_mode(Pipeline("broken", [body]))
    assert seen.status == "succeeded"
    assert any("cannot be formatted" in event.data["text"] for event in seen.of_kind("log"))


async def test_progress_is_shown_at_most_twice_a_second() -> None:
    """A tight loop may report each item without flooding the log."""

    @module
    async def body(ctx: Context) -> None:
        for done in range(1, 101):
            ctx.progress(done, 100)
            await asyncio.sleep(0.05)
        ctx.progress(7, 3)

    seen = await run_in_mode(Pipeline("progress", [body]))
    shown = list(seen.of_kind("progress"))
    assert 5 <= len(shown) <= 12


# -------------------------------------------------------------------- observers


class Watching(Observer):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.numbers: list[int] = []

    async def run_started(self, plan: Plan) -> None:
        self.told.append(f"started {len(plan.tasks)}")

    async def on_event(self, event: Event) -> None:
        self.numbers.append(event.n)
        if event.kind == "task_state":
            self.told.append(event.data["to"])

    async def run_finished(self, report: RunReport) -> None:
        self.told.append(f"finished {report.status}")


def one_task(**options: Any) -> Pipeline[None]:
    @module
    async def body(ctx: Context) -> None: ...

    return Pipeline("observed", [body], options=Options(state="memory:", **options))


@clause("RUN-07", "RUN-08")
async def test_observers_hear_everything_in_order() -> None:
    """A chat bot may tell the team."""
    observer = Watching()
    pipeline = one_task()
    pipeline.listen(observer)
    await pipeline.run()
    assert observer.told == ["started 1", "running", "succeeded", "finished succeeded"]
    assert observer.numbers == sorted(observer.numbers)
    assert len(set(observer.numbers)) == len(observer.numbers)


@clause("RUN-08")
async def test_observer_may_refuse_a_run() -> None:
    """A freeze calendar says no before anything happens."""

    class Refuses(Observer):
        async def run_started(self, plan: Plan) -> None:
            raise PermissionError("freeze until Monday")

    pipeline = one_task()
    pipeline.listen(Refuses())
    with pytest.raises(RunRefusedError, match="freeze") as refused:
        await pipeline.run()
    assert refused.value.exit_code == 2


@clause("RUN-07", "RUN-08")
async def test_broken_and_slow_observers_change_nothing() -> None:
    """The chat is down; the release is not."""

    class Broken(Observer):
        async def on_event(self, event: Event) -> None:
            raise OSError("chat is down")

        async def run_finished(self, report: RunReport) -> None:
            await asyncio.sleep(1_000_000)

    watching = Watching()
    pipeline = one_task()
    pipeline.listen(Broken())
    pipeline.listen(watching)
    report = await pipeline.run()
    assert report.status == "succeeded"
    assert sum("chat is down" in warning for warning in report.warnings) == 1
    assert len(watching.numbers) < 20  # the warning is an event too, and must not call for the next one
    assert watching.told[-1] == "finished succeeded"
    assert asyncio.get_running_loop().time() < 40


def numbers_of(events: Sequence[Event]) -> list[int]:
    """The numbers of events, in the order in which they came."""
    return [event.n for event in events]


@pytest.mark.parametrize("durability", ["process", "power"])
async def test_events_come_in_the_order_of_their_numbers(durability: Any) -> None:
    """A reader that goes on after number 41 must not miss one that was numbered early and shown late."""

    @module(matrix={"n": [1, 2, 3, 4]})
    async def body(ctx: Context, n: int) -> None:
        for done in range(5):
            ctx.log.info("at %d", done)
            await asyncio.sleep(0.3 * n)

    seen = await run_in_mode(Pipeline("numbers", [body], options=Options(durability=durability)))
    numbers = numbers_of(seen.events)
    assert numbers == sorted(numbers)
    assert len(numbers) > 20
