"""One process of a measured run: ``node.py master|worker {json}``; the master writes its figures as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from floor import gap_ms
from programs import SHAPES, pipeline

from towline.distributed.options import DistributedOptions
from towline.execution.options import Options
from towline.execution.run_request import RunRequest
from towline.planning.records import FINAL_STATES


class Stopwatch:
    """Notes when the first measured task was queued and when the last one ended, as the event log shows it."""

    def __init__(self) -> None:
        self.began = self.ended = 0.0

    def take(self, events: Any) -> None:
        """Look at the events that were just made durable."""
        now = time.perf_counter()
        for event in events:
            if event.kind == "task_state" and not event.task.startswith("warm"):
                if event.data["to"] == "queued" and not self.began:
                    self.began = now
                elif event.data["to"] in FINAL_STATES:
                    self.ended = now


def main() -> int:
    """Be a master or a worker; returns the exit code."""
    role, given = sys.argv[1], json.loads(sys.argv[2])
    watch = Stopwatch()
    request = RunRequest(
        options=Options(state=given["state"], parallelism=given["slots"]),
        distributed=DistributedOptions(
            coordinator=given["coordinator"],
            master_parallelism=0,
            minimum_workers=given["workers"],
            worker_timeout_s=given.get("lease_s", 30.0),
            heartbeat_interval_s=given.get("heartbeat_s", 5.0),
        ),
        run_id="run-1",
        watchers=(watch.take,),
    )
    if role == "worker":
        return asyncio.run(pipeline.work_for(request, "run-1", worker_id=given["worker_id"]))
    began = time.perf_counter()
    pipeline.program.build(None, request.options, must_travel=True)
    plan_seconds = time.perf_counter() - began
    report, _ = asyncio.run(pipeline.run_for(request))
    figures: dict[str, Any] = {"status": report.status, "seconds": watch.ended - watch.began}
    figures["plan_seconds"] = plan_seconds
    if given["shape"] == "chain":
        figures["gap_ms"] = gap_ms([report.outcome_of(link).value for link in SHAPES["chain"]])
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
