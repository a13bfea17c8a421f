"""``runs``, ``show`` and ``diff``: what ran before (REP-06)."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from towline.cli.failing import say
from towline.cli.results import write_json, write_result
from towline.cli.servers import elsewhere
from towline.cli.states import is_living, log_of, read_plan, read_reports, roots
from towline.errors.configuration import NothingHereError, UnknownNameError
from towline.identity import suggestion
from towline.planning.nesting import counted, under_their_module
from towline.views.final import final_lines, is_changed
from towline.views.streams import width_of
from towline.views.words import counts_words, duration_words, offload_words, reason_words, size_words

if TYPE_CHECKING:
    from pathlib import Path

    from towline.cli.states import Where
    from towline.execution.report import RunReport, TaskReport
    from towline.planning.records import PlanDocument


def list_runs(where: Where, *, as_json: bool, limit: int) -> int:
    """List runs, newest first; a run that has no report yet is listed from its plan."""
    rows: list[dict[str, Any]] = []
    for root in roots(where):
        reports, warnings = read_reports(root)
        for warning in warnings:
            say(f"warning: {warning}")
        rows += [_row(report) for report in reports]
        unreported = _unreported(root, {report.run_id for report in reports})
        rows += [] if unreported is None else [unreported[0]]
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


def _unreported(root: Path, reported: set[str]) -> tuple[dict[str, Any], PlanDocument] | None:
    """The run of the plan, when it has no report: it is running, or its process died."""
    server = elsewhere(root)
    if server is not None and server.run_id in reported:
        return None  # the server need not be there any more
    document = read_plan(root)
    if document is None or document.run_id in reported:
        return None
    row = {
        "run_id": document.run_id,
        "pipeline": document.pipeline,
        "state": _state_of(document, root),
        "exit_code": None,
        "started_at": document.owner.since if document.owner else document.created_at,
        "duration_s": None,
        "counts": _counts(document),
    }
    return row, document


def _state_of(document: PlanDocument, root: Path) -> str:
    """A run that ended says so itself; one that did not is running only while its process lives."""
    if document.run_state in ("succeeded", "failed", "cancelled"):
        return document.run_state
    return "running" if is_living(root) else "interrupted"


def _counts(document: PlanDocument) -> dict[str, int]:
    counts: dict[str, int] = {}
    for task in counted(document.tasks):
        counts[task.state] = counts.get(task.state, 0) + 1
    return counts


def show_run(run: str, task: str | None, where: Where, *, as_json: bool) -> int:
    """Show one run, or one task of it with its log; a run without a report is shown from its plan."""
    if task is None and _show_unreported(run, where, as_json=as_json):
        return 0
    report, root = find_report(run, where)
    if task is not None:
        return _show_task(report, root, task, as_json=as_json)
    if as_json:
        write_json(report)
        return 0
    write_result(final_lines(report, width_of(sys.stdout, os.environ), every_task=True))
    return 0


def _show_unreported(run: str, where: Where, *, as_json: bool) -> bool:
    """Show a run that is running, or died before its report; says whether it was one."""
    reported = {root: read_reports(root)[0] for root in roots(where)}
    newest = max((report.started_at for reports in reported.values() for report in reports), default="")
    for root, reports in reported.items():
        found = _unreported(root, {report.run_id for report in reports})
        if found is None:
            continue
        head, document = found
        if head["run_id"] != run and not (run == "latest" and head["started_at"] > newest):
            continue
        if as_json:
            rows = [{"id": one.id, "state": one.state, "reason": one.reason} for one in counted(document.tasks)]
            write_json(head | {"tasks": rows})
        else:
            write_result(_lines_of(head, document))
        return True
    return False


def _lines_of(head: dict[str, Any], document: PlanDocument) -> list[str]:
    """Write the rows of a plan whose run has no report, and how that stands."""
    width = max((len(one.id) for one in document.tasks), default=0)
    lines = []
    for one in under_their_module(counted(document.tasks)):
        why = reason_words(one.reason, one.reason_text, one.blocked_by)
        lines.append(f"{one.id:<{width}}  {one.state.replace('_', ' '):<9}  {why}".rstrip())
    lines += ["", f"{head['pipeline']} {head['run_id']} {head['state']}: {counts_words(head['counts'])}"]
    if head["state"] == "interrupted":
        lines.append("Its process is gone. Run it again to go on where it was.")
    return lines


def _show_task(report: RunReport, root: Path, task: str, *, as_json: bool) -> int:
    shown = _task(report, task)
    log = log_of(root, report.run_id, shown.id)
    if as_json:
        write_json({"task": msgspec.to_builtins(shown), "log": log})
        return 0
    facts = msgspec.to_builtins(msgspec.structs.replace(shown, artifacts=(), offload=None))
    lines = [f"{name}: {value}" for name, value in facts.items()]
    lines += [f"offload: {offload_words(shown.offload)}"] if shown.offload is not None else []
    lines += [f"artifact: {one.name}  {size_words(one.size_bytes)}  {one.digest}" for one in shown.artifacts]
    lines += ["", *(log.rstrip("\n").split("\n") if log else ["(it wrote no log)"])]
    write_result(lines)
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


def _task(report: RunReport, task: str) -> TaskReport:
    for same in (str, str.casefold):
        found = [one for one in report.tasks if same(one.id) == same(task)]
        if len(found) == 1:
            return found[0]
    known = [one.id for one in report.tasks]
    hint = suggestion(task, known) or f"`towline show {report.run_id}` lists them."
    raise UnknownNameError("task", task, f"run {report.run_id}", hint)
