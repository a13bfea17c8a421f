"""Workers for any number of runs of one program."""

from __future__ import annotations

import asyncio
from typing import Any

from towline import Context, Pipeline, module
from towline.coordination.memory import MemoryCoordinators
from towline.distributed.options import DistributedOptions
from towline.execution.options import Options
from towline.execution.run_request import RunRequest
from towline.testing import clause, run_virtual

busy = 0
most = 0
began: list[str] = []


@module(matrix={"number": list(range(6))})
async def part(ctx: Context, number: int) -> int:
    global busy, most
    busy += 1
    most = max(most, busy)
    began.append(ctx.run_id)
    await asyncio.sleep(10)
    busy -= 1
    return number


@module
async def other(ctx: Context) -> int:
    return 1


def request(coordinators: MemoryCoordinators, run_id: str | None = None, **fields: Any) -> RunRequest:
    made = DistributedOptions(coordinator=coordinators, master_parallelism=0, registration_timeout_s=600.0, **fields)
    options = Options(state="memory:", parallelism=2, raise_on_failure=False)
    return RunRequest(options=options, distributed=made, run_id=run_id)


@clause("DIST-09")
def test_one_worker_serves_all_runs_of_its_program_with_its_slots() -> None:
    """Runs come and go; whoever has work gets a slot in turn, and all together never more than there are."""
    shared = MemoryCoordinators()
    began.clear()

    async def scenario() -> Any:
        pipelines = [Pipeline("p", [part]) for _ in range(3)]
        worker = asyncio.ensure_future(Pipeline("p", [part]).work_for_all(request(shared, idle_timeout_s=60.0)))
        first = asyncio.ensure_future(pipelines[0].run_for(request(shared, "run-1")))
        second = asyncio.ensure_future(pipelines[1].run_for(request(shared, "run-2")))
        reports = [(await first)[0], (await second)[0]]
        late = (await pipelines[2].run_for(request(shared, "run-3")))[0]
        return [*reports, late], await worker

    reports, code = run_virtual(scenario())
    assert [report.status for report in reports] == ["succeeded"] * 3
    assert most == 2
    assert len(began) == 18
    assert set(began[:6]) == {"run-1", "run-2"}
    assert code == 0


@clause("DIST-09")
def test_a_run_of_another_version_is_left_alone() -> None:
    """A fleet worker that was deployed first serves the runs of its own version, and goes on doing so."""
    shared = MemoryCoordinators()

    async def scenario() -> Any:
        worker = asyncio.ensure_future(Pipeline("p", [part]).work_for_all(request(shared, idle_timeout_s=60.0)))
        foreign = asyncio.ensure_future(Pipeline("p", [other]).run_for(request(shared, "run-1")))
        report, _ = await Pipeline("p", [part]).run_for(request(shared, "run-2"))
        foreign.cancel()
        await asyncio.wait([foreign])
        return report, await worker

    report, code = run_virtual(scenario())
    assert (report.status, code) == ("succeeded", 0)
