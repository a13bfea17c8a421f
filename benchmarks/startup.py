"""Start-up and resume, as whole processes: what a person waits for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ONE_TASK = """
import os, sys, time
from towline import Context, Options, Pipeline, module

@module
async def first(ctx: Context) -> None:
    sys.stdout.write(f"{time.monotonic()}\\n")
    sys.stdout.flush()
    os._exit(0)

pipeline = Pipeline("one", [first], options=Options(state=sys.argv[1], capture="off"))
if __name__ == "__main__":
    pipeline.run_sync()
"""

MANY_TASKS = """
import sys
from pathlib import Path
from towline import Context, Options, Pipeline, module

async def nothing(ctx: Context) -> None:
    return None

parts = [module(name=f"t{number}")(nothing) for number in range(10_000)]

@module(after=parts)
async def last(ctx: Context) -> None:
    if not Path(sys.argv[2]).exists():
        raise RuntimeError("not yet")

pipeline = Pipeline("many", [last], resume="auto", options=Options(state=sys.argv[1], raise_on_failure=False))
if __name__ == "__main__":
    sys.exit(pipeline.run_sync().exit_code)
"""

LOAD_PLAN = "import json, sys; json.loads(open(sys.argv[1], 'rb').read())"


def environment() -> dict[str, str]:
    """Return the environment of a measured process: compiled modules are kept and found, as where they are installed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TOWLINE_")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env | {"PYTHONPYCACHEPREFIX": str(Path(__file__).resolve().parent / "results" / "compiled")}


def seconds_of(argv: list[str], *, exit_code: int = 0) -> float:
    """Run a process to its end; return how long that took."""
    started = time.monotonic()
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=False, timeout=120)
    taken = time.monotonic() - started
    if done.returncode != exit_code:
        sys.exit(f"{argv} ended with {done.returncode}: {done.stderr[-2000:]}")
    return taken


def start_pair(folder: Path, number: int) -> tuple[float, float]:
    """Return (``import asyncio``, process start to first task of a one-task file), in seconds."""
    bare = seconds_of([sys.executable, "-c", "import asyncio"])
    program = folder / "one.py"
    program.write_text(ONE_TASK, encoding="utf-8")
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(program), str(folder / f"state-{number}")],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    # The body says when it began, on the same monotonic clock.
    return bare, float(done.stdout.split()[-1]) - started


def resume_pair(folder: Path, number: int) -> tuple[float, float]:
    """Return (``json.loads`` of the plan in a bare process, resume of 10,000 tasks with one left), in seconds."""
    program, state, flag = folder / "many.py", folder / f"many-{number}", folder / f"flag-{number}"
    program.write_text(MANY_TASKS, encoding="utf-8")
    seconds_of([sys.executable, str(program), str(state), str(flag)], exit_code=1)
    [plan] = state.rglob("plan.json")
    if len(json.loads(plan.read_bytes())["tasks"]) != 10_001:
        sys.exit("the plan does not hold all tasks")
    bare = seconds_of([sys.executable, "-c", LOAD_PLAN, os.fspath(plan)])
    flag.touch()
    return bare, seconds_of([sys.executable, str(program), str(state), str(flag)])
