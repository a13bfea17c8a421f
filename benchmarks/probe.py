"""One measurement in a process of its own; prints one JSON object. ``local.py`` starts these.

python probe.py yardstick SHAPE | engine SHAPE | resume FOLDER prepare|go
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shapes import SHAPES, Graph, last_tasks

if TYPE_CHECKING:
    from towline import Pipeline

WARM_UP: Graph = [[], [0], [0, 1]]
"""Run first on both sides: what Python has to load before the first task is the start's row, not a task's."""


def peak_kib() -> int:
    """Return the most memory that this process has held so far, in KiB; 0 where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


async def yardstick(graph: Graph) -> None:
    """Run a graph on a bare task group: one asyncio task per node, counting what each still waits for."""
    waiting = [len(waits) for waits in graph]
    after: list[list[int]] = [[] for _ in graph]
    for number, waits in enumerate(graph):
        for one in waits:
            after[one].append(number)

    async def body() -> None:
        return None

    async with asyncio.TaskGroup() as group:

        async def run(number: int) -> None:
            await body()
            for one in after[number]:
                waiting[one] -= 1
                if not waiting[one]:
                    group.create_task(run(one))

        for number, count in enumerate(list(waiting)):
            if not count:
                group.create_task(run(number))


def measure_yardstick(shape: str) -> dict[str, Any]:
    """Time the bare task group."""
    graph = SHAPES[shape]()
    asyncio.run(yardstick(WARM_UP))
    gc.collect()
    started = time.perf_counter()
    asyncio.run(yardstick(graph))
    return {"seconds": time.perf_counter() - started, "tasks": len(graph)}


def declare(graph: Graph, state: str) -> Pipeline[None]:
    """Declare one module with an empty async body per node."""
    from towline import Context, Options, Pipeline, module

    async def body(ctx: Context) -> None:
        return None

    modules: list[Any] = []
    for number, waits in enumerate(graph):
        modules.append(module(name=f"t{number}", after=[modules[one] for one in waits])(body))
    return Pipeline(
        "bench", [modules[number] for number in last_tasks(graph)], options=Options(state=state, max_tasks=200_000)
    )


def measure_engine(shape: str) -> dict[str, Any]:
    """Time plan, run and everything that is persisted, at the default durability. Declaring does not count."""
    graph = SHAPES[shape]()
    with tempfile.TemporaryDirectory() as state:
        declare(WARM_UP, f"{state}/first").run_sync()
        pipeline = declare(graph, f"{state}/measured")
        gc.collect()
        before = peak_kib()
        started, cpu_started = time.perf_counter(), time.process_time()
        report = pipeline.run_sync()
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        if report.status != "succeeded":
            sys.exit(f"the run ended {report.status}")
        kib_per_task = (peak_kib() - before) / len(graph)
        return {"seconds": seconds, "cpu_seconds": cpu_seconds, "tasks": len(graph), "kib_per_task": kib_per_task}


def main(argv: list[str]) -> None:
    """Measure what was asked for."""
    measures = {"yardstick": measure_yardstick, "engine": measure_engine}
    print(json.dumps(measures[argv[0]](argv[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
