"""What a start does not load: the time to the first task is a measured bar (benchmarks/local.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ONE_TASK = """
import os, sys
from towline import Context, Options, Pipeline, module

@module
async def first(ctx: Context) -> None:
    print(*sys.modules, flush=True)
    os._exit(0)

pipeline = Pipeline("one", [first], options=Options(state=sys.argv[1], capture="off"))
if __name__ == "__main__":
    pipeline.run_sync()
"""

NOT_FOR_ONE_TASK = {
    *("click", "rich", "statistics", "shutil", "difflib", "dataclasses", "tempfile", "anyio"),
    *("towline.errors.offload", "towline.errors.virtual_time", "towline.coordination", "towline.distributed"),
    *("towline.execution.isolation", "towline.execution.commands", "towline.execution.cache"),
    *("towline.state.cursors", "towline.state.steps", "towline.planning.loading", "towline.planning.reconcile"),
    *("towline.pipeline.closing", "towline.pipeline.catch_up", "towline.cli", "towline.views"),
}


def test_the_first_task_waits_for_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    """An import at the top of the wrong file costs everyone who starts anything."""
    program = tmp_path / "one.py"
    program.write_text(ONE_TASK)
    done = subprocess.run(
        [sys.executable, program, tmp_path / "state"], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "towline.execution.engine" in loaded
    assert loaded & NOT_FOR_ONE_TASK == set()
