"""``towline why TASK``: from recorded facts alone, for a live or a finished run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from towline.cli.owners import living_owner
from towline.cli.states import read_plan, roots
from towline.errors.configuration import AmbiguousNameError, UnknownNameError
from towline.identity import suggestion
from towline.planning.why import explain_task
from towline.views.streams import write_lines

if TYPE_CHECKING:
    from pathlib import Path

    from towline.planning.records import PlanDocument, PlannedTask


def explain(task: str, state: str | None, *, as_json: bool) -> int:
    """Say what a task waits for, or why it ran, was skipped, reused or failed."""
    root, document, row = _find(task, state)
    answer = explain_task(document, row, is_living=living_owner(root) is not None)
    if as_json:
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        return 0
    lines = [f"{row.id} is {row.state.replace('_', ' ')}: {answer.summary}"]
    lines += [f"  waits for {one}" for one in answer.waits_for]
    lines += [f"  {fact}" for fact in answer.facts]
    write_lines(sys.stdout, lines)
    return 0


def _find(task: str, state: str | None) -> tuple[Path, PlanDocument, PlannedTask]:
    """Find a task in the plans of this folder, without case where that is unambiguous.

    Raises:
        UnknownNameError, AmbiguousNameError: No plan has it, or several have.
    """
    known: list[str] = []
    found: list[tuple[Path, PlanDocument, PlannedTask]] = []
    alike: list[tuple[Path, PlanDocument, PlannedTask]] = []
    for root in roots(state):
        document = read_plan(root)
        if document is None:
            continue
        for row in document.tasks:
            known.append(row.id)
            if row.id == task:
                found.append((root, document, row))
            elif row.id.casefold() == task.casefold():
                alike.append((root, document, row))
    found = found or alike
    if len(found) == 1:
        return found[0]
    if found:
        raise AmbiguousNameError("task", task, tuple(f"--state {root}" for root, _, _ in found))
    hint = suggestion(task, known) or "`towline show` lists the tasks."
    raise UnknownNameError("task", task, "the plans of this folder" if state is None else f"the plan in {state}", hint)
