"""Put Towline beside its peers, in turn, on the same graphs: ``measure.py [local] [distributed] [--rounds 5]``.

    make benchmarks-peers

Each program of this folder is one peer, used as its own documentation advises; ``requirements-peers.txt`` pins them. A
round runs every peer and Towline once, each in processes of its own, so that a busy moment of the machine meets all of
them; a ratio is that of one round, and the row shows their median and span. ``of CPU`` is the same of processor time,
which other programs disturb less. Below 1 Towline is faster. Towline persists its plan and journal at default
durability; its figure for two workers includes building the plan. A table goes to the terminal, all figures to
``benchmarks/results/peers.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "distributed"), str(HERE.parent), str(HERE.parents[1] / "src")]

from cluster import Run  # noqa: E402 - the folders beside this one are found only now

from startup import environment  # noqa: E402
from towline.testing.redis_server import RedisTestServer  # noqa: E402

LOCAL = {"hamilton": "sf-hamilton", "doit": "doit", "dask": "dask", "parsl": "parsl"}
CLUSTER = {
    "celery": "celery",
    "dask": "distributed",
    "taskiq": "taskiq",
    "streaq": "streaq",
    "parsl": "parsl",
    "ray": "ray",
}
"""Each peer's program, and the distribution that it measures."""
SHAPES = ("wide-10000", "chain-10000", "layered-10000", "grid-100x100")
OURS = "towline"
LIMIT_S = 300.0

Times = tuple[float, float]
"""Elapsed and processor seconds; processor seconds of a cluster are not told, and 0."""
Measure = Callable[[], Times | None]


def times_of(program: str, *argv: str, **variables: str) -> Times | None:
    """Run a program of this folder, or one beside it; returns None, and says why, where it cannot do the graph."""
    # Ray sends nothing anywhere, and leaves alone what it would hide from its workers.
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    env = {**environment(), **quiet, **variables, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parents[1] / 'src'}"}
    done = subprocess.run(
        [sys.executable, str(HERE / program), *argv],
        cwd=HERE,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if done.returncode:
        print(f"  {program} {' '.join(argv)}: {(done.stderr.splitlines() or ['failed'])[-1]}", file=sys.stderr)
        return None
    said = json.loads(done.stdout.splitlines()[-1])
    return said["seconds"], said.get("cpu_seconds", 0.0)


def on_cluster(server: RedisTestServer, peer: str) -> Times | None:
    """Return a peer's seconds for the tasks on two workers; those that need a Redis get it empty."""
    server.command("FLUSHALL")
    return times_of(f"cluster_{peer}.py", PEERS_URL=server.url)


def ours_on_cluster(server: RedisTestServer) -> Times:
    """Return Towline's times: building the plan, then from the first task that was queued to the last that ended."""
    figures = Run(server, "nop").result()
    return figures["plan_seconds"] + figures["seconds"], 0.0


def rows_of(name: str, tasks: int, measures: dict[str, Measure], rounds: int) -> Iterator[dict[str, Any]]:
    """Measure all in turn, ``rounds`` times; yields a row for each peer."""
    found: dict[str, list[Times | None]] = {who: [] for who in measures}
    loads = []
    for number in range(rounds):
        order = list(measures)
        for who in order[number % len(order) :] + order[: number % len(order)]:
            found[who].append(measures[who]())
        loads.append(os.getloadavg()[0])
    ours = found.pop(OURS)
    for peer, theirs in found.items():
        # Without the rounds in which the peer failed; its message has been shown.
        pairs = [(mine, other) for mine, other in zip(ours, theirs, strict=True) if mine and other]
        row: dict[str, Any] = {"name": name, "peer": peer, "tasks": tasks, "rounds": len(pairs)}
        row |= {"load": [min(loads), max(loads)], "ours_us": statistics.median(mine[0] for mine in ours if mine)}
        row["ours_us"] *= 1e6 / tasks
        if pairs:
            ratios = [mine[0] / other[0] for mine, other in pairs]
            row |= {"theirs_us": statistics.median(other[0] for _, other in pairs) * 1e6 / tasks}
            row |= {"ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
        if pairs and all(other[1] for _, other in pairs):
            for key, side in (("ours_cpu_us", 0), ("theirs_cpu_us", 1)):
                row[key] = statistics.median(pair[side][1] for pair in pairs) * 1e6 / tasks
            row["cpu_ratio"] = statistics.median(mine[1] / other[1] for mine, other in pairs)
        yield row


def local(rounds: int) -> Iterator[dict[str, Any]]:
    """One machine, 10,000 tasks without work."""
    for shape in SHAPES:
        measures: dict[str, Measure] = {
            peer: lambda peer=peer, shape=shape: times_of(f"local_{peer}.py", shape) for peer in LOCAL
        }
        measures[OURS] = lambda shape=shape: times_of("../probe.py", "engine", shape)
        if shape == SHAPES[0]:
            for measure in measures.values():
                measure()  # compiles what was changed or is used for the first time
        yield from rows_of(shape, 10_000, measures, rounds)


def distributed(rounds: int) -> Iterator[dict[str, Any]]:
    """Two workers of one slot, 1,000 tasks without work."""
    with RedisTestServer() as server:
        measures: dict[str, Measure] = {peer: lambda peer=peer: on_cluster(server, peer) for peer in CLUSTER}
        measures[OURS] = lambda: ours_on_cluster(server)
        yield from rows_of("1,000 on 2 workers", 1_000, measures, rounds)


def line_of(row: dict[str, Any]) -> str:
    """Write one row of the table."""
    start = f"{row['name']:<20} {row['peer']:<9} {row['ours_us']:>8.0f}"
    if "ratio" not in row:
        return f"{start} {'cannot':>8}"
    span = f"{row['lowest']:.2f}-{row['highest']:.2f}"
    cpu = f"{row['cpu_ratio']:.2f}" if "cpu_ratio" in row else ""
    place = "ahead" if row["ratio"] < 1 else "BEHIND"
    return f"{start} {row['theirs_us']:>8.0f} {row['ratio']:>6.2f} {span:>12} {cpu:>6}  {place}"


def main() -> None:
    """Read the call, measure, write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=["local", "distributed", []], help="default: both")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    parts = {"local": local, "distributed": distributed}
    try:
        versions = {name: metadata.version(name) for name in sorted({*LOCAL.values(), *CLUSTER.values()})}
    except metadata.PackageNotFoundError as missing:
        sys.exit(f"{missing.name} is not installed: make benchmarks-peers installs what benchmarks/ pins")
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}; µs per task")
    print(f"{'':<20} {'peer':<9} {'towline':>8} {'peer':>8} {'ratio':>6} {'span':>12} {'of CPU':>6}")
    rows = []
    for part in chosen.parts or parts:
        for row in parts[part](chosen.rounds):
            rows.append(row)
            print(line_of(row), flush=True)
    results = HERE.parent / "results" / "peers.json"
    results.parent.mkdir(exist_ok=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "versions": versions}
    results.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
