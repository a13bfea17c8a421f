"""Plain lines: one per transition, no control codes; for pipes, CI and ``--plain`` (CTL-24, REP-10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from towline.views.screen import Screen, advance
from towline.views.words import count_words, counts_words, duration_words, reason_words, seconds_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.events.records import Event

STATUS_INTERVAL_S = 15.0
"""One status line this often while something moves (REP-12)."""


class PlainConsole:
    """Writes each transition and each line of output as it comes.

    A stream that cannot show a character shows a replacement; a closed one ends the printing, not the
    run (REP-13). Task output streams as ``task | text``.
    """

    def __init__(self, stream: TextIO, *, show_output: bool = True, grouped: bool = False) -> None:
        self._stream, self._show_output, self._grouped = stream, show_output, grouped
        self.screen = Screen()
        self._held: dict[str, list[str]] = {}
        self._closed = False
        self._shown_progress: dict[str, str] = {}

    def __call__(self, batch: Sequence[Event]) -> None:
        """Take a batch of events."""
        lines: list[str] = []
        for event in batch:
            before = self.screen.rows.get(event.task or "")
            state = before.state if before else None
            advance(self.screen, event)
            if event.kind in ("output", "log") and self._show_output:
                self._say(lines, event)
            elif event.kind == "task_state":
                self._transition(lines, event, state)
            elif event.kind == "progress":
                self._progress(lines, event)
            elif event.kind == "attempt":
                error = event.data.get("error") or ""
                lines.append(f"{clock_of(event.at)} {event.task} attempt {event.attempt} {event.data['state']} {error}")
            elif event.kind == "reconciled":
                lines += _reconciled(event)
        self.write(lines)

    def _transition(self, lines: list[str], event: Event, before: str | None) -> None:
        row = self.screen.rows.get(event.task or "")
        if row is None:
            return
        words = [clock_of(event.at), row.id, row.state.replace("_", " ")]
        if row.state == "running" and row.attempt:
            words.append(f"(attempt {row.attempt})")
        took = seconds_between(row.started_at, row.ended_at) if before == "running" else None
        if row.state in ("succeeded", "failed", "timed_out", "cancelled") and took is not None:
            words.append(f"in {duration_words(took)}")
        counted = count_words(row.done, row.total)
        if counted and row.state != "running":
            words.append(f"({counted} items)")
        why = row.error if row.state in ("failed", "timed_out") else None
        why = why or reason_words(row.reason, row.reason_text, row.blocked_by)
        if why:
            words.append(f"- {why}")
        held = self._held.pop(row.id, None) if row.state not in ("running", "queued") else None
        if held:
            lines += held
        lines.append(" ".join(words))

    def _say(self, lines: list[str], event: Event) -> None:
        level = event.data.get("level")
        mark = f"{level}: " if level and level not in ("info", "debug") else ""
        line = f"{event.task or 'towline'} | {mark}{event.data['text']}"
        if self._grouped and event.task is not None:
            self._held.setdefault(event.task, []).append(line)
        else:
            lines.append(line)

    def _progress(self, lines: list[str], event: Event) -> None:
        task = event.task or ""
        counted = count_words(event.data["done"], event.data.get("total"))
        slot = event.at[:17] + str(int(event.at[17:19]) // int(STATUS_INTERVAL_S))
        if self._shown_progress.get(task) != slot:
            self._shown_progress[task] = slot
            lines.append(f"{clock_of(event.at)} {task} running {counted}")

    def flush(self) -> None:
        """Write the output of tasks that never ended; nothing is lost with the run (REP-10)."""
        held, self._held = self._held, {}
        self.write([line for lines in held.values() for line in lines])

    def write(self, lines: Sequence[str]) -> None:
        """Write lines; after the stream was closed this does nothing."""
        if self._closed or not lines:
            return
        try:
            write_lines(self._stream, lines)
        except (BrokenPipeError, ValueError):
            self._closed = True


def write_lines(stream: TextIO, lines: Sequence[str]) -> None:
    """Write lines so that no character can fail and no control code passes through."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = "".join(_harmless(line) + "\n" for line in lines)
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def _harmless(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() or one == "\t" else repr(one)[1:-1] for one in line)


def clock_of(at: str) -> str:
    """The time of day of a moment: ``10:00:01``."""
    return at[11:19]


def _reconciled(event: Event) -> list[str]:
    lines = []
    for kind in ("changed", "stale", "added", "removed", "code_changed", "reset"):
        ids = event.data.get(kind)
        if ids:
            lines.append(f"{kind.replace('_', ' ')}: {', '.join(ids)}")
    kept = event.data.get("kept_count", len(event.data.get("kept", ())))
    return [*lines, f"kept: {kept} tasks"]


def heading(screen: Screen) -> str:
    """One line that says whose run this is and how it stands."""
    resumed = f", resumed from {screen.resumed_from}" if screen.resumed_from else ""
    return f"{screen.pipeline} {screen.run_id}{resumed}: {screen.run_state} - {counts_words(screen.counts)}"
