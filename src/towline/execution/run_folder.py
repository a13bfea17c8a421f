"""``runs/<run-id>/``: event log, task logs and report of one run. For people; nothing here steers a resume (PLAN-39)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from towline.identity import segment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from towline.events.records import Event

HALF_LOG_BYTES = 8 * 1024 * 1024
"""A task's log keeps its first and its last 8 MiB (RUN-39)."""

FLUSH_BYTES = 1024 * 1024
"""More than this waiting is written without waiting for the interval."""

FLUSH_INTERVAL_S = 0.5
"""What a kill -9 may cost of logs and events (EVT-18)."""

EVENT_BYTES = 256
"""A usual event as a line; what waits is counted by it."""

ENCODER = msgspec.json.Encoder()

MARKER = "… {dropped} bytes left out: the first and the last 8 MiB of a log are kept …\n"


class RunFolder:
    """Gathers what is written for people and appends it twice a second.

    ``append(name, data)`` writes to the state store; ``None`` keeps nothing (a dry run). An error there
    is passed to ``trouble`` once and stops the writing: logs never fail a run.
    """

    def __init__(
        self,
        append: Callable[[str, bytes], Awaitable[None]] | None,
        call_later: Callable[[float, Callable[[], None]], object],
        trouble: Callable[[Exception], None],
        spawn: Callable[[Awaitable[None]], object],
    ) -> None:
        self._append, self._call_later, self._trouble, self._spawn = append, call_later, trouble, spawn
        self._waiting: dict[str, list[bytes]] = {}
        self._events: list[Event] = []
        self._waiting_bytes = 0
        self._written: dict[str, int] = {}
        self._tails: dict[str, _Tail] = {}
        self._timer_set = False
        self._busy = False

    def events(self, batch: Sequence[Event]) -> int:
        """Take events for ``events.jsonl``; returns about how many bytes they will be.

        They are encoded when they are written: one call for many costs a third of many calls.
        """
        if self._append is None:
            return 0
        self._events += batch
        size = EVENT_BYTES * len(batch)
        if self._timer_set and self._waiting_bytes + size <= FLUSH_BYTES:
            self._waiting_bytes += size
        else:
            self._note(size)
        return size

    def log_line(self, task: str | None, line: str) -> None:
        """Take one line of a task's log, or of the run's own."""
        name = f"log/{segment(task)}.txt" if task is not None else "log.txt"
        data = line.encode("utf-8", "backslashreplace")
        written = self._written.get(name, 0)
        if written + len(data) > HALF_LOG_BYTES:
            self._tails.setdefault(name, _Tail()).take(data)
            return
        self._written[name] = written + len(data)
        self._take(name, data)

    def _take(self, name: str, data: bytes) -> None:
        if self._append is None:
            return
        self._waiting.setdefault(name, []).append(data)
        self._note(len(data))

    def _note(self, size: int) -> None:
        """Count what waits; see that it is written soon."""
        self._waiting_bytes += size
        if self._waiting_bytes > FLUSH_BYTES:
            self._begin_flush()
        elif not self._timer_set:
            self._timer_set = True
            self._call_later(FLUSH_INTERVAL_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_set = False
        self._begin_flush()

    def _begin_flush(self) -> None:
        if not self._busy and (self._waiting or self._events):
            self._busy = True
            self._spawn(self._flush_and_free())

    async def _flush_and_free(self) -> None:
        try:
            await self.flush()
        finally:
            self._busy = False

    async def flush(self) -> None:
        """Write what is waiting now."""
        while (self._waiting or self._events) and self._append is not None:
            waiting, self._waiting = self._waiting, {}
            events, self._events = self._events, []
            self._waiting_bytes = 0
            if events:
                waiting["events.jsonl"] = [ENCODER.encode_lines(events)]
            for name, parts in waiting.items():
                try:
                    await self._append(name, b"".join(parts))
                except Exception as error:  # noqa: BLE001 - said once; a full disk must not fail the run here
                    self._append = None
                    self._trouble(error)
                    return

    async def close(self) -> None:
        """Write the kept ends of long logs, and everything else that is waiting."""
        for name, tail in self._tails.items():
            self._take(name, MARKER.format(dropped=tail.dropped).encode() if tail.dropped else b"")
            for data in tail.lines:
                self._take(name, data)
        self._tails.clear()
        await self.flush()


class _Tail:
    """The last 8 MiB of a long log."""

    __slots__ = ("dropped", "held", "lines")

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque()
        self.held = self.dropped = 0

    def take(self, data: bytes) -> None:
        self.lines.append(data)
        self.held += len(data)
        while self.held > HALF_LOG_BYTES:
            oldest = self.lines.popleft()
            self.held -= len(oldest)
            self.dropped += len(oldest)
