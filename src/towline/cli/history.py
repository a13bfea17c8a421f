"""``runs``, ``show`` and ``diff``: what ran before (REP-06)."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from towline.cli.failing import say
from towline.cli.states import log_of, read_plan, read_reports, roots
from towline.errors.configuration import ConfigurationError
from towline.identity import suggestion
from towline.views.consoles import width_of
from towline.views.final import final_lines
from towline.views.plain import write_lines
from towline.views.words import counts_words, duration_words

if TYPE_CHECKING:
    from pathlib import Path

    from towline.execution.report import RunReport, TaskReport

SLOWER_SHARE, SLOWER_S = 0.2, 1.0
"""A duration counts as changed above 20 % and 1 s (REP-06)."""


def list_runs(state: str | None, *, as_json: bool, limit: int) -> int:
    """List runs, newest first; a run that has no report yet is listed from its plan."""
    rows: list[dict[str, Any]] = []
    for root in roots(state):
        reports, warnings = read_reports(root)
        for warning in warnings:
            say(f"warning: {warning}")
        rows += [_row(report) for report in reports]
        rows += _unreported(root, {report.run_id for report in reports})
    rows.sort(key=lambda row: row["started_at"], reverse=True)
    rows = rows[:limit]
    if as_json:
        _write_json({"runs": rows})
        return 0
    width = max((len(row["run_id"]) for row in rows), default=0)
    lines = [
        f"{row['run_id']:<{width}}  {row['started_at'][:19].replace('T', ' ')}  {row['pipeline']}  {row['state']}"
        f"  {duration_words(row['duration_s'])}  {counts_words(row['counts'])}".rstrip()
        for row in rows
    ]
    write_lines(sys.stdout, lines or ["no runs"])
    return 0


def _row(report: RunReport) -> dict[str, Any]:
    return {
        "run_id": report.run_id,
        "pipeline": report.pipeline,
        "state": report.status,
        "exit_code": report.exit_code,
        "started_at": report.started_at,
        "duration_s": report.duration_s,
        "counts": report.counts,
    }


def _unreported(root: Path, reported: set[str]) -> list[dict[str, Any]]:
    """The run of the plan, when it has no report: it is running, or its process died."""
    document = read_plan(root)
    if document is None or document.run_id in reported:
        return []
    counts: dict[str, int] = {}
    for task in document.tasks:
        if not task.join:
            counts[task.state] = counts.get(task.state, 0) + 1
    return [
        {
            "run_id": document.run_id,
            "pipeline": document.pipeline,
            "state": f"{document.run_state} or interrupted",
            "exit_code": None,
            "started_at": document.updated_at,
            "duration_s": None,
            "counts": counts,
        }
    ]


def show_run(run: str, task: str | None, state: str | None, *, as_json: bool) -> int:
    """Show one run, or one task of it with its log."""
    report, root = _find(run, state)
    if task is not None:
        return _show_task(report, root, task, as_json=as_json)
    if as_json:
        _write_json(report)
        return 0
    write_lines(sys.stdout, final_lines(report, width_of(sys.stdout, os.environ)))
    return 0


def _show_task(report: RunReport, root: Path, task: str, *, as_json: bool) -> int:
    shown = _task(report, task)
    log = log_of(root, report.run_id, shown.id)
    if as_json:
        _write_json({"task": msgspec.to_builtins(shown), "log": log})
        return 0
    lines = [f"{name}: {value}" for name, value in msgspec.to_builtins(shown).items()]
    lines += ["", *(log.rstrip("\n").split("\n") if log else ["(it wrote no log)"])]
    write_lines(sys.stdout, lines)
    return 0


def diff_runs(before: str, after: str, state: str | None, *, as_json: bool) -> int:
    """Compare two runs task by task."""
    first, _ = _find(before, state)
    second, _ = _find(after, state)
    old, new = ({task.id: task for task in report.tasks} for report in (first, second))
    data: dict[str, Any] = {
        "added": sorted(new.keys() - old.keys()),
        "gone": sorted(old.keys() - new.keys()),
        "state": [
            {"task": id, "before": old[id].state, "after": new[id].state}
            for id in new
            if id in old and old[id].state != new[id].state
        ],
        "duration": [
            {"task": id, "before_s": old[id].duration_s, "after_s": new[id].duration_s}
            for id in new
            if id in old and _is_changed(old[id].duration_s, new[id].duration_s)
        ],
    }
    if as_json:
        _write_json(data)
        return 0
    lines = [f"added: {id}" for id in data["added"]] + [f"gone: {id}" for id in data["gone"]]
    lines += [f"{one['task']}: {one['before']} -> {one['after']}" for one in data["state"]]
    lines += [
        f"{one['task']}: {duration_words(one['before_s'])} -> {duration_words(one['after_s'])}"
        for one in data["duration"]
    ]
    write_lines(sys.stdout, lines or ["no difference"])
    return 0


def _is_changed(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return False
    change = abs(after - before)
    return change > SLOWER_S and change > SLOWER_SHARE * before


def _find(run: str, state: str | None) -> tuple[RunReport, Path]:
    """Find a run by its id, or the latest one.

    Raises:
        ConfigurationError: There is no such run; names the nearest.
    """
    found = [(report, root) for root in roots(state) for report in read_reports(root)[0]]
    found.sort(key=lambda one: one[0].started_at, reverse=True)
    if run == "latest" and found:
        return found[0]
    for report, root in found:
        if report.run_id == run:
            return report, root
    known = [report.run_id for report, _ in found]
    raise ConfigurationError("RUN", run, "given", f"no report of such a run is kept here.{suggestion(run, known)}".rstrip("."))


def _task(report: RunReport, task: str) -> TaskReport:
    for one in report.tasks:
        if one.id == task:
            return one
    known = [one.id for one in report.tasks]
    raise ConfigurationError("--task", task, "flag", f"{report.run_id} has no such task.{suggestion(task, known)}".rstrip("."))


def _write_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
