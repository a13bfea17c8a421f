"""What tasks say on CI, held until it can be shown in one piece (REP-10, REP-11). Pure."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

HELD_LINES: Final = 5_000
HELD_S: Final = 60.0
"""A task that says more, or runs longer, is shown in parts under a ``…`` heading."""

FAILED_LINES: Final = 20_000
"""Lines of a failed task that are shown again in full at the end; its log has all of them."""

FAILED_TASKS: Final = 20
"""Failed tasks shown so; the output of further ones is folded like that of all others."""


class Piece(NamedTuple):
    """Text to show under one heading. ``is_folded``: it may be hidden until somebody opens it."""

    task: str
    words: str
    lines: tuple[str, ...]
    is_folded: bool = True


class _Held:
    __slots__ = ("all", "count", "since", "unshown")

    def __init__(self, now: float) -> None:
        self.unshown: list[str] = []
        self.all: deque[str] = deque(maxlen=FAILED_LINES)
        self.since = now
        self.count = 0


class HeldOutput:
    """Gathers lines by task. Moments are seconds of a clock that does not step back."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Held] = {}
        self._failed: list[Piece] = []

    def say(self, task: str, line: str, now: float) -> list[Piece]:
        """Take a line; gives back a part when the task has said enough for one."""
        held = self._tasks.get(task)
        if held is None:
            held = self._tasks[task] = _Held(now)
        held.unshown.append(line)
        held.all.append(line)
        held.count += 1
        return [self._part(task, held, now)] if len(held.unshown) >= HELD_LINES else []

    def due(self, now: float) -> list[Piece]:
        """Give the parts of tasks that have been held for 60 seconds."""
        return [
            self._part(task, held, now)
            for task, held in self._tasks.items()
            if held.unshown and now - held.since >= HELD_S
        ]

    def _part(self, task: str, held: _Held, now: float) -> Piece:
        lines, held.unshown, held.since = tuple(held.unshown), [], now
        return Piece(task, "…", lines)

    def ended(self, task: str, words: str, *, failed: bool) -> list[Piece]:
        """Take the end of a task: what it said comes now, or at the very end if it failed."""
        held = self._tasks.pop(task, None)
        if failed and len(self._failed) < FAILED_TASKS:
            lines = tuple(held.all) if held else ()
            if held and held.count > len(lines):
                lines = (f"… {held.count - len(lines):,} earlier lines are above and in the log", *lines)
            self._failed.append(Piece(task, words, lines, is_folded=False))
            return []
        return [Piece(task, words, tuple(held.unshown))] if held and held.unshown else []

    def rest(self) -> list[Piece]:
        """Give all that was not shown yet, failed tasks last: nothing is lost with the run. A second call is empty."""
        open_tasks, self._tasks = self._tasks, {}
        failed, self._failed = self._failed, []
        left = [Piece(task, "did not end", tuple(held.unshown)) for task, held in open_tasks.items() if held.unshown]
        return left + failed
