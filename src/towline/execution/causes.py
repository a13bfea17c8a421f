"""Why a task is skipped: the first task that ended badly, and the way the news came (PLAN-43, PLAN-45)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from towline.execution.scheduling import Settle

if TYPE_CHECKING:
    from towline.planning.records import PlannedTask

_WORDS: Final[dict[str, str]] = {
    "failed": "failed",
    "timed_out": "timed out",
    "cancelled": "was cancelled",
    "skipped": "was skipped",
}


class Cause(NamedTuple):
    """The first task that ended badly, how, and the code with which all behind it are skipped."""

    task: str
    state: str
    code: str

    def text(self, via: str) -> str:
        """Say it in words; ``via`` is the dependency that brought the news."""
        words = f"{self.task} {_WORDS.get(self.state, self.state)}"
        return words if via in ("", self.task) else f"{words}, via {via}"

    def skip(self, task: int, via: str) -> Settle:
        """Make the decision that skips a task for this cause."""
        return Settle(task=task, state="skipped", code=self.code, text=self.text(via), blocked_by=self.task)


def own_cause(task: str, state: str) -> Cause:
    """Make the cause that a task is to those behind it, having ended badly by itself."""
    return Cause(task, state, "dependency_skipped" if state == "skipped" else "dependency_failed")


def kept_cause(row: PlannedTask) -> Cause:
    """Find the cause that a row of an earlier run stands for: its own, or the one that skipped it."""
    if row.blocked_by is not None and row.reason in ("dependency_failed", "dependency_skipped"):
        return Cause(row.blocked_by, "skipped" if row.reason == "dependency_skipped" else "failed", row.reason)
    return own_cause(row.id, row.state)
