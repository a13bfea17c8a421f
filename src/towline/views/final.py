"""The table at the end of a run: every task, then what failed, once (REP-07, CTL-23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.planning.nesting import under_their_module
from towline.views.words import clipped, count_words, counts_words, duration_words, offload_words, reason_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from towline.execution.report import RunReport, TaskReport

ROWS_SHOWN = 200
"""Above this many tasks only the uncommon ones are listed one by one (REP-12)."""

TRACEBACK_LINES = 20
BETWEEN_CAUSES = ("The above exception was", "During handling of the above")
MODULES_SHOWN = 5
MARKS = {
    "succeeded": "ok",
    "failed": "FAILED",
    "timed_out": "TIMED OUT",
    "skipped": "skipped",
    "cancelled": "cancelled",
    "pending": "pending",
    "queued": "queued",
    "running": "running",
}


SLOWER_SHARE, SLOWER_S = 0.2, 1.0
"""A duration counts as changed above 20 % and 1 s (REP-06)."""


def final_lines(
    report: RunReport, width: int, *, with_log: bool = True, every_task: bool = False, next_steps: Sequence[str] = ()
) -> list[str]:
    """Write the end of a run for people: the table is at most ``width`` columns wide.

    ``with_log``: repeat the last lines that the root failure wrote; not where they stand just above.
    ``next_steps``: lines that say how to go on. ``every_task``: list those of a large run too that simply succeeded.
    """
    lines = ["", *_table(report, width, every_task=every_task), ""]
    lines += _failures(report, width, with_log=with_log)
    lines += _blocked(report, width)
    lines += _unmet(report)
    lines += [f"warning: {warning}" for warning in report.warnings]
    lines += next_steps
    lines.append(_verdict(report))
    if report.path:
        lines.append(f"report: {report.path}")
    return lines


def _table(report: RunReport, width: int, *, every_task: bool) -> list[str]:
    shown: Sequence[TaskReport] = report.tasks
    left_out = 0
    if len(shown) > ROWS_SHOWN and not every_task:
        shown = [task for task in shown if task.state != "succeeded" and task.reason not in ("dependency_failed",)]
        shown = shown[:ROWS_SHOWN]
        left_out = len(report.tasks) - len(shown)
    shown = list(under_their_module(shown))
    standing = _join_standings(report.tasks)
    id_width = min(max((len(task.id) for task in shown), default=4), max(16, width * 2 // 5))
    lines = [_row(task, id_width, width, standing.get(task.id)) for task in shown]
    if left_out:
        more = f"… and {left_out:,} more tasks" if shown else f"{left_out:,} tasks"
        lines.append(f"{more}: towline show {report.run_id}")
    return lines


def _join_standings(tasks: Iterable[TaskReport]) -> dict[str, tuple[int, int, bool]]:
    """Count, by ``each`` module, the tasks that succeeded and all of them; and whether all were kept."""
    standings: dict[str, tuple[int, int, bool]] = {}
    for task in tasks:
        if task.id != task.module:
            done, total, kept = standings.get(task.module, (0, 0, True))
            standings[task.module] = done + (task.state == "succeeded"), total + 1, kept and task.origin == "kept"
    return standings


def _row(task: TaskReport, id_width: int, width: int, standing: tuple[int, int, bool] | None = None) -> str:
    """``standing``: of an ``each`` module, which has no body of its own."""
    done, total, all_kept = standing or (task.done, task.total, False)
    mark = MARKS[task.state]
    if task.origin == "kept" or all_kept:
        mark = "kept"
    elif task.gate and task.reason == "blocked":
        mark = "BLOCKED"
    took = duration_words(task.duration_s)
    counted = count_words(done, total)
    why = "" if task.state == "succeeded" and task.origin != "cached" else _why(task)
    before = f"was {duration_words(task.previous_s)}" if is_changed(task.previous_s, task.duration_s) else ""
    details = ", ".join(one for one in (counted, before, why, offload_words(task.offload)) if one)
    line = f"{clipped(task.id, id_width):<{id_width}}  {mark:<9}  {took:>11}  {details}"
    return clipped(line.rstrip(), width)


def _why(task: TaskReport) -> str:
    if task.state in ("failed", "timed_out"):
        return (task.error or "") + (" (ignored)" if task.ignored else "")
    return reason_words(task.reason, task.reason_text, task.blocked_by)


def is_changed(before_s: float | None, after_s: float | None) -> bool:
    """Whether a duration differs enough from an earlier one to be worth a word (REP-06)."""
    if before_s is None or after_s is None:
        return False
    change = abs(after_s - before_s)
    return change > SLOWER_S and change > SLOWER_SHARE * before_s


def _failures(report: RunReport, width: int, *, with_log: bool) -> list[str]:
    lines: list[str] = []
    for number, failure in enumerate(report.failures):
        what = "failed" if failure.state == "failed" else "timed out"
        label = "first failure" if number == 0 else "also"
        where = f" on {failure.worker_id}" if failure.worker_id else ""
        tried = f" (attempt {failure.attempt}{where})" if failure.attempt else ""
        lines.append(f"{label}: {failure.task} {what}{tried}")
        kind = failure.error_type.rpartition(".")[2]
        first, *rest = failure.text.splitlines() or [""]
        lines.append(f"    {kind}: {first}" if first else f"    {kind}")
        lines += [f"    {line}" for line in rest]
        lines += [f"    {line}" for line in own_lines(failure.traceback)]
        lines += [f"    note: {clipped(note, max(width, 40))}" for note in failure.notes]
        if number == 0 and with_log and failure.log_tail:
            lines.append(
                f"  the last lines of its log (all of it: towline show {report.run_id} --task {_quoted(failure.task)})"
            )
            lines += [f"    {line}" for line in failure.log_tail]
    joins = _join_standings(report.tasks)  # their tasks are counted instead (PLAN-62)
    cascades = sum(
        1 for task in report.tasks if task.reason in ("dependency_failed", "pipeline_failed") and task.id not in joins
    )
    if cascades:
        more = "1 more task" if cascades == 1 else f"{cascades:,} more tasks"
        lines.append(f"{more} did not run because of that")
    return lines


def _blocked(report: RunReport, width: int) -> list[str]:
    lines: list[str] = []
    if report.status != "blocked":
        return lines
    lines += [
        f"blocked: {task.id} - {task.reason_text}" for task in report.tasks if task.reason == "blocked" and task.gate
    ]
    shown = [finding for finding in report.findings if finding.severity == "blocking"]
    for finding in shown[:10]:
        text = f"    {finding.code}: {finding.message}"
        lines.append(clipped(text, max(width, 40)))
        if finding.suggested_action:
            lines.append(clipped(f"        -> {finding.suggested_action}", max(width, 40)))
    if len(shown) > 10:
        lines.append(f"    … and {len(shown) - 10:,} more: towline show {report.run_id}")
    lines.append("Act on the findings, then run again with --resume: nothing that is done is repeated.")
    return lines


def _unmet(report: RunReport) -> list[str]:
    """Say what a machine that runs alone could not do: its run has succeeded all the same (RUN-15)."""
    unmet = [task for task in report.tasks if task.reason == "requirement_unmet"]
    if not unmet:
        return []
    ids = {task.id for task in unmet}
    after = sum(1 for task in report.tasks if task.reason == "dependency_skipped" and task.blocked_by in ids)
    one = len(unmet) == 1
    head = "1 task was skipped" if one else f"{len(unmet):,} tasks were skipped"
    if after:
        head += f", and {after:,} that {'needs' if after == 1 else 'need'} {'it' if one else 'them'}"
    by_module = {task.module: task.reason_text for task in unmet}
    named = [f"{module} {text}" for module, text in list(by_module.items())[:MODULES_SHOWN]]
    more = f"; and {len(by_module) - MODULES_SHOWN:,} more" if len(by_module) > MODULES_SHOWN else ""
    return [
        f"{head}, for want of what {'it requires' if one else 'they require'}: {'; '.join(named)}{more}",
        "    --capability NAME declares what this machine has; a run with workers fails where no worker has it",
    ]


def _verdict(report: RunReport) -> str:
    took = duration_words(report.duration_s)
    before = report.previous
    if report.status == "succeeded" and before is not None and is_changed(before.duration_s, report.duration_s):
        took += f" ({before.run_id} took {duration_words(before.duration_s)})"
    return f"{report.pipeline} {report.run_id} {report.status} in {took}: {counts_words(report.counts)}"


def _quoted(task: str) -> str:
    """Write a task id as a shell takes it."""
    return task if task.replace(".", "").replace("-", "").replace("_", "").isalnum() else f"'{task}'"


def own_lines(traceback: str) -> Sequence[str]:
    """Keep the frames of a traceback that are the user's own, the last 20 lines, and say how many are left out (REP-07)."""
    from towline.serialization.frames import is_own_frame  # most runs have no failure to show

    kept: list[str] = []
    skipping = False
    for line in traceback.splitlines():
        if line.startswith("  File "):
            skipping = not is_own_frame(line)
        elif not line.startswith(" "):
            skipping = line.startswith("Traceback")
        if not skipping:
            kept.append(line)
    last = kept[-TRACEBACK_LINES:]
    while len(last) < len(kept) and (not last[0].strip() or last[0].startswith(BETWEEN_CAUSES)):
        last.pop(0)  # begin with an error, not between two
    left_out = len(kept) - len(last)
    return [f"… {left_out:,} earlier lines are left out: the report has them", *last] if left_out else last
