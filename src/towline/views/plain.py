"""Plain lines: one per transition, no control codes; for pipes, CI and ``--plain`` (CTL-24, REP-10)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TextIO

from towline.clock import Clock, SystemClock
from towline.views import ci_hosts
from towline.views.colours import coloured
from towline.views.held_output import HeldOutput
from towline.views.screen import Screen, advance
from towline.views.streams import harmless, write_raw
from towline.views.words import count_words, counts_words, duration_words, reason_words, seconds_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from towline.events.records import Event
    from towline.views.ci_hosts import CiHost
    from towline.views.held_output import Piece

STATUS_INTERVAL_S = 15.0
"""One status line this often while something moves (REP-12)."""


class PlainConsole:
    """Writes each transition, and each line of output as ``task | text``; on CI, output in one piece per task.

    ``host``: the CI system whose folds are used and whose commands are defused; ``None`` streams.
    ``defuse``: ``False`` lets lines of bodies steer the host (``Options(ci_commands="pass")``).
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        host: CiHost | None = None,
        defuse: bool = True,
        colour: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.screen = Screen()
        self.host = host
        self._stream, self._defuse, self._colour = stream, defuse, colour
        self._clock: Clock = clock or SystemClock()
        self._held = HeldOutput()
        self._groups = 0
        self._closed = False
        self._status_at = self._clock.monotonic()
        self._status = ""

    def __call__(self, batch: Sequence[Event]) -> None:
        """Take a batch of events."""
        lines: list[str] = []
        for event in batch:
            before = self.screen.rows.get(event.task or "")
            state = before.state if before else None
            advance(self.screen, event)
            if event.kind in ("output", "log"):
                self._say(lines, event)
            elif event.kind == "task_state":
                self._transition(lines, event, state)
            elif event.kind == "attempt":
                error = event.data.get("error") or ""
                state = event.data["state"]
                lines.append(f"{clock_of(event.at)} {event.task} attempt {event.attempt} {state} {error}".rstrip())
            elif event.kind == "reconciled":
                lines += reconciled_lines(event.data)
            elif event.kind == "cancel_requested":
                lines.append(f"{clock_of(event.at)} cancelling")
        self.write(lines)

    def tick(self) -> None:
        """Write what became due by time alone: a status line each 15 s if it changed, output held for 60 s."""
        now = self._clock.monotonic()
        for piece in self._held.due(now):
            self._write_raw(self._piece(piece))
        if now - self._status_at < STATUS_INTERVAL_S:
            return
        self._status_at = now
        status = status_line(self.screen)
        if status != self._status and self.screen.rows:
            self._status = status
            self.write([f"{clock_of_now(self._clock)} {status}"])

    def _transition(self, lines: list[str], event: Event, before: str | None) -> None:
        row = self.screen.rows.get(event.task or "")
        if row is None or row.is_join:
            return
        is_blocked = row.is_gate and row.reason == "blocked"
        words = ["blocked" if is_blocked else row.state.replace("_", " ")]
        if row.state == "running" and row.attempt:
            words.append(f"(attempt {row.attempt})")
        took = seconds_between(row.started_at, row.ended_at) if before == "running" else None
        if row.state in ("succeeded", "failed", "timed_out", "cancelled") and took is not None:
            words.append(f"in {duration_words(took)}")
        counted = count_words(row.done, row.total)
        if counted and row.state != "running":
            words.append(f"({counted} items)")
        if self.host and row.state not in ("running", "queued", "pending"):
            failed = row.state in ("failed", "timed_out") and not event.data.get("ignored")
            for piece in self._held.ended(row.id, " ".join(words), failed=failed):
                self.write(lines)
                lines.clear()
                self._write_raw(self._piece(piece))
        why = row.error if row.state in ("failed", "timed_out") else None
        why = why or reason_words(row.reason, row.reason_text, row.blocked_by)
        if why:
            words.append(f"- {why}")
        lines.append(" ".join((clock_of(event.at), row.id, *words)))

    def _say(self, lines: list[str], event: Event) -> None:
        level = event.data.get("level")
        text = event.data["text"]
        if level and level not in ("info", "debug"):
            text = f"{level}: {text}"
        if self.host is None or event.task is None:
            lines.append(f"{event.task or 'towline'} | {text}")
            return
        for piece in self._held.say(event.task, text, self._clock.monotonic()):
            self._write_raw(self._piece(piece))

    def _piece(self, piece: Piece) -> list[str]:
        """Write one piece of a task's output as raw lines, folded where the host can."""
        assert self.host is not None
        self._groups += 1
        title = harmless(ci_hosts.defused(self.host, f"{piece.task} {piece.words}"))
        now_s = int(self._clock.now())
        text = [self._of_a_body(line) for line in piece.lines]
        if not piece.is_folded:
            return ["", ci_hosts.heading(self.host, title), *text]
        end = ci_hosts.closing(self.host, title, self._groups, now_s)
        return [ci_hosts.opening(self.host, title, self._groups, now_s), *text, *([end] if end else [])]

    def _of_a_body(self, line: str) -> str:
        line = harmless(line)
        return ci_hosts.defused(self.host, line) if self._defuse else line

    def mask(self, value: str) -> None:
        """Tell the host's viewer of a secret, before anything that holds it can be written (SEC-08)."""
        self._write_raw(ci_hosts.mask_commands(self.host, value))

    def flush(self) -> None:
        """Write the output of tasks that never ended, then that of failed ones; harmless twice (REP-10)."""
        for piece in self._held.rest():
            self._write_raw(self._piece(piece))

    def write(self, lines: Iterable[str]) -> None:
        """Write lines of Towline's own; after the stream was closed this does nothing."""
        shown = [ci_hosts.defused(self.host, harmless(line)) for line in lines]
        self._write_raw([coloured(line) for line in shown] if self._colour else shown)

    def _write_raw(self, lines: Sequence[str]) -> None:
        if lines and not self._closed:
            self._closed = not write_raw(self._stream, "".join(line + "\n" for line in lines))


def clock_of(at: str) -> str:
    """The time of day of a moment: ``10:00:01``."""
    return at[11:19]


def clock_of_now(clock: Clock) -> str:
    """The time of day now, in UTC as all moments are."""
    from towline.clock import moment

    return clock_of(moment(clock.now()))


def status_line(screen: Screen) -> str:
    """Say in one line how the run stands, with the items of what runs."""
    running = [screen.rows[task] for task in islice(screen.running, 3)]
    counted = [f"{row.id} {count_words(row.done, row.total)}".rstrip() for row in running]
    more = f" and {len(screen.running) - 3} more" if len(screen.running) > 3 else ""
    busy = f" - {', '.join(counted)}{more}" if counted else ""
    return f"{screen.pipeline}: {counts_words(screen.counts)}{busy}"


def reconciled_lines(data: dict[str, object]) -> list[str]:
    """List what a resume does with an earlier plan, each task with its class (PLAN-35)."""
    from towline.planning.rendering import class_words, tasks_words  # only a resume of a changed program needs them

    lines = []
    for kind in ("changed", "stale", "added", "removed", "code_changed", "reset"):
        ids = data.get(kind)
        if isinstance(ids, list | tuple) and ids:
            count = data.get(f"{kind}_count", len(ids))
            more = f" and {count - len(ids):,} more" if isinstance(count, int) and count > len(ids) else ""
            lines.append(class_words(kind, f"{', '.join(map(str, ids))}{more}"))
    kept = data.get("kept")
    count = data.get("kept_count", len(kept) if isinstance(kept, list | tuple) else 0)
    return [*lines, f"unchanged: {tasks_words(count)}"] if isinstance(count, int) else lines
