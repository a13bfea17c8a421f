"""Back ends of the user's own: what they may do, and what happens to those that break the contract."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import CancelScope

from towline import Context, ExecutionBackend, Options, Pipeline, Succeeded, module, result_of
from towline.errors.coordination import BackendContractError
from towline.testing import clause, run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from towline import ExecutionRequest, Outcome

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_backend" / "backends.py"
ran: list[str] = []


@module
async def first(ctx: Context) -> int:
    ran.append("first")
    await asyncio.sleep(1)
    return 1


@module
async def second(ctx: Context, value: int = result_of(first)) -> int:
    ran.append("second")
    return value + 1


class Toy(ExecutionBackend):
    """A back end that is one function."""

    owns_entire_plan = True

    def __init__(self, work: Callable[[ExecutionRequest], Coroutine[Any, Any, Sequence[Outcome[object]]]]) -> None:
        self._work = work

    async def execute(self, request: ExecutionRequest) -> Sequence[Outcome[object]]:
        return await self._work(request)


def _run(work: Callable[[ExecutionRequest], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    ran.clear()
    given = Options(backend=Toy(work), state="memory:", raise_on_failure=False, **options)
    return run_virtual(Pipeline("toy", [second], options=given).run())


@clause("DIST-80", "DIST-83")
def test_the_seeds_ten_lines_work() -> None:
    """All tasks may be asked for at once, with one slot: waiting for a dependency takes none."""

    async def work(request: ExecutionRequest) -> Any:
        return await asyncio.gather(*[request.context.execute_task(task) for task in reversed(request.tasks)])

    report = _run(work, parallelism=1)
    assert report.status == "succeeded"
    assert report.outcome_of(second).value == 2
    assert ran == ["first", "second"]


@clause("DIST-82", "DIST-87")
def test_an_outcome_from_elsewhere_completes_a_task() -> None:
    """Its dependents see the value; a second outcome is refused without harm."""
    answers: list[bool] = []

    async def work(request: ExecutionRequest) -> Any:
        one, two = request.tasks
        answers.extend(request.context.try_apply_outcome(Succeeded(n, task_id=one.id, attempts=1)) for n in (40, 50))
        return [await request.context.execute_task(two)]

    report = _run(work)
    assert report.outcome_of(second).value == 41
    assert ran == ["second"]
    assert answers == [True, False]


@clause("DIST-82")
def test_no_outcome_is_applied_over_an_execution() -> None:
    """Two outcomes of one task would race; the back end is told which task it mixed up."""
    seen: list[Exception] = []

    async def work(request: ExecutionRequest) -> Any:
        running = asyncio.ensure_future(request.context.execute_task(request.tasks[0]))
        await asyncio.sleep(0.5)
        try:
            request.context.try_apply_outcome(Succeeded(9, task_id="first"))
        except BackendContractError as error:
            seen.append(error)
        return [await running, await request.context.execute_task(request.tasks[1])]

    assert _run(work).status == "succeeded"
    assert "first" in str(seen[0])


@clause("DIST-81")
def test_a_back_end_that_forgets_tasks_is_named() -> None:
    """A run must end, and say whose fault it was."""

    async def work(request: ExecutionRequest) -> Any:
        return [await request.context.execute_task(request.tasks[0])]

    report = _run(work)
    assert report.status == "failed"
    assert report.outcome_of(first).value == 1
    assert "second" in report.failures[0].text
    assert "without an outcome" in report.failures[0].text


@clause("DIST-84")
def test_requests_for_one_task_share_its_execution() -> None:
    """The body runs once; a later caller that is cancelled ends only its own wait."""

    async def work(request: ExecutionRequest) -> Any:
        ask = request.context.execute_task
        owner = asyncio.ensure_future(ask(request.tasks[0]))
        await asyncio.sleep(0.1)
        later = asyncio.ensure_future(ask(request.tasks[0]))
        await asyncio.sleep(0.1)
        later.cancel()
        return [await owner, await ask(request.tasks[1])]

    assert _run(work).status == "succeeded"
    assert ran == ["first", "second"]


@clause("DIST-86")
def test_awaiting_what_cannot_come_is_an_error() -> None:
    """A dependency that nobody asked for would be waited for for ever."""
    seen: list[Exception] = []

    async def work(request: ExecutionRequest) -> Any:
        try:
            await request.context.execute_task(request.tasks[1])
        except BackendContractError as error:
            seen.append(error)
        return await asyncio.gather(*[request.context.execute_task(task) for task in request.tasks[:1]])

    _run(work)
    assert seen
    assert "second" in str(seen[0])
    assert "first" in str(seen[0])


def test_the_example_runs_both_back_ends(tmp_path: Path, monkeypatch: Any) -> None:
    """What the guide shows is what happens."""
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("backends", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.run_with(example.InThisProcess()) == 2
    assert example.run_with(example.PartlyElsewhere()) == 40


@module
async def breaks(ctx: Context) -> int:
    await asyncio.sleep(1)
    raise ValueError("broken")


@module(always_run=True)
async def clean(ctx: Context) -> str:
    ran.append("clean begins")
    await asyncio.sleep(5)
    ran.append("clean ends")
    return "clean"


def _fail_and_clean(work: Callable[[ExecutionRequest], Coroutine[Any, Any, Any]]) -> Any:
    ran.clear()
    given = Options(backend=Toy(work), state="memory:", raise_on_failure=False)
    return run_virtual(Pipeline("toy", [breaks, clean], options=given).run())


@clause("DIST-85")
def test_a_failure_does_not_cancel_always_run_work_under_the_runs_scope() -> None:
    """A back end that cancels everything on the first failure must not take the clean-up with it."""

    async def work(request: ExecutionRequest) -> Any:
        ask, scope = request.context.execute_task, request.pipeline_scope

        async def both(task: Any) -> Any:
            outcome = await ask(task, scope=scope)
            if task.id == "breaks":
                scope.cancel()
            return outcome

        return await asyncio.gather(*[both(task) for task in request.tasks])

    report = _fail_and_clean(work)
    assert report.status == "failed"
    assert report.outcome_of(clean).value == "clean"
    assert ran == ["clean begins", "clean ends"]


@clause("DIST-85")
def test_another_scope_is_obeyed() -> None:
    """A scope of the back end's own says that it has a reason of its own, always-run or not."""

    async def work(request: ExecutionRequest) -> Any:
        outcomes = []
        with CancelScope() as own:
            asyncio.get_running_loop().call_later(2, own.cancel)
            task = next(task for task in request.tasks if task.id == "clean")
            await request.context.execute_task(task, scope=own)
        outcomes.append(await request.context.execute_task(next(t for t in request.tasks if t.id == "breaks")))
        return outcomes

    report = _fail_and_clean(work)
    assert ran == ["clean begins"]
    assert {task.id: task.state for task in report.tasks}["clean"] == "cancelled"
