"""The lines of the live view for one moment, from the screen alone. Pure; its cost does not grow with the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from towline.planning.nesting import under_their_module
from towline.views.words import (
    clipped,
    count_words,
    counts_words,
    duration_words,
    offload_words,
    reason_words,
    seconds_between,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from towline.views.screen import Row, Screen

ROWS_SHOWN = 50
"""Above this many tasks only those that run or failed are drawn (REP-12)."""

FAILED_SHOWN = 5
BAR_WIDTH = 20
ECHO_WIDTH = 3
"""Left free in the last line, where a terminal echoes ``^C``: if that wrapped, the next redraw would be torn."""

STYLES = {
    "running": "cyan",
    "succeeded": "green",
    "failed": "bold red",
    "timed_out": "bold red",
    "skipped": "yellow",
    "cancelled": "yellow",
    "pending": "dim",
    "queued": "dim",
}
MARKS = {
    "running": ">",
    "succeeded": "+",
    "failed": "x",
    "timed_out": "x",
    "skipped": "-",
    "cancelled": "-",
    "pending": ".",
    "queued": ".",
}
"""Colour is never the only sign."""


def drawing(
    screen: Screen, now: str, width: int, height: int, *, eta: str = "", waits: Mapping[str, str] | None = None
) -> list[Text]:
    """Draw a screen.

    Args:
        screen: What the events said so far.
        now: UTC text, for how long things take.
        width, height: Of the terminal; the drawing is at least three lines lower than it.
        eta: Words for the time left, empty when it is not known.
        waits: By task id, what it waits for.
    """
    phases = _phase_strip(screen, width)
    limit = max(3, height - 6 - len(phases))
    rows = _rows(screen, limit)
    lines = [_row(row, now, width, (waits or {}).get(row.id, "")) for row in rows]
    hidden = len(screen.rows) - len(rows)
    if hidden > 0:
        lines.append(Text(clipped(f"  … {hidden:,} more tasks", width), "dim"))
    return [*lines, *phases, _footer(screen, now, width, eta)]


def _rows(screen: Screen, limit: int) -> list[Row]:
    """Choose the rows to draw: all of a small plan, else what failed last and what runs."""
    rows = screen.rows
    if len(rows) <= min(limit, ROWS_SHOWN):
        return list(under_their_module(rows.values()))
    chosen = [rows[task] for task in screen.failed[-FAILED_SHOWN:] if task in rows]
    for task in screen.running:
        if len(chosen) >= limit:
            break
        chosen.append(rows[task])
    return chosen[:limit]


def _row(row: Row, now: str, width: int, wait: str) -> Text:
    id_width = max(12, min(36, width // 3))
    state = row.state.replace("_", " ")
    if row.is_cancelling and row.state == "running":
        state = "cancelling"
    elif row.is_gate and row.reason == "blocked":
        state = "blocked"
    text = Text.assemble(
        (f"{MARKS[row.state]} ", STYLES[row.state]),
        f"{clipped(row.id, id_width):<{id_width}} ",
        (f"{state:<10}", STYLES[row.state]),
    )
    rest = width - id_width - 15
    if rest > 0:
        text.append(" " + clipped(details(row, now, wait, rest), rest))
    return text


def details(row: Row, now: str, wait: str = "", width: int = 100) -> str:
    """Say what is known of a task at one moment: progress, rate, time, saves, or why it stands still (CTL-16).

    width: columns that there are; a bar is drawn where it leaves room for numbers.
    """
    if row.state in ("pending", "queued"):
        return wait or reason_words(row.reason, row.reason_text, row.blocked_by)
    if row.state == "running":
        return "  ".join(part for part in _running(row, now, width) if part)
    if row.state in ("succeeded", "failed", "timed_out"):
        took = duration_words(seconds_between(row.started_at, row.ended_at))
        if row.state != "succeeded":
            what = row.error or ""
        elif row.reason:
            what = reason_words(row.reason, row.reason_text, row.blocked_by)
        else:
            what = f"{row.done:,} items" if row.done is not None else offload_words(row.offload)
        return "  ".join(part for part in (took, what) if part)
    return reason_words(row.reason, row.reason_text, row.blocked_by)


def _running(row: Row, now: str, width: int) -> list[str]:
    parts: list[str] = []
    elapsed = seconds_between(row.started_at, now) or 0.0
    counted = count_words(row.done, row.total)
    if row.done is not None and row.total and width >= 50:
        filled = min(BAR_WIDTH, BAR_WIDTH * row.done // row.total)
        parts.append("#" * filled + "." * (BAR_WIDTH - filled))
    if counted:
        parts.append(counted)
        if row.done and elapsed > 0:
            parts.append(f"{row.done / elapsed:,.0f}/s")
    parts.append(duration_words(elapsed))
    if row.done and row.total and elapsed > 0 and row.done < row.total:
        parts.append(f"{duration_words(elapsed / row.done * (row.total - row.done))} left")
    if row.attempt > 1:
        parts.append(f"attempt {row.attempt}")
    if row.worker and row.worker != "local":
        parts.append(f"on {row.worker}")
    parts.append(_saves(row, now))
    return parts


def _saves(row: Row, now: str) -> str:
    ago, then = seconds_between(row.saved_at, now), seconds_between(now, row.next_save_at)
    if ago is None:
        return ""
    coming = f", next in {duration_words(then)}" if then is not None and then > 0 else ""
    return f"saved {duration_words(max(0.0, ago))} ago{coming}"


def _phase_strip(screen: Screen, width: int) -> list[Text]:
    """One line of the phases with how much of each is done; none for a plan without phases (CTL-18)."""
    if not screen.phases:
        return []
    current = screen.current_phase()
    words = []
    for phase, (done, total) in screen.phases.items():
        word = f"{phase} {done:,}/{total:,}"
        words.append(f"[{word}]" if phase == current else word)
    return [Text(clipped(" > ".join(words), width), "dim")]


def _footer(screen: Screen, now: str, width: int, eta: str) -> Text:
    took = duration_words(seconds_between(screen.started_at, now))
    blocking = screen.findings.get("blocking")
    parts = [
        f"{screen.pipeline} {screen.done:,}/{screen.total:,}",
        took,
        f"left {eta}" if eta else "",
        counts_words(screen.counts),
        f"{blocking} blocking findings" if blocking else "",
        screen.run_id,
    ]
    return Text(clipped("  ".join(part for part in parts if part), width - ECHO_WIDTH), "bold")
