"""The import part of the flight log move beside a bare script that does the same inserts in the same batches.

    python benchmarks/move_import.py [--pairs 3] [--small]

The move runs as the example does, with its cursors in the target. What counts is the time from the start of its first
import task to the end of its last one, validation left out, as the report of the run has it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent / "examples" / "flight_log_move"
sys.path.insert(0, str(EXAMPLE))

import answer  # noqa: E402
import build_legacy  # noqa: E402
from move import files  # noqa: E402
from move.load import BATCH, airport_row, flight_row, legs_of, plane_row, skip_reason  # noqa: E402
from move.parameters import MONTHS  # noqa: E402
from move.records import Carrier, Flight, Plane, Sheet, TargetAirport  # noqa: E402
from move.target import Target  # noqa: E402


def run_move(folder: Path, legacy: Path, name: str) -> float:
    """Run the whole move in an empty folder; return the seconds of its import part."""
    answer.main(str(legacy), str(folder / "mapping.json"))
    towline = str(Path(sys.executable).with_name("towline"))
    target = f"{EXAMPLE / 'flight_log_move.py'}:{name}"
    command = [towline, "run", target, "--param", f"legacy={legacy}", "--plain", "--state", str(folder / "state")]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    [report] = folder.glob("state/runs/*/report.json")
    tasks = [task for task in json.loads(report.read_bytes())["tasks"] if task["module"].startswith("import.")]
    moments = [datetime.fromisoformat(task[which]) for task in tasks for which in ("started_at", "finished_at")]
    return (max(moments) - min(moments)).total_seconds()


def batches(items: Iterable[Any]) -> Iterator[list[Any]]:
    """Cut items into the batches of the example."""
    walk = iter(items)
    while batch := list(itertools.islice(walk, BATCH)):
        yield batch


def run_bare(folder: Path, months: list[str]) -> float:
    """Do the same inserts from the same files, one after another, without any engine; return the seconds."""
    package = folder / "package"
    with Target(str(folder / "bare.sqlite")) as target:
        target.create_tables()
        started = time.perf_counter()

        def write(table: str, file: str, kind: type[Any], row: Callable[[Any], Any]) -> None:
            for batch in batches(files.read(package / file, kind)):
                target.write(table, map(row, batch))
                target.commit()

        write("carriers", "carriers.jsonl.gz", Carrier, lambda carrier: (carrier.code, carrier.name))
        write("airports", "prepared/airports.jsonl.gz", TargetAirport, airport_row)
        write("planes", "prepared/planes.jsonl.gz", Plane, plane_row)
        for sheet in files.read(package / "sheets.jsonl.gz", Sheet):
            target.write("sheets", [(sheet.key, sheet.sha256, sheet.rows, None)])
            target.set_content(sheet.key, files.read_sheet(package / "sheets", sheet.sha256))
            target.commit()
        sheets = {key for (key,) in target.query("select key from sheets")}
        planes = {tail for (tail,) in target.query("select tail from planes")}
        for month in months:
            for batch in batches(files.read(package / "flights" / f"{month}.jsonl.gz", Flight)):
                reasons = [(flight, skip_reason(flight, planes)) for flight in batch]
                target.write("flights", (flight_row(flight, sheets) for flight, why in reasons if why is None))
                target.write("skipped", ((flight.key, why) for flight, why in reasons if why is not None))
                target.commit()
        with Target(str(folder / "bare.sqlite")) as reader:
            legs = legs_of(reader.query("select tail, legacy_key from flights order by tail, legacy_key"))
            for batch in batches(legs):
                target.write("links", ((leg[1], leg[2]) for leg in batch if leg[2] is not None))
                target.commit()
        seconds = time.perf_counter() - started
        with Target(str(folder / "target.sqlite")) as moved:
            if moved.digest() != target.digest():
                sys.exit("the bare script made another target: the comparison is void")
    return seconds


def main() -> None:
    """Measure pairs and say the ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="January alone")
    chosen = parser.parse_args()
    pairs = []
    with tempfile.TemporaryDirectory() as scratch:
        legacy = Path(scratch, "legacy.sqlite")
        build_legacy.build(legacy, say=lambda line: None)
        for number in range(chosen.pairs):
            folder = Path(scratch, str(number))
            folder.mkdir()
            ours = run_move(folder, legacy, "small" if chosen.small else "pipeline")
            pairs.append((run_bare(folder, MONTHS[: 1 if chosen.small else 12]), ours))
            print(f"bare {pairs[-1][0]:.2f} s, towline {ours:.2f} s, ratio {ours / pairs[-1][0]:.2f}", flush=True)
    ratio = statistics.median(ours / bare for bare, ours in pairs)
    print(f"median ratio {ratio:.2f} (must 1.5, reach 1.2)")
    results = HERE / "results" / "move.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps({"ratio": ratio, "pairs": pairs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
