"""Master and workers in one process, under virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from towline import Context, Pipeline, module, result_of
from towline.coordination.memory import MemoryCoordinators
from towline.distributed.options import DistributedOptions
from towline.execution.options import Options
from towline.execution.run_request import RunRequest
from towline.testing import clause, run_virtual


@module
async def numbers(ctx: Context) -> list[int]:
    await asyncio.sleep(1)
    return [1, 2, 3]


@module(matrix={"factor": [10, 100]})
async def scaled(ctx: Context, factor: int, base: list[int] = result_of(numbers)) -> int:
    await asyncio.sleep(5)
    ctx.log.info("scaling by %d", factor)
    return sum(base) * factor


@module(each=result_of(numbers))
async def square(ctx: Context, item: int) -> int:
    await asyncio.sleep(2)
    return item * item


@module(requires="master")
async def total(ctx: Context, parts: list[int] = result_of(scaled), squares: list[int] = result_of(square)) -> int:
    return sum(parts) + sum(squares)


pipeline = Pipeline("spread", [total])


async def _run(workers: int, **options: Any) -> Any:
    coordinators = MemoryCoordinators()
    distributed = DistributedOptions(coordinator=coordinators, **options)
    events: list[Any] = []
    request = RunRequest(
        options=Options(state="memory:", parallelism=2),
        distributed=distributed,
        run_id="run-1",
        watchers=(events.extend,),
    )
    helpers = [
        asyncio.ensure_future(Pipeline("spread", [total]).work_for(request, "run-1", worker_id=f"w{n}"))
        for n in range(workers)
    ]
    report, _ = await pipeline.run_for(request)
    codes = [await helper for helper in helpers]
    return report, events, codes


@clause("DIST-15", "DIST-17", "DIST-26", "DIST-27", "DIST-30", "DIST-43")
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_run_gives_the_same_with_any_number_of_workers(workers: int) -> None:
    """Distribution changes who does the work, and nothing else."""
    report, events, codes = run_virtual(_run(workers))

    assert report.status == "succeeded", report
    assert report.outcome_of(total).value == 6 * 110 + 14
    assert codes == [0] * workers
    said = [event.data["text"] for event in events if event.kind == "log"]
    assert {"scaling by 10", "scaling by 100"} <= set(said)


@clause("DIST-01", "COORD-C87")
def test_a_coordinator_in_the_options_makes_a_master() -> None:
    """A factory of the user's own goes in as it is; nothing else is needed."""
    made = MemoryCoordinators()
    options = Options(state="memory:", parallelism=2, coordinator=made)
    report = run_virtual(Pipeline("spread", [total], options=options).run())
    assert report.outcome_of(total).value == 6 * 110 + 14
    assert made.run(report.run_id).state.completed
