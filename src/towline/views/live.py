"""The live view on a terminal: what runs, what failed, counts; logs above (CTL-24, REP-12)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from towline.clock import SystemClock, moment
from towline.views.final import final_lines
from towline.views.plain import clock_of
from towline.views.screen import Row, Screen, advance
from towline.views.words import clipped, count_words, counts_words, duration_words, reason_words, seconds_between

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from towline.events.records import Event
    from towline.execution.report import RunReport

REDRAWS_PER_S = 10
ROWS_SHOWN = 50
"""Above this many tasks only those that run or failed are drawn (REP-12)."""

BAR_WIDTH = 20
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


class LiveConsole:
    """Draws the run at the bottom of the terminal; module output scrolls above and never tears it."""

    def __init__(self, out: TextIO, environ: Mapping[str, str]) -> None:
        self._console = Console(file=out, no_color=bool(environ.get("NO_COLOR")), highlight=False, soft_wrap=False)
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self.screen = Screen()
        self._live = Live(
            get_renderable=self._draw, console=self._console, refresh_per_second=REDRAWS_PER_S, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        )
        self._is_live = False

    def greet(self, text: str) -> None:
        """Say what the start does with an earlier plan."""
        self._console.print(Text(text))

    def take(self, batch: Sequence[Event]) -> None:
        """Fold a batch and print what scrolls above the view."""
        above: list[Text] = []
        with self._lock:
            for event in batch:
                advance(self.screen, event)
                line = self._line_of(event)
                if line is not None:
                    above.append(line)
        if not self._is_live and self.screen.rows:
            self._is_live = True
            self._live.start()
        if above:
            self._console.print(Text("\n").join(above))

    def _line_of(self, event: Event) -> Text | None:
        if event.kind in ("output", "log"):
            level = event.data.get("level", "")
            style = "red" if level == "error" else "yellow" if level == "warning" else ""
            head = event.task or "towline"
            text = event.data["text"]
            return Text.assemble((f"{head} | ", "dim"), (clipped(text, 4_000), style))
        if event.kind == "task_state" and event.data["to"] in ("failed", "timed_out"):
            row = self.screen.rows.get(event.task or "")
            return Text(f"{clock_of(event.at)} {event.task} {event.data['to'].replace('_', ' ')} - {row.error if row else ''}", "red")
        return None

    def close(self) -> None:
        """Give the terminal back; harmless twice."""
        if self._is_live:
            self._is_live = False
            self._live.stop()

    def finish(self, report: RunReport) -> None:
        """Write the final table."""
        self.close()
        for line in final_lines(report, self._console.width):
            self._console.print(Text(line), soft_wrap=True)

    # -------------------------------------------------------------- drawing

    def _draw(self) -> Any:
        with self._lock:
            now = moment(self._clock.now())
            width, height = self._console.width, self._console.height
            rows = self._rows(max(3, height - 6))
            lines = [self._row(row, now, width) for row in rows]
            hidden = len(self.screen.rows) - len(rows)
            if hidden > 0:
                lines.append(Text(f"  … {hidden:,} more tasks", "dim"))
            return Group(*lines, self._footer(now, width))

    def _rows(self, limit: int) -> list[Row]:
        """Choose the rows to draw: all of a small plan, else what runs and what failed."""
        rows = self.screen.rows
        if len(rows) <= min(limit, ROWS_SHOWN):
            return list(rows.values())
        chosen = [rows[task] for task in self.screen.failed[-5:] if task in rows]
        for row in rows.values():
            if row.state == "running" and not row.is_join:
                chosen.append(row)
                if len(chosen) >= limit:
                    break
        return chosen[:limit]

    def _row(self, row: Row, now: str, width: int) -> Text:
        id_width = max(12, min(36, width // 3))
        state = "cancelling" if row.is_cancelling and row.state == "running" else row.state.replace("_", " ")
        text = Text.assemble(
            (f"{MARKS[row.state]} ", STYLES[row.state]),
            f"{clipped(row.id, id_width):<{id_width}} ",
            (f"{state:<10}", STYLES[row.state]),
        )
        text.append(" " + clipped(self._details(row, now), max(0, width - id_width - 14)))
        return text

    def _details(self, row: Row, now: str) -> str:
        parts: list[str] = []
        if row.state == "running":
            elapsed = seconds_between(row.started_at, now) or 0.0
            if row.done is not None and row.total:
                filled = min(BAR_WIDTH, BAR_WIDTH * row.done // row.total)
                parts.append("#" * filled + "." * (BAR_WIDTH - filled))
            counted = count_words(row.done, row.total)
            if counted:
                parts.append(counted)
                if elapsed > 0 and row.done:
                    parts.append(f"{row.done / elapsed:,.0f}/s")
            parts.append(duration_words(elapsed))
            if row.attempt > 1:
                parts.append(f"attempt {row.attempt}")
            saved = seconds_between(row.saved_at, now)
            if saved is not None:
                parts.append(f"saved {duration_words(max(0.0, saved))} ago")
        elif row.state in ("succeeded", "failed", "timed_out"):
            parts.append(duration_words(seconds_between(row.started_at, row.ended_at)))
            if row.state != "succeeded":
                parts.append(row.error or "")
            elif row.done is not None:
                parts.append(f"{row.done:,} items")
        else:
            parts.append(reason_words(row.reason, row.reason_text, row.blocked_by))
        return "  ".join(part for part in parts if part)

    def _footer(self, now: str, width: int) -> Text:
        screen = self.screen
        total = sum(screen.counts.values())
        done = sum(screen.counts.get(state, 0) for state in ("succeeded", "skipped", "failed", "timed_out", "cancelled"))
        took = duration_words(seconds_between(screen.started_at, now))
        found = f", {screen.findings['blocking']} blocking findings" if screen.findings.get("blocking") else ""
        line = f"{screen.pipeline} {screen.run_id}  {done:,}/{total:,}  {counts_words(screen.counts)}{found}  {took}"
        return Text(clipped(line, width), "bold")


