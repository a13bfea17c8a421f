"""The live view on a terminal: what runs, what failed, counts; logs scroll above it (CTL-24, REP-12)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from towline.clock import Clock, SystemClock, moment
from towline.views.colours import colour_wanted
from towline.views.drawing import ROWS_SHOWN, drawing
from towline.views.final import final_lines
from towline.views.plain import clock_of, reconciled_lines
from towline.views.screen import Screen, advance
from towline.views.streams import fitted, harmless, silence
from towline.views.words import clipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from towline.events.records import Event
    from towline.execution.look import RunLook
    from towline.execution.report import RunReport

REDRAWS_PER_S = 10
LINE_LIMIT = 4_000
"""Longest line of a task that is shown; its log has all of it."""

ETA_INTERVAL_S, ETA_INTERVAL_LARGE_S = 1.0, 5.0
ETA_LARGE = 10_000
ETA_LIMIT = 20_000
"""Above this many tasks no time is forecast: a simulation would hold the run for longer than a second."""


class LiveConsole:
    """Draws the run at the bottom of the terminal; module output scrolls above and never tears it."""

    def __init__(self, out: TextIO, environ: Mapping[str, str], clock: Clock | None = None) -> None:
        colour = colour_wanted(environ, is_terminal=True)
        self._console = Console(file=out, no_color=not colour, highlight=False, markup=False, emoji=False)
        self._out = out
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self.screen = Screen()
        self._is_live = False
        self._is_closed = False
        self._look: RunLook | None = None
        self._eta = ""
        self._eta_at = -ETA_INTERVAL_LARGE_S
        self._waits: dict[str, str] = {}
        self._live = Live(
            get_renderable=self._draw,
            console=self._console,
            refresh_per_second=REDRAWS_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def greet(self, text: str) -> None:
        """Write the first line of the run."""
        self._print([Text(text)])

    def look(self, look: RunLook) -> None:
        """Take the door to ask for what tasks wait for, and for the time left."""
        self._look = look

    def take(self, batch: Sequence[Event]) -> None:
        """Fold a batch and print what scrolls above the view."""
        above: list[Text] = []
        with self._lock:
            for event in batch:
                advance(self.screen, event)
                above += self._lines_of(event)
        if not self._is_live and self.screen.rows and not self._is_closed:
            self._is_live = True
            try:
                self._live.start()
            except OSError:
                silence(self._out)
        self._print(above)

    def _lines_of(self, event: Event) -> list[Text]:
        if event.kind in ("output", "log"):
            level = event.data.get("level", "")
            style = "red" if level in ("error", "critical") else "yellow" if level == "warning" else ""
            text = event.data["text"]
            return [Text.assemble((f"{event.task or 'towline'} | ", "dim"), (clipped(text, LINE_LIMIT), style))]
        if event.kind == "task_state" and event.data["to"] in ("failed", "timed_out"):
            row = self.screen.rows.get(event.task or "")
            what = f"{event.task} {event.data['to'].replace('_', ' ')} - {row.error if row else ''}"
            return [Text(clipped(f"{clock_of(event.at)} {what}", LINE_LIMIT), "red")]
        if event.kind == "reconciled":
            return [Text(clipped(line, LINE_LIMIT)) for line in reconciled_lines(event.data)]
        return []

    def tick(self) -> None:
        """Ask the run what waits for what, and for the time left: each second, or 5 above 10,000 tasks (CTL-20)."""
        if self._look is None:
            return
        rows = self.screen.rows
        if len(rows) <= ROWS_SHOWN:
            waiting = [row.id for row in rows.values() if row.state in ("pending", "queued") and not row.is_join]
            self._waits = {task: self._look.waits_for(task) for task in waiting}
        now = self._clock.monotonic()
        interval = ETA_INTERVAL_S if len(rows) <= ETA_LARGE else ETA_INTERVAL_LARGE_S
        if now - self._eta_at >= interval and len(rows) <= ETA_LIMIT:
            self._eta = str(self._look.eta())
            spent = self._clock.monotonic() - now
            self._eta_at = now + 20 * spent  # a forecast takes at most a twentieth of the run's time

    def mask(self, value: str) -> None:
        """A terminal has no viewer to tell."""

    def close(self) -> None:
        """Give the terminal back; harmless twice."""
        self._is_closed = True
        if self._is_live:
            self._is_live = False
            try:
                self._live.stop()
            except OSError:
                silence(self._out)

    def finish(self, report: RunReport, next_steps: Sequence[str] = ()) -> None:
        """Write the final table."""
        self.close()
        self._print([Text(line) for line in final_lines(report, self._console.width, next_steps=next_steps)])

    def _print(self, lines: Sequence[Text]) -> None:
        if not lines:
            return
        try:
            self._console.print(Text("\n").join(self._fitted(line) for line in lines), soft_wrap=True)
        except OSError:  # the terminal is gone; the run goes on (REP-13)
            silence(self._out)

    def _draw(self) -> Group:
        with self._lock:
            width, height = self._console.width, self._console.height
            lines = drawing(self.screen, moment(self._clock.now()), width, height, eta=self._eta, waits=self._waits)
        return Group(*(self._fitted(line) for line in lines))

    def _fitted(self, line: Text) -> Text:
        """Leave nothing in a line that the terminal cannot show, or would obey."""
        if not line.plain.isprintable():
            line.plain = harmless(line.plain)
        if not line.plain.isascii():
            line.plain = fitted(line.plain, self._console.encoding)
        return line
