"""``runs``, ``show`` and ``diff``: what ran before (REP-06)."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from towline.cli.failing import say
from towline.cli.results import write_json, write_result
from towline.cli.states import log_of, read_reports, roots
from towline.cli.unreported import find_unreported, task_named, unreported_in
from towline.errors.configuration import NothingHereError, UnknownNameError
from towline.identity import suggestion
from towline.views.final import final_lines, is_changed
from towline.views.streams import width_of
from towline.views.words import counts_words, duration_words, offload_words, size_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from towline.cli.states import Where
    from towline.execution.report import RunReport


def list_runs(where: Where, *, as_json: bool, limit: int) -> int:
    """List runs, newest first; a run that has no report yet is listed from its plan."""
    rows: list[dict[str, Any]] = []
    for root in roots(where):
        reports, warnings = read_reports(root)
        for warning in warnings:
            say(f"warning: {warning}")
        rows += [_row(report) for report in reports]
        unreported = unreported_in(root, {report.run_id for report in reports})
        rows += [] if unreported is None else [unreported.head]
    rows.sort(key=lambda row: row["started_at"], reverse=True)
    rows = rows[:limit]
    if as_json:
        write_json({"runs": rows})
        return 0
    width = max((len(row["run_id"]) for row in rows), default=0)
    lines = [
        f"{row['run_id']:<{width}}  {row['started_at'][:19].replace('T', ' ')}  {row['pipeline']}  {row['state']}"
        f"  {duration_words(row['duration_s'])}  {counts_words(row['counts'])}".rstrip()
        for row in rows
    ]
    write_result(lines or ["no runs"])
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


def show_run(run: str, task: str | None, where: Where, *, as_json: bool) -> int:
    """Show one run, or one task of it with its log; a run without a report is shown from its plan."""
    living = find_unreported(run, where)
    if living is not None and task is not None:
        return _write_task(*living.task(task), as_json=as_json)
    if living is not None:
        if as_json:
            write_json(living.json())
        else:
            write_result(living.lines())
        return 0
    report, root = find_report(run, where)
    if task is not None:
        return _show_task(report, root, task, as_json=as_json)
    if as_json:
        write_json(report)
        return 0
    write_result(final_lines(report, width_of(sys.stdout, os.environ), every_task=True))
    return 0


def _show_task(report: RunReport, root: Path, task: str, *, as_json: bool) -> int:
    shown = task_named(task, report.tasks, report.run_id)
    log = log_of(root, report.run_id, shown.id)
    if as_json:
        return _write_task(msgspec.to_builtins(shown), log, as_json=True)
    facts = msgspec.to_builtins(msgspec.structs.replace(shown, artifacts=(), offload=None))
    more = [f"offload: {offload_words(shown.offload)}"] if shown.offload is not None else []
    more += [f"artifact: {one.name}  {size_words(one.size_bytes)}  {one.digest}" for one in shown.artifacts]
    return _write_task(facts, log, more)


def _write_task(facts: dict[str, Any], log: str | None, more: Sequence[str] = (), *, as_json: bool = False) -> int:
    if as_json:
        write_json({"task": facts, "log": log})
        return 0
    said = log.rstrip("\n").split("\n") if log else ["(it wrote no log)"]
    write_result([*(f"{name}: {value}" for name, value in facts.items()), *more, "", *said])
    return 0


def diff_runs(before: str, after: str, where: Where, *, as_json: bool) -> int:
    """Compare two runs task by task."""
    first, _ = find_report(before, where)
    second, _ = find_report(after, where)
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
            if id in old and is_changed(old[id].duration_s, new[id].duration_s)
        ],
    }
    if as_json:
        write_json(data)
        return 0
    lines = [f"added: {id}" for id in data["added"]] + [f"gone: {id}" for id in data["gone"]]
    lines += [f"{one['task']}: {one['before']} -> {one['after']}" for one in data["state"]]
    lines += [
        f"{one['task']}: {duration_words(one['before_s'])} -> {duration_words(one['after_s'])}"
        for one in data["duration"]
    ]
    write_result(lines or ["no difference"])
    return 0


def find_report(run: str, where: Where) -> tuple[RunReport, Path]:
    """Find a run by its id, or the latest one.

    Raises:
        NothingHereError: No report is kept here.
        UnknownNameError: There is no such run; names the nearest.
    """
    found = [(report, root) for root in roots(where) for report in read_reports(root)[0]]
    found.sort(key=lambda one: one[0].started_at, reverse=True)
    if not found and run == "latest":
        raise NothingHereError(where.state or ".towline")
    if run == "latest":
        return found[0]
    for report, root in found:
        if report.run_id == run:
            return report, root
    known = ["latest", *(report.run_id for report, _ in found)]
    hint = suggestion(run, known) or "`towline runs` lists those that are kept."
    raise UnknownNameError("run", run, "this folder", hint)
