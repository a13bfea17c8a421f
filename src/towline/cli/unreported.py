"""Runs without a report, shown from their plan: they are running, or their process died (REP-06)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from towline.cli.servers import elsewhere
from towline.cli.states import is_living, log_of, read_plan, read_reports, roots
from towline.errors.configuration import UnknownNameError
from towline.identity import suggestion
from towline.planning.nesting import counted, under_their_module
from towline.views.words import counts_words, reason_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from towline.cli.states import Where
    from towline.planning.records import PlanDocument


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


Task = TypeVar("Task", bound=_HasId)

TASK_FACTS = ("id", "module", "state", "reason", "reason_text", "blocked_by", "attempts", "worker")
TASK_MOMENTS = ("started_at", "finished_at", "done", "total", "error")


class Unreported(NamedTuple):
    """A run that has no report. ``head``: what `towline runs` lists of it; ``root``: the folder with its logs."""

    head: dict[str, Any]
    document: PlanDocument
    root: Path

    def lines(self) -> list[str]:
        """Write the rows of the plan, and how the run stands."""
        head, tasks = self.head, self.document.tasks
        width = max((len(one.id) for one in tasks), default=0)
        lines = []
        for one in under_their_module(counted(tasks)):
            why = reason_words(one.reason, one.reason_text, one.blocked_by)
            lines.append(f"{one.id:<{width}}  {one.state.replace('_', ' '):<9}  {why}".rstrip())
        lines += ["", f"{head['pipeline']} {head['run_id']} {head['state']}: {counts_words(head['counts'])}"]
        if head["state"] == "interrupted":
            lines.append("Its process is gone. Run it again to go on where it was.")
        return lines

    def json(self) -> dict[str, Any]:
        """Return the same for programs."""
        rows = [{"id": one.id, "state": one.state, "reason": one.reason} for one in counted(self.document.tasks)]
        return self.head | {"tasks": rows}

    def task(self, name: str) -> tuple[dict[str, Any], str | None]:
        """Return what is known of one task so far, and its log; ``None`` when it has said nothing.

        Raises:
            UnknownNameError: The plan has no such task; names the nearest.
        """
        row = task_named(name, self.document.tasks, self.head["run_id"])
        facts = {fact: msgspec.to_builtins(getattr(row, fact)) for fact in (*TASK_FACTS, *TASK_MOMENTS)}
        return facts, log_of(self.root, self.head["run_id"], row.id)


def unreported_in(root: Path, reported: set[str]) -> Unreported | None:
    """Return the run of the plan of a root, when it is not among those that have a report."""
    server = elsewhere(root)
    if server is not None and server.run_id in reported:
        return None  # the server need not be there any more
    document = read_plan(root)
    if document is None or document.run_id in reported:
        return None
    head = {
        "run_id": document.run_id,
        "pipeline": document.pipeline,
        "state": _state_of(document, root),
        "exit_code": None,
        "started_at": document.owner.since if document.owner else document.created_at,
        "duration_s": None,
        "counts": _counts(document),
    }
    return Unreported(head, document, root)


def find_unreported(run: str, where: Where) -> Unreported | None:
    """Find a run by its id, or the latest one, if it has no report.

    Raises:
        NothingHereError: There is no state.
    """
    reported = {root: read_reports(root)[0] for root in roots(where)}
    newest = max((report.started_at for reports in reported.values() for report in reports), default="")
    for root, reports in reported.items():
        found = unreported_in(root, {report.run_id for report in reports})
        if found is None:
            continue
        if found.head["run_id"] == run or (run == "latest" and found.head["started_at"] > newest):
            return found
    return None


def task_named(name: str, tasks: Sequence[Task], run_id: str) -> Task:
    """Return the task of a run that is meant, without case where that is unambiguous.

    Raises:
        UnknownNameError: There is none; names the nearest.
    """
    for same in (str, str.casefold):
        found = [one for one in tasks if same(one.id) == same(name)]
        if len(found) == 1:
            return found[0]
    hint = suggestion(name, [one.id for one in tasks]) or f"`towline show {run_id}` lists them."
    raise UnknownNameError("task", name, f"run {run_id}", hint)


def _state_of(document: PlanDocument, root: Path) -> str:
    """A run that ended says so itself; one that did not is running only while its process lives."""
    if document.run_state in ("succeeded", "failed", "cancelled"):
        return document.run_state
    return "running" if is_living(root) else "interrupted"


def _counts(document: PlanDocument) -> dict[str, int]:
    counts: dict[str, int] = {}
    for task in counted(document.tasks):
        counts[task.state] = counts.get(task.state, 0) + 1
    return counts
