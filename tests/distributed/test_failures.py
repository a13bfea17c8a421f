"""Failures, signals and routes in a distributed run: the same rules as in a local one."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed.together import run_together
from towline import Context, Outcome, Pipeline, Retry, SyncContext, module, outcome_of, result_of
from towline.coordination.memory import MemoryCoordinators
from towline.distributed.options import DistributedOptions
from towline.execution.options import Options
from towline.execution.run_request import RunRequest
from towline.modules.outcomes import Failed
from towline.testing import clause, run_virtual

seen: list[str] = []


@module
async def breaks(ctx: Context) -> int:
    await asyncio.sleep(1)
    raise ValueError("broken pipe of thoughts")


@module
async def slow(ctx: Context) -> int:
    try:
        await asyncio.sleep(1_000)
    except asyncio.CancelledError:
        seen.append("slow cancelled")
        raise
    return 1


@module
async def after_break(ctx: Context, value: int = result_of(breaks)) -> int:
    return value


@module(after=[slow])
async def after_slow(ctx: Context) -> int:
    return 2


@module(always_run=True)
async def clean(ctx: Context, how: Outcome[int] = outcome_of(breaks)) -> str:
    seen.append("clean")
    assert isinstance(how, Failed)
    return how.error.type_name


@clause("DIST-23", "DIST-39", "DIST-40")
def test_the_first_failure_stops_the_rest_but_not_the_clean_up() -> None:
    """Running tasks on other nodes are cancelled, nothing new starts, always-run tasks run with what they need to know."""
    seen.clear()
    run = run_virtual(run_together([after_break, after_slow, clean]))

    assert run.report.status == "failed"
    assert run.states["breaks"].startswith("failed")
    assert run.states["slow"].startswith("cancelled")
    assert run.states["clean"] == "succeeded"
    assert run.report.outcome_of(clean).value == "ValueError"
    assert seen == ["slow cancelled", "clean"] or seen == ["clean", "slow cancelled"]
    assert run.codes == [0, 0]
    assert run.report.failures[0].text == "broken pipe of thoughts"
    assert run.report.failures[0].worker_id in ("w-1", "w-2")


@module
async def fine(ctx: Context) -> int:
    await asyncio.sleep(20)
    return 7


@clause("DIST-39")
def test_keep_going_runs_everything_that_can() -> None:
    """Only what depends on the failure is left out."""
    run = run_virtual(run_together([after_break, fine], options={"keep_going": True}))
    assert run.states["fine"] == "succeeded"
    assert run.states["after_break"] == "skipped/dependency_failed"
    assert run.report.status == "failed"


@module(ignore_failure=True)
async def may_fail(ctx: Context) -> int:
    raise RuntimeError("never mind")


@module(after=[may_fail])
async def goes_on(ctx: Context) -> int:
    return 3


@clause("DIST-39")
def test_an_ignored_failure_stops_nothing() -> None:
    """It raises no signal, and its dependents run."""
    run = run_virtual(run_together([goes_on, fine]))
    assert run.report.status == "succeeded"
    assert run.states["goes_on"] == "succeeded"


@module(requires="quantum")
async def exotic(ctx: Context) -> int:
    return 1


@module(requires="quantum", matrix={"number": [1, 2]})
async def exotic_one(ctx: Context, number: int) -> int:
    await asyncio.sleep(1_000)
    return number


@clause("DIST-29")
def test_queued_tasks_whose_last_worker_is_gone_fail_in_time() -> None:
    """The only machine with the device dies in the middle: the run says so at once, and ends with a routing error."""

    async def scenario() -> Any:
        made = DistributedOptions(
            coordinator=MemoryCoordinators(), master_parallelism=1, registration_timeout_s=120.0, worker_timeout_s=30.0
        )
        options = Options(state="memory:", parallelism=1, raise_on_failure=False)
        request = RunRequest(options=options, distributed=made, run_id="run-1", capabilities=("quantum",))
        working = asyncio.ensure_future(Pipeline("p", [exotic_one]).work_for(request, "run-1", worker_id="w"))
        running = asyncio.ensure_future(
            Pipeline("p", [exotic_one]).run_for(RunRequest(options=options, distributed=made, run_id="run-1"))
        )
        await asyncio.sleep(20)
        for task in asyncio.all_tasks():
            if task is working or task.get_name() == "towline-keeper" or "towline-prepare" in task.get_name():
                task.cancel()  # the process is gone
        report, _ = await running
        return report, asyncio.get_running_loop().time()

    report, took_s = run_virtual(scenario())
    assert {task.reason for task in report.tasks if task.state == "failed"} == {"no_capable_worker"}
    assert any("quantum" in warning for warning in report.warnings)
    assert took_s < 20 + 30 + 120 + 30


@clause("DIST-28")
def test_a_task_that_nobody_can_run_fails_in_time() -> None:
    """Silence for ever is what users of such systems report most; the error names what is missing and who was seen."""
    run = run_virtual(run_together([exotic], workers={"w-1": ("docker",)}))
    assert run.states["exotic"] == "failed/no_capable_worker"
    text = run.report.failures[0].text
    assert "quantum" in text
    assert "docker" in text
    assert "w-1" in text


@clause("DIST-28")
def test_nobody_is_waited_for_when_all_instances_are_here() -> None:
    """A run of known size need not wait five minutes to learn that none of its workers has a GPU."""

    async def scenario() -> tuple[Any, float]:
        workers: dict[str, tuple[str, ...]] = {"instance-1": (), "instance-2": ()}
        run = await run_together([exotic], workers=workers, total=3)
        return run, asyncio.get_running_loop().time()

    run, ended_at = run_virtual(scenario())
    assert run.states == {"exotic": "failed/no_capable_worker"}
    assert ended_at < 10


@clause("COORD-C24", "DIST-28")
def test_a_task_goes_where_its_requirement_is_met() -> None:
    """What the operator declares on a node is what `requires` is matched with."""
    run = run_virtual(run_together([exotic, fine], workers={"w-1": (), "w-2": ("Quantum",)}))
    assert run.report.status == "succeeded"
    assert run.workers["exotic"] == "w-2"


attempts: list[int] = []


@module(retries=Retry(2, base_s=1.0))
async def third_time(ctx: Context) -> int:
    attempts.append(ctx.attempt)
    if len(attempts) < 3:
        raise OSError("not yet")
    return len(attempts)


@module(timeout=5)
async def stuck(ctx: Context) -> int:
    await asyncio.sleep(10_000)
    return 1


@clause("DIST-17")
def test_retries_and_timeouts_are_the_workers() -> None:
    """One runner everywhere: attempts are made where the task is, and counted in the plan."""
    attempts.clear()
    run = run_virtual(run_together([third_time, stuck], options={"keep_going": True}))
    assert attempts == [1, 2, 3]
    tasks = {task.id: task for task in run.report.tasks}
    assert tasks["third_time"].attempts == 3
    assert run.states["stuck"].startswith("timed_out")
    assert [event.data["state"] for event in run.events if event.kind == "attempt"] == ["backing_off"] * 2


@module
def threaded(ctx: SyncContext) -> str:
    print("said by a thread")
    return "done"


@clause("DIST-60", "DIST-63")
def test_what_workers_say_is_in_the_masters_log() -> None:
    """Logs, output and progress of all nodes stand in one log, before the end of their task (EVT-05)."""
    run = run_virtual(run_together([threaded], workers={"w-1": ()}))
    kinds = [(event.kind, event.data.get("to") or event.data.get("text")) for event in run.events if event.task]
    assert kinds.index(("output", "said by a thread")) < kinds.index(("task_state", "succeeded"))
    assert [event.n for event in run.events] == sorted(event.n for event in run.events)


@clause("DIST-41", "DIST-43")
def test_a_cancelled_run_lets_everybody_go() -> None:
    """Ctrl-C on the master: running work is cancelled everywhere, workers leave, nothing hangs."""
    seen.clear()
    run = run_virtual(run_together([after_slow], stop_after_s=30.0))
    assert seen == ["slow cancelled"]
    assert run.codes == [0, 0]


@clause("DIST-43")
def test_an_empty_plan_also_ends() -> None:
    """Workers that wait for a run without work must not wait for ever."""
    run = run_virtual(run_together([fine], options={}, workers={"w-1": ()}))
    assert run.report.status == "succeeded"
    assert run.codes == [0]
