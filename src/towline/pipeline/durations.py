"""What earlier reports tell: estimates of durations, the run to compare with, which reports stay (REP-04, 05, 08)."""

# ruff: noqa: TC004 - what is never decoded has annotations that need no imports at start-up.

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from towline.clock import moment
from towline.identity import segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from towline.execution.report import PreviousRun, RunReport

REPORTS_KEPT = 20
"""Reports per pipeline (REP-04)."""

INDENTED_TASKS = 1_000
"""A report of more tasks is read by programs alone, and written without line breaks."""

REPORTS_KEPT_ALL = 200
"""Reports of all pipelines of a folder together."""

ESTIMATE_AGE_S = 90 * 24 * 3600.0
"""Older reports tell nothing of how long a task takes today (REP-08)."""

LOG_TAIL_LINES, LOG_TAIL_BYTES = 40, 64 * 1024
"""What a report repeats of the log of the root failure (REP-07)."""

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
    schema: int = 1
    tasks: list[_TaskHead] = []
    folder: str = ""
    """Where it was found; what the file itself says of that does not count."""


def read_heads(root: Path) -> list[ReportHead]:
    """Read the reports of a state root, newest first. Damaged and foreign ones count as absent (REP-04)."""
    heads = []
    for file in root.glob("runs/*/report.json"):
        try:
            head = msgspec.json.decode(file.read_bytes(), type=ReportHead)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue  # a report is for people; `towline runs` says which one is damaged
        if head.schema == 1:
            head.folder = str(file.parent)
            heads.append(head)
    heads.sort(key=lambda head: head.started_at, reverse=True)
    return heads


class Earlier(msgspec.Struct):
    """What a run takes from the reports of earlier ones, read once.

    ``estimates``: seconds by task id and module name; ``previous``: the latest succeeded run, and ``took``, how long
    each of its executed tasks took; ``heads``: all of them, newest first, without their tasks.
    """

    estimates: Mapping[str, float] = {}
    previous: PreviousRun | None = None
    took: Mapping[str, float] = {}
    heads: list[ReportHead] = []


def earlier_runs(root: Path, now: float) -> Earlier:
    """Read the reports of a state root; ``now`` is wall time."""
    if not root.is_dir():
        return Earlier()
    heads = read_heads(root)
    estimates = estimates_from(heads, moment(now - ESTIMATE_AGE_S))
    previous, took = previous_of(heads)
    for head in heads:
        head.tasks = []
    return Earlier(estimates, previous, took, heads)


def estimates_of(root: Path, now: float) -> dict[str, float]:
    """Return seconds by task id and by module name: the median of the last 5 executed successes of each.

    ``now``: wall time; what is older than 90 days no longer counts.
    """
    return dict(earlier_runs(root, now).estimates)


def estimates_from(heads: Iterable[ReportHead], since: str = "") -> dict[str, float]:
    """Work out estimates from reports, newest first, that began after a moment."""
    known: dict[str, list[float]] = defaultdict(list)
    for head in heads:
        if head.started_at < since:
            break
        for task in head.tasks:
            if task.state != "succeeded" or task.origin != "executed" or task.duration_s is None:
                continue
            for name in (task.id, task.module) if task.id != task.module else (task.id,):
                durations = known[name]
                if len(durations) < RUNS_COUNTED:
                    durations.append(task.duration_s)
    return {name: _median(values) for name, values in known.items()}


def _median(values: list[float]) -> float:
    """Return the median of a few values; ``statistics`` takes 8 ms to load, and 2 µs for each call."""
    if len(values) == 1:
        return values[0]
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def previous_of(heads: Iterable[ReportHead]) -> tuple[PreviousRun | None, Mapping[str, float]]:
    """Return the latest succeeded run, and how long each of its executed tasks took (REP-05)."""
    for head in heads:
        if head.status == "succeeded":
            from towline.execution.report import PreviousRun  # a first run, which a person waits for, has none

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
    data = msgspec.json.encode(report)
    if len(report.tasks) <= INDENTED_TASKS:
        data = msgspec.json.format(data, indent=1)
    with temporary.open("wb") as file:
        file.write(data)
        file.write(b"\n")
    temporary.replace(path)
    return str(path)


def forget_old_runs(root: Path, keep: str, heads: Iterable[ReportHead]) -> None:
    """Remove the folders of runs whose reports fell out: of the 20 newest here, of the 200 newest beside (REP-04).

    A run without a report is not finished and stays, as does the latest of each pipeline, which may be
    gone on with. ``keep``: the run that ends now. ``heads``: the reports of this root, newest first, with or
    without that of this run.
    """
    earlier = [head for head in heads if head.run_id != keep]
    for head in earlier[REPORTS_KEPT - 1 :]:
        _remove(head.folder)
    if root.parent.name == ".towline":
        _forget_beyond_all(root.parent)


def _forget_beyond_all(folder: Path) -> None:
    """Remove the oldest runs of all pipelines of a folder; told by the files' times, for reading them all is slow."""
    by_pipeline: dict[Path, list[tuple[float, Path]]] = defaultdict(list)
    for file in folder.glob("*/runs/*/report.json"):
        with suppress(OSError):
            by_pipeline[file.parents[2]].append((file.stat().st_mtime, file.parent))
    if sum(map(len, by_pipeline.values())) <= REPORTS_KEPT_ALL:
        return
    runs = [run for found in by_pipeline.values() for run in sorted(found, reverse=True)[1:]]
    for _, run in sorted(runs, reverse=True)[REPORTS_KEPT_ALL - len(by_pipeline) :]:
        _remove(run)


def _remove(folder: str | Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def log_tail(folder: Path, task: str, lines: int = LOG_TAIL_LINES) -> tuple[str, ...]:
    """Read the last lines of a task's log in a run's folder; empty where there is none."""
    try:
        with (folder / "log" / f"{segment(task)}.txt").open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            found = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ()
    texts = [line.split(" ", 3)[-1] for line in found[1 if size > LOG_TAIL_BYTES else 0 :]]
    return tuple(texts[-lines:])
