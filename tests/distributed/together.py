"""A master and workers in one process, for tests under virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from towline import Pipeline
from towline.coordination.memory import MemoryCoordinators
from towline.distributed.options import DistributedOptions
from towline.execution.options import Options
from towline.execution.run_request import RunRequest


class Seen:
    """What came of a run over several workers."""

    def __init__(self, report: Any, events: list[Any], codes: list[Any]) -> None:
        self.report, self.events, self.codes = report, events, codes

    @property
    def states(self) -> dict[str, str]:
        """Final state by task, with the reason code where there is one."""
        return {task.id: f"{task.state}/{task.reason}" if task.reason else task.state for task in self.report.tasks}

    @property
    def workers(self) -> dict[str, Any]:
        """Who did which task."""
        return {task.id: task.worker_id for task in self.report.tasks}


async def run_together(
    modules: list[Any],
    *,
    workers: dict[str, tuple[str, ...]] | None = None,
    options: dict[str, Any] | None = None,
    stop_after_s: float | None = None,
    **distributed: Any,
) -> Seen:
    """Run modules over a master without slots of its own, unless told, and workers with these capabilities."""
    workers = {"w-1": (), "w-2": ()} if workers is None else workers
    made = DistributedOptions(
        **{"coordinator": MemoryCoordinators(), "master_parallelism": 0, "registration_timeout_s": 60.0, **distributed},
    )
    events: list[Any] = []

    def request(capabilities: tuple[str, ...] = ()) -> RunRequest:
        given = Options(**{"state": "memory:", "parallelism": 2, "raise_on_failure": False, **(options or {})})
        return RunRequest(
            options=given, distributed=made, run_id="run-1", watchers=(events.extend,), capabilities=capabilities
        )

    helpers = [
        asyncio.ensure_future(Pipeline("together", modules).work_for(request(able), "run-1", worker_id=name))
        for name, able in workers.items()
    ]
    running = asyncio.ensure_future(Pipeline("together", modules).run_for(request()))
    if stop_after_s is not None:
        await asyncio.sleep(stop_after_s)
        running.cancel()
        await asyncio.wait([running])
        return Seen(None, events, await asyncio.gather(*helpers, return_exceptions=True))
    report, _ = await running
    return Seen(report, events, await asyncio.gather(*helpers, return_exceptions=True))
