"""What must stay small however large a run is: asyncio tasks, state, turns, logs."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable
from typing import Any

import pytest

from towline import Context, Options, Pipeline, module, result_of
from towline.execution.limits import RunLimits
from towline.execution.run_folder import HALF_LOG_BYTES, RunFolder
from towline.execution.scheduler import Scheduler
from towline.planning.records import PlannedTask
from towline.testing import clause, run_in_mode

pytestmark = pytest.mark.virtual_time


@clause("SCHED-26")
async def test_asyncio_tasks_exist_only_for_running_tasks() -> None:
    """A plan of 100,000 tasks must not be 100,000 coroutines that wait."""
    most = 0

    @module(matrix={"n": list(range(600))})
    async def body(ctx: Context, n: int) -> None:
        nonlocal most
        most = max(most, len(asyncio.all_tasks()))
        await asyncio.sleep(1)

    seen = await run_in_mode(Pipeline("many", [body], options=Options(parallelism=5)))
    assert seen.report.counts == {"succeeded": 600}
    assert most <= 5 + 5


@clause("SCHED-26")
async def test_a_failure_with_many_dependents_is_settled_in_slices() -> None:
    """The console must go on drawing while 3,000 tasks are skipped."""
    batches: list[int] = []

    @module
    async def breaks(ctx: Context) -> int:
        raise ValueError("no")

    @module(matrix={"n": list(range(3_000))})
    async def behind(ctx: Context, n: int, value: int = result_of(breaks)) -> None: ...

    def watch(batch: Any) -> None:
        batches.append(sum(1 for event in batch if event.kind == "task_state"))

    seen = await run_in_mode(Pipeline("slices", [behind]), watchers=(watch,))
    assert seen.report.counts == {"failed": 1, "skipped": 3_000}
    assert max(batches) <= 1_001
    assert sum(batches) == 3_002


@clause("SCHED-26")
async def test_scheduler_keeps_little_per_task() -> None:
    """100,000 tasks have to fit beside the work itself."""
    tasks = [PlannedTask(id=f"t{n}", module="t", depends_on=(f"t{n - 1}",) if n % 10 else ()) for n in range(10_000)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        scheduler = Scheduler(tasks, {}, RunLimits(parallelism=4, cores=2), {})
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert scheduler.late_finishes == 0
    assert (after - before) / len(tasks) < 2_048


class Disk:
    """Takes appended bytes by file."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.full = False

    async def append(self, name: str, data: bytes) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.files.setdefault(name, bytearray()).extend(data)


def folder_on(disk: Disk, troubles: list[Exception]) -> RunFolder:
    loop = asyncio.get_running_loop()
    spawned: set[asyncio.Future[None]] = set()

    def spawn(work: Awaitable[None]) -> None:
        spawned.add(asyncio.ensure_future(work))

    return RunFolder(disk.append, loop.call_later, troubles.append, spawn)


@clause("RUN-39")
async def test_a_log_keeps_its_beginning_and_its_end() -> None:
    """A body that prints for a night shows how it began and how it ended, in bounded space."""
    disk, troubles = Disk(), list[Exception]()
    folder = folder_on(disk, troubles)
    line = "x" * 99_990
    count = 300
    for number in range(count):
        folder.log_line("talks", f"{number:05d} {line}\n")
        if number % 10 == 0:
            await asyncio.sleep(1)
    folder.log_line("other", "caf\udce9\n")
    await folder.close()
    text = bytes(disk.files["log/talks.txt"]).decode()
    numbers = [int(one[:5]) for one in text.splitlines() if one[:5].isdigit()]
    assert len(text) < 2 * HALF_LOG_BYTES + 200_000
    assert numbers[0] == 0
    assert numbers[-1] == count - 1
    assert "bytes left out" in text
    assert len(numbers) < count
    assert bytes(disk.files["log/other.txt"]) == b"caf\\udce9\n"
    assert troubles == []


async def test_a_full_disk_ends_the_logs_and_not_the_run() -> None:
    """Logs are for people; the trouble is said once."""
    disk, troubles = Disk(), list[Exception]()
    folder = folder_on(disk, troubles)
    disk.full = True
    for _ in range(3):
        folder.log_line("a", "line\n")
        await asyncio.sleep(1)
    await folder.close()
    assert len(troubles) == 1
