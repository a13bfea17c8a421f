"""What earlier reports tell: estimates of durations, the run to compare with, which reports stay (REP-04, 05, 08)."""

from __future__ import annotations

import shutil
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from towline.execution.report import PreviousRun, RunReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

REPORTS_KEPT = 20
"""Reports per pipeline (REP-04)."""

RUNS_COUNTED = 5
"""An estimate is the median of this many executed successes (REP-08)."""


class _TaskHead(msgspec.Struct):
    id: str
    module: str
    state: str
    origin: str | None = None
    duration_s: float | None = None


class ReportHead(msgspec.Struct):
    """The part of a report that later runs use."""

    run_id: str
    status: str
    started_at: str = ""
    duration_s: float = 0.0
    tasks: list[_TaskHead] = []


def read_heads(root: Path) -> list[ReportHead]:
    """Read the reports of a state root, newest first. Damaged and foreign ones count as absent (REP-04)."""
    heads = []
    for file in root.glob("runs/*/report.json"):
        try:
            heads.append(msgspec.json.decode(file.read_bytes(), type=ReportHead))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue  # a report is for people; `towline runs` says which one is damaged
    heads.sort(key=lambda head: head.started_at, reverse=True)
    return heads


def estimates_of(root: Path) -> dict[str, float]:
    """Return seconds by task id and by module name: the median of the last 5 executed successes of each."""
    return estimates_from(read_heads(root)) if root.is_dir() else {}


def estimates_from(heads: Iterable[ReportHead]) -> dict[str, float]:
    """Work out estimates from reports, newest first."""
    known: dict[str, list[float]] = defaultdict(list)
    for head in heads:
        for task in head.tasks:
            if task.state != "succeeded" or task.origin != "executed" or task.duration_s is None:
                continue
            for name in {task.id, task.module}:
                if len(known[name]) < RUNS_COUNTED:
                    known[name].append(task.duration_s)
    return {name: statistics.median(values) for name, values in known.items()}


def previous_of(heads: Iterable[ReportHead]) -> tuple[PreviousRun | None, Mapping[str, float]]:
    """Return the latest succeeded run, and how long each of its executed tasks took (REP-05)."""
    for head in heads:
        if head.status == "succeeded":
            took = {task.id: task.duration_s for task in head.tasks if task.origin == "executed" and task.duration_s}
            return PreviousRun(run_id=head.run_id, duration_s=head.duration_s), took
    return None, {}


def write_report(folder: Path, report: RunReport) -> str:
    """Write ``report.json`` by temp file and rename; returns its path (REP-03).

    Raises:
        OSError: It could not be written; the caller warns.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.json"
    temporary = path.with_suffix(".json.tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    temporary.replace(path)
    return str(path)


def forget_old_runs(root: Path, keep: str) -> None:
    """Remove the folders of runs whose reports fell out of the 20 newest; unfinished runs stay (REP-04)."""
    for head in read_heads(root)[REPORTS_KEPT:]:
        if head.run_id != keep:
            shutil.rmtree(root / "runs" / head.run_id, ignore_errors=True)
