"""Offload beside Dask distributed and Ray: ``python benchmarks/offload/peers.py --peers PATH_OF_AN_ENVIRONMENT``.

The environment holds what ``benchmarks/requirements-peers.txt`` names; all three systems run in it, on the same numpy, with
two worker processes that run one kernel at a time, and one BLAS thread each. Clusters are started once and stay warm. A
round asks each of them for the same work in turn; the figures are medians over the rounds, and a ratio is that of the
medians. Results are compared. Prints a table and writes ``benchmarks/results/offload-peers.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SYSTEMS = ("towline", "dask", "ray")
WORKS = {
    "a": ("vector add, 3 x 64 MiB", {"dask": 0.5, "ray": 1.0}),
    "b": ("heat stencil, 4,096 squared, 200 steps, 4 bands", {"dask": 0.5, "ray": 0.5}),
    "c": ("blocked product, 4,096 squared, 512 products", {"dask": 0.9, "ray": 0.9}),
    "d": ("10,000 calls of 1 ms on 64 B", {"dask": 0.5, "ray": 0.8}),
}
MEMORY = ("peak memory of (a), all processes", {"dask": 0.7, "ray": 0.7})
MARK = "TOWLINE_BENCHMARKED_SYSTEM"


class System:
    """One system in processes of its own: a letter in, seconds out."""

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        path = os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE / "peers")])
        env = {**os.environ, "PYTHONPATH": path, MARK: name, "RAY_USAGE_STATS_ENABLED": "0"}
        env |= {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
        self.process = subprocess.Popen(
            [python, str(HERE / "peers" / f"on_{name}.py")], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.answer()

    def answer(self) -> dict[str, Any]:
        """Read the next answer; other lines are chatter of the system."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise RuntimeError(f"{self.name} ended with exit code {self.process.wait()}")

    def run(self, work: str) -> dict[str, Any]:
        """Have it do a piece of work."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{work}\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        """End it with all that it started."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.process.kill()
        self.process.wait()


def processes_of(name: str) -> list[int]:
    """Return the processes of a system: those with its mark, also where they left the tree, and all that they started.

    A process that sets its own title overwrites the environment that others see, so the mark alone misses it.
    """
    wanted, found, parents = f"{MARK}={name}".encode(), set(), {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def proportional_bytes(pids: list[int]) -> int:
    """Sum what these processes use; a page that several share counts once in all."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
            total += next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


@contextlib.contextmanager
def watching(name: str) -> Iterator[list[int]]:
    """Sample the memory of a system; the list's only entry is the peak."""
    peak, over, pids = [0], threading.Event(), processes_of(name)

    def watch() -> None:
        while not over.wait(0.005):
            peak[0] = max(peak[0], proportional_bytes(pids))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def measure(systems: dict[str, System], work: str, rounds: int) -> dict[str, float]:
    """Ask each system in turn, so often; returns the median seconds of each.

    Raises:
        AssertionError: Two systems computed different results.
    """
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    checksums: dict[str, float] = {}
    for number in range(rounds):
        for name in sorted(systems, key=lambda n: (list(systems).index(n) + number) % len(systems)):
            answer = systems[name].run(work)
            seconds[name].append(answer["seconds"])
            checksums[name] = answer["checksum"]
            print(f"  ({work}) round {number + 1} {name}: {answer['seconds']:.3f} s", file=sys.stderr, flush=True)
    first = next(iter(checksums.values()))
    assert all(math.isclose(value, first, rel_tol=1e-9) for value in checksums.values()), checksums
    return {name: statistics.median(values) for name, values in seconds.items()}


def measure_memory(systems: dict[str, System], rounds: int) -> dict[str, float]:
    """Return the median peak of each system while it does (a), in MiB."""
    peaks: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, system in systems.items():
            with watching(name) as peak:
                for _ in range(3):
                    system.run("a")
            peaks[name].append(peak[0] / (1 << 20))
    return {name: statistics.median(values) for name, values in peaks.items()}


def tell(letter: str, label: str, unit: str, values: dict[str, float], bars: dict[str, float]) -> dict[str, Any]:
    """Print one row; returns it for the file."""
    row: dict[str, Any] = {"work": letter, "what": label, "unit": unit, "values": values, "ratios": {}, "bars": bars}
    text = "  ".join(f"{name} {value:.3f}" for name, value in values.items())
    for name, bar in bars.items():
        if name in values:
            ratio = row["ratios"][name] = values["towline"] / values[name]
            text += f"  {ratio:.2f} x {name} (<= {bar}: {'met' if ratio <= bar else 'missed'})"
    print(f"({letter}) {label}, {unit}: {text}", flush=True)
    return row


def _kept(output: Path) -> list[dict[str, Any]]:
    return list(json.loads(output.read_text(encoding="utf-8"))["rows"]) if output.exists() else []


def main() -> int:
    """Measure what was asked for; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="virtual environment with all three systems; default: this one")
    parser.add_argument("--only", choices=[*WORKS, "e"], action="append", help="do this work; may be repeated")
    parser.add_argument("--system", choices=SYSTEMS, action="append", help="measure this system; may be repeated")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=HERE.parent / "results" / "offload-peers.json")
    args = parser.parse_args()
    python = str(args.peers / "bin" / "python") if args.peers else sys.executable
    names = tuple(args.system or SYSTEMS)
    wanted = args.only or [*WORKS, "e"]
    systems: dict[str, System] = {}
    rows: list[dict[str, Any]] = []
    began = time.time()
    try:
        for name in names:
            systems[name] = System(name, python)
        for letter in wanted:
            if letter == "e":
                rows.append(tell("e", MEMORY[0], "MiB", measure_memory(systems, args.rounds), MEMORY[1]))
            else:
                label, bars = WORKS[letter]
                rows.append(tell(letter, label, "s", measure(systems, letter, args.rounds), bars))
    finally:
        for system in systems.values():
            system.close()
    sys.path.insert(0, str(HERE / "peers"))
    sizes = {name: getattr(import_module("work"), name) for name in ("ADD_LENGTH", "SIDE", "STEPS", "NAPS", "WORKERS")}
    for row in rows:
        row |= {"rounds": args.rounds, "load": os.getloadavg()[0], "sizes": sizes}
    rows += [row for row in _kept(args.output) if row["work"] not in wanted]  # a part may be measured anew
    rows.sort(key=lambda row: str(row["work"]))
    facts = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "elapsed_s": time.time() - began,
        "rows": rows,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
