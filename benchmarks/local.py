"""Measure one machine: Towline beside a bare ``asyncio.TaskGroup``, in turn, and say the ratios.

    python benchmarks/local.py [--pairs 9] [--only NAME,...] [--quick]

Every run is a process of its own. Engine and yardstick run in turn, so that a busy moment meets both; the ratio is the
median of the ratios of the pairs. What counts: building the plan, persisting it, running it, at default durability.
Declaring the modules does not. Results go to ``benchmarks/results/local.json`` and, as a table, to the terminal.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from startup import environment, resume_pair, start_pair

HERE = Path(__file__).resolve().parent
OVERHEAD = ("wide-10000", "chain-10000", "layered-10000", "grid-100x100")
GROWTH = (("wide-10000", "wide-100000"), ("chains-10x1000", "chains-100x1000"))

Row = dict[str, Any]


def probe(*what: str) -> Row:
    """Run one measurement in a fresh process."""
    command = [sys.executable, str(HERE / "probe.py"), *what]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        sys.exit(f"{' '.join(what)}: {done.stderr[-2000:]}")
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def ratio_row(name: str, unit: str, pairs: list[tuple[float, float]], must: float, reach: float, scale: float) -> Row:
    """Sum up pairs of (beside, ours) in seconds."""
    ratios = [ours / beside for beside, ours in pairs]
    return {
        "name": name,
        "unit": unit,
        "beside": statistics.median(beside for beside, _ in pairs) * scale,
        "ours": statistics.median(ours for _, ours in pairs) * scale,
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "pairs": len(pairs),
        "must": must,
        "reach": reach,
    }


def overhead(shape: str, pairs: int) -> list[Row]:
    """Compare the engine with a bare task group on one graph."""
    found, tasks = [], 1
    probe("engine", shape)  # compiles what was changed
    for _ in range(pairs):
        bare, ours = probe("yardstick", shape), probe("engine", shape)
        tasks = ours["tasks"]
        found.append((bare["seconds"], ours["seconds"]))
    return [ratio_row(f"{shape} vs TaskGroup", "µs/task", found, must=10, reach=6, scale=1e6 / tasks)]


def growth(small: str, large: str, pairs: int) -> list[Row]:
    """Compare ten times the tasks with the tasks: time, and memory per task."""
    times, memory = [], []
    for _ in range(pairs):
        one, ten = probe("engine", small), probe("engine", large)
        times.append((one["seconds"], ten["seconds"]))
        memory.append(ten["kib_per_task"])
    row = ratio_row(f"{large} vs {small}", "s", times, must=12, reach=10, scale=1)
    kept = statistics.median(memory)
    peak = {"name": f"{large}: peak memory", "unit": "KiB/task", "ours": kept, "ratio": kept, "must": 3.0, "reach": 2.5}
    return [row, {**peak, "lowest": min(memory), "highest": max(memory), "pairs": pairs}]


def process_row(
    name: str, pair: Callable[[Path, int], tuple[float, float]], pairs: int, must: float, reach: float
) -> Row:
    """Compare two kinds of whole processes."""
    with tempfile.TemporaryDirectory() as folder:
        pair(Path(folder), pairs)  # the first pair also compiles and warms the disk's cache
        found = [pair(Path(folder), number) for number in range(pairs)]
    return ratio_row(name, "ms", found, must, reach, scale=1e3)


def measure(pairs: int, only: set[str], *, quick: bool) -> list[Row]:
    """Measure everything that was chosen, saying each row as it comes."""
    few = max(3, pairs // 3)
    plan: list[tuple[str, Callable[[], list[Row]]]] = [
        *((shape, partial(overhead, shape, pairs)) for shape in OVERHEAD),
        ("start", lambda: [process_row("start to first task vs import asyncio", start_pair, pairs, 2.5, 1.8)]),
        ("resume", lambda: [process_row("resume 10,000 vs json.loads of its plan", resume_pair, few, 8, 6)]),
    ]
    if not quick:
        plan += [(large, partial(growth, small, large, few)) for small, large in GROWTH]
    rows = []
    for name, act in plan:
        if not only or name in only:
            for row in act():
                rows.append(row)
                print(line_of(row), flush=True)
    return rows


def line_of(row: Row) -> str:
    """Write one row of the table."""
    beside = f"{row['beside']:.2f}" if "beside" in row else ""
    verdict = "reached" if row["ratio"] <= row["reach"] else "ok" if row["ratio"] <= row["must"] else "MISSED"
    span = f"{row['lowest']:.2f}-{row['highest']:.2f}"
    return (
        f"{row['name']:<42} {beside:>9} {row['ours']:>10.2f} {row['unit']:<9} {row['ratio']:>6.2f} {span:>14}"
        f"  must {row['must']:<4g} reach {row['reach']:<4g} {verdict}"
    )


def main() -> None:
    """Read the call, measure, write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=9, help="pairs per row; default 9")
    parser.add_argument("--only", default="", help="names of rows, with commas")
    parser.add_argument("--quick", action="store_true", help="leave out what takes 100,000 tasks")
    chosen = parser.parse_args()
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform(terse=True)}
    print(f"{machine['cores']} cores, Python {machine['python']}, {machine['system']}")
    print(f"{'':<42} {'beside':>9} {'towline':>10} {'':<9} {'ratio':>6} {'span':>14}")
    rows = measure(chosen.pairs, set(filter(None, chosen.only.split(","))), quick=chosen.quick)
    results = HERE / "results" / "local.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
