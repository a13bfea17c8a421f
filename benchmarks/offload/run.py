"""Measure offload beside its yardsticks, in one run: ``python benchmarks/offload/run.py``.

Prints a table and writes ``benchmarks/results/offload.json``. Pairs are interleaved and medians are shown; run it
on a machine that does nothing else. ``--only wire`` and the like measure one part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src"), str(HERE.parents[1] / "tests" / "offload")]

import calls  # noqa: E402
import floors  # noqa: E402
import scaling  # noqa: E402
import segments  # noqa: E402
import simulated  # noqa: E402
import wire  # noqa: E402

Row = tuple[str, float, str, float | None, str]
PAIRS = 7


def wire_rows() -> list[Row]:
    """Link beside raw socket: shares of bandwidth, and a round trip."""
    rows: list[Row] = []
    for label, nbytes, count, bar in (
        ("64 MiB", 1 << 26, 4, 0.80),
        ("1 MiB", 1 << 20, 200, 0.65),
        ("64 KiB", 1 << 16, 2_000, 0.40),
        ("frames of 64 B", 64, 20_000, 0.35),
    ):
        pairs = [(wire.raw_one_way(nbytes, count), asyncio.run(wire.link_one_way(nbytes, count))) for _ in range(PAIRS)]
        share = statistics.median(raw / ours for raw, ours in pairs)
        ours = statistics.median(ours for _, ours in pairs)
        rows.append((f"TCP one way, {label}", nbytes / ours / 1e9, "GB/s", share, f">= {bar} of raw"))
    pairs = [(wire.raw_round_trip(2_000), asyncio.run(wire.link_round_trip(2_000))) for _ in range(PAIRS)]
    ratio = statistics.median(ours / raw for raw, ours in pairs)
    rows.append(("64 B round trip", statistics.median(ours for _, ours in pairs) * 1e6, "us", ratio, "<= 6 x raw"))
    return rows


PARTS: dict[str, Callable[[], list[Row]]] = {
    "wire": wire_rows,
    "fixed": lambda: asyncio.run(calls.fixed_costs()),
    "shared": lambda: asyncio.run(calls.shared_in_place()),
    "bytes": lambda: asyncio.run(calls.round_trips()),
    "break-even": lambda: asyncio.run(calls.break_even()),
    "scaling": lambda: asyncio.run(scaling.rows()),
    "memory": lambda: asyncio.run(scaling.memory()),
    "deaths": lambda: asyncio.run(scaling.deaths()),
    "floors": floors.rows,
    "segments": segments.rows,
    "simulation": simulated.rows,
}


def main() -> int:
    """Measure what was asked for; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part; may be repeated")
    parser.add_argument("--output", type=Path, default=HERE.parent / "results" / "offload.json")
    args = parser.parse_args()
    # A part may be measured anew; the others stay as they were.
    found: dict[str, list[Row]] = json.loads(args.output.read_text())["parts"] if args.output.exists() else {}
    for name in args.only or PARTS:
        found[name] = PARTS[name]()
        for what, value, unit, ratio, bar in found[name]:
            print(
                f"{what:<58} {value:>12.2f} {unit:<5} {'' if ratio is None else f'{ratio:7.2f}':>8}  {bar}", flush=True
            )
    args.output.parent.mkdir(parents=True, exist_ok=True)
    facts = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0], "parts": found}
    args.output.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
