"""Measure distributed runs beside the barest dispatch over the same Redis: ``python benchmarks/distributed/measure.py``.

Prints a table and writes ``benchmarks/results/distributed.json``. A run and its floor are measured in turn, the
median of the ratios and their span are shown. ``--only chain`` and the like measure one part.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]

import claims  # noqa: E402
import floor  # noqa: E402
from cluster import Monitor, Run  # noqa: E402

from towline.testing.redis_server import RedisTestServer  # noqa: E402

Row = tuple[str, float, str, str, str]
"""What, figure, unit, ratio with its span, bar."""

LEASE_S, HEARTBEAT_S = 5.0, 1.0
NAP_IDEAL_S = 7 * 0.05
"""Fifty naps of 50 ms on eight slots."""


def _ratios(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def _floor_seconds(server: RedisTestServer, slots: int, kind: str, count: int) -> float:
    server.command("FLUSHALL")
    return floor.measure(server.port, slots, lambda cluster: floor.seconds_of(cluster, kind, count))


def _commands(server: RedisTestServer, shape: str) -> int:
    """Count the commands of a run of its own: a monitor slows the server, which tells it of every call inside scripts."""
    monitor = Monitor(server.port)
    Run(server, shape).result()
    return monitor.stop()


def tasks(server: RedisTestServer, runs: int) -> list[Row]:
    """1,000 tasks without work: rate, and commands per task."""
    ratios, rates = [], []
    for _ in range(runs):
        beside = _floor_seconds(server, 1, "nop", 1000)
        seconds = Run(server, "nop").result()["seconds"]
        rates.append(1000 / seconds)
        ratios.append(beside / seconds)
    return [
        ("1,000 no-op tasks on 2 workers", statistics.median(rates), "/s", _ratios(ratios), ">= 0.6 of the floor"),
        ("commands per no-op task", _commands(server, "nop") / 1000, "", "", "<= 4"),
    ]


def chain(server: RedisTestServer, runs: int) -> list[Row]:
    """A chain of 200: from the end of one body to the start of the next."""
    ratios, gaps = [], []
    for _ in range(runs):
        server.command("FLUSHALL")
        beside = floor.measure(server.port, 1, lambda cluster: floor.chain_gap_ms(cluster, 200))
        gaps.append(Run(server, "chain").result()["gap_ms"])
        ratios.append(gaps[-1] / beside)
    return [
        ("chain of 200, end to next start, p50", statistics.median(gaps), "ms", _ratios(ratios), "<= 2.2 x the floor"),
        ("commands per task of a chain", _commands(server, "chain") / 200, "", "", "<= 9"),
    ]


def idle(server: RedisTestServer, runs: int) -> list[Row]:
    """The same chain while fourteen more workers wait."""
    ratios, gaps = [], []
    for _ in range(runs):
        few = Run(server, "chain").result()["gap_ms"]
        gaps.append(Run(server, "chain", workers=16).result()["gap_ms"])
        ratios.append(gaps[-1] / few)
    return [("chain with 16 workers, 15 idle", statistics.median(gaps), "ms", _ratios(ratios), "<= 1.5 x two workers")]


def queue(server: RedisTestServer, runs: int) -> list[Row]:
    """A claim beside a queue that is a thousand times as long."""
    server.command("FLUSHALL")
    few, many = claims.measure_claims(server.url)
    return [("claim with 100,000 queued", many, "ms", f"{many / few:.2f}", "<= 3 x with 100 queued")]


def naps(server: RedisTestServer, runs: int) -> list[Row]:
    """Fifty tasks of 50 ms on two workers with four slots."""
    found = [NAP_IDEAL_S / Run(server, "nap", slots=4).result()["seconds"] for _ in range(runs)]
    return [("50 x 50 ms on 2 x 4 slots, efficiency", statistics.median(found), "", _ratios(found), ">= 0.87 of ideal")]


def results(server: RedisTestServer, runs: int) -> list[Row]:
    """Two hundred results of 100 KiB."""
    ratios, rates = [], []
    for _ in range(runs):
        beside = _floor_seconds(server, 1, "big", 200)
        seconds = Run(server, "big").result()["seconds"]
        rates.append(200 * 0.1024 / seconds)
        ratios.append(beside / seconds)
    return [("200 results of 100 KiB", statistics.median(rates), "MB/s", _ratios(ratios), ">= 0.5 of the floor")]


def recovery(server: RedisTestServer, runs: int) -> list[Row]:
    """From the loss of a worker in a body to the next start of that body, at a lease of five seconds."""
    rows: list[Row] = []
    for what, code in (("kill -9", signal.SIGKILL), ("SIGSTOP", signal.SIGSTOP)):
        run = Run(server, "hang", lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S)
        _, process = run.lines(1)[0]
        os.kill(process, code)
        lost_at = time.monotonic()
        seconds = run.lines(2)[1][0] - lost_at
        run.result()
        limit_s = LEASE_S + HEARTBEAT_S + 0.5
        rows.append((f"{what}: until the task runs again", seconds, "s", "", f"<= {limit_s:g} s"))
    return rows


def simulation(server: RedisTestServer, runs: int) -> list[Row]:
    """Simulated runs with faults."""
    return [("simulated seeds per CPU minute", claims.seeds_per_cpu_minute(200), "", "", ">= 600")]


PARTS: dict[str, Callable[[RedisTestServer, int], list[Row]]] = {
    "tasks": tasks,
    "chain": chain,
    "idle": idle,
    "queue": queue,
    "naps": naps,
    "results": results,
    "recovery": recovery,
    "simulation": simulation,
}


def main() -> int:
    """Measure what was asked for; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part; may be repeated")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path, default=HERE.parent / "results" / "distributed.json")
    args = parser.parse_args()
    found: dict[str, list[Row]] = {}
    with RedisTestServer() as server:
        for name in args.only or PARTS:
            found[name] = PARTS[name](server, args.runs)
            for what, value, unit, ratio, bar in found[name]:
                print(f"{what:<42} {value:>10.2f} {unit:<5} {ratio:<18} {bar}", flush=True)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    facts = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0], "parts": found}
    args.output.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
