"""One process of a run, for tests: ``node.py master|worker PROGRAM {json}``; writes what became of it to stdout."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import signal
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from towline.distributed.options import DistributedOptions
from towline.execution.options import Options
from towline.execution.run_request import RunRequest

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(path.rsplit("/", 1)[-1].removesuffix(".py"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.pipeline


async def telling(work: Coroutine[Any, Any, T]) -> T:
    """Do the work; on SIGUSR1 say where every asyncio task stands, for a test that finds this process hanging."""

    def tell() -> None:
        for task in asyncio.all_tasks():
            task.print_stack(limit=6, file=sys.stderr)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)
    return await work


def main() -> None:
    role, program, given = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    pipeline = load(program)
    request = RunRequest(
        options=Options(state=given.get("state"), parallelism=given.get("parallelism", 2), **given.get("options", {})),
        distributed=DistributedOptions(
            coordinator=given["coordinator"],
            heartbeat_interval_s=given.get("heartbeat_s", 0.3),
            worker_timeout_s=given.get("worker_timeout_s", 1.0),
            master_timeout_s=given.get("master_timeout_s", 10.0),
            redis_poll_s=0.5,
            registration_timeout_s=given.get("registration_timeout_s", 30.0),
            master_parallelism=given.get("master_parallelism", 0),
            minimum_workers=given.get("minimum_workers", 0),
            drain_timeout_s=given.get("drain_timeout_s", 0.2),
            finalize_timeout_s=5.0,
        ),
        run_id=given["run_id"],
        by_main=True,
    )
    if role == "worker":
        sys.exit(asyncio.run(telling(pipeline.work_for(request, given["run_id"], worker_id=given["worker_id"]))))
    report, _ = asyncio.run(telling(pipeline.run_for(request)))
    tasks = {task.id: [task.state, task.worker_id, task.attempts] for task in report.tasks}
    print(json.dumps({"status": report.status, "tasks": tasks, "warnings": list(report.warnings)}))


if __name__ == "__main__":
    main()
