"""The children of each join, and the end that a join derives from theirs (``planning.md`` section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from towline.planning.records import TaskState

_RANKS: Final[tuple[TaskState, ...]] = ("failed", "timed_out", "cancelled", "skipped", "succeeded")
_CODES: Final[dict[str, str]] = {"failed": "error", "timed_out": "timeout"}


class Verdict(NamedTuple):
    """How a join ends by its children: the first of failed, timed out, cancelled, skipped found among them.

    ``child`` ended so; ``None`` if all succeeded. ``ignored``: every bad end among them is.
    ``code`` is empty where the child's own counts.
    """

    state: TaskState
    child: int | None
    ignored: bool
    code: str


class Joins:
    """Which tasks are children of which join, and how far those are. All by place in the plan."""

    def __init__(self) -> None:
        self.parents: dict[int, int] = {}
        self.children: dict[int, list[int]] = {}
        self._open: dict[int, int] = {}
        self._worst: dict[int, tuple[int, int]] = {}
        self._intolerant: set[int] = set()

    def adopt(self, join: int, child: int) -> None:
        """Count a task among the children of a join."""
        self.parents[child] = join
        self.children.setdefault(join, []).append(child)

    def release(self, join: int, child: int) -> None:
        """Let a child go that a new expansion does not have."""
        self.children[join].remove(child)
        del self.parents[child]

    def expect(self, join: int, open_children: int) -> None:
        """Say how many children have not ended."""
        self.children.setdefault(join, [])
        self._open[join] = open_children

    def is_done(self, join: int) -> bool:
        """Whether all children have ended; asked of expanded joins only."""
        return not self._open[join]

    def child_left(self, join: int) -> None:
        """Count one child less among the open ones."""
        self._open[join] -= 1

    def note(self, join: int, child: int, state: str, tolerated: bool) -> None:
        """Take the end of a child; of equal ends the first counts, and one that is tolerated is less bad."""
        rank = 2 * _RANKS.index(state) + tolerated
        if join not in self._worst or rank < self._worst[join][0]:
            self._worst[join] = (rank, child)
        if state != "succeeded" and not tolerated:
            self._intolerant.add(join)

    def verdict(self, join: int) -> Verdict:
        """Say how a join ends."""
        rank, child = self._worst.get(join, (2 * len(_RANKS) - 1, join))
        state = _RANKS[rank // 2]
        if state == "succeeded":
            return Verdict(state, None, False, "")
        ignored = state in ("failed", "timed_out") and join not in self._intolerant
        return Verdict(state, child, ignored, _CODES.get(state, ""))
