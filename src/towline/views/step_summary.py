"""The summary that GitHub shows above a job's log (REP-14). Pure but for the one append."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from towline.views.words import counts_words, duration_words, reason_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from towline.execution.report import RunReport, TaskReport

VARIABLE: Final = "GITHUB_STEP_SUMMARY"
LIMIT_BYTES: Final = 900 * 1024
"""GitHub drops a summary above 1 MiB whole."""

_ESCAPES = str.maketrans(
    {"|": "\\|", "<": "&lt;", ">": "&gt;", "`": "\\`", "*": "\\*", "_": "\\_", "[": "\\[", "@": "@\u200b"}
)


def append_summary(report: RunReport, environ: Mapping[str, str]) -> str | None:
    """Append the summary where GitHub asks for one; returns what went wrong, for a warning (REP-14)."""
    file = environ.get(VARIABLE)
    if not file:
        return None
    try:
        with Path(file).open("a", encoding="utf-8", errors="replace") as stream:
            stream.write(summary(report))
    except OSError as error:
        return f"the step summary could not be written: {error}"
    return None


def summary(report: RunReport) -> str:
    """Write a run as Markdown, at most 900 KiB: what did not succeed first, then the rest as room is."""
    lines = [
        f"### {_text(report.pipeline)}: {report.status} in {duration_words(report.duration_s)}",
        "",
        counts_words(report.counts) or "no tasks",
        "",
        "| task | state | time | |",
        "|---|---|---:|---|",
    ]
    size = sum(len(line.encode()) + 1 for line in lines)
    troubled = sorted(report.tasks, key=lambda task: task.state == "succeeded")
    for shown, task in enumerate(troubled):
        line = _row(task)
        size += len(line.encode()) + 1
        if size > LIMIT_BYTES - 200:
            lines += ["", f"and {len(troubled) - shown:,} more tasks: towline show {report.run_id}"]
            break
        lines.append(line)
    return "\n".join(lines) + "\n\n"


def _row(task: TaskReport) -> str:
    why = task.error or (
        reason_words(task.reason, task.reason_text, task.blocked_by) if task.state != "succeeded" else ""
    )
    state = task.origin if task.origin in ("kept", "cached") else task.state.replace("_", " ")
    mark = f"**{state}**" if task.state in ("failed", "timed_out") else state
    return f"| {_text(task.id)} | {mark} | {duration_words(task.duration_s)} | {_text(why[:500])} |"


def _text(text: str) -> str:
    """Show a text of the run as text, never as markup."""
    return " ".join(text.split()).translate(_ESCAPES)
