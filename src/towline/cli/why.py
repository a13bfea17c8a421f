"""``towline why TASK``: from recorded facts alone, for a live or a finished run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from towline.cli.failing import say
from towline.cli.plans import SeenPlan, seen_plans
from towline.cli.reachability import without_password
from towline.cli.results import write_json, write_result
from towline.cli.states import log_of
from towline.errors.configuration import AmbiguousNameError, UnknownNameError
from towline.identity import suggestion
from towline.planning.why import explain_module, explain_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.cli.states import Where
    from towline.planning.records import PlannedTask
    from towline.planning.why import TaskStanding


MISSED = "not in the cache: "
"""How the log of a task begins to say why its body ran."""

TASKS_SHOWN = 50
"""Tasks of an expanded module that are listed; ``--json`` has all of them."""


def explain(task: str, where: Where, *, as_json: bool) -> int:
    """Say what a task waits for, or why it ran, was skipped, reused or failed; of an expanded module, its tasks."""
    plan, rows = _find(task, where)
    if len(rows) > 1:
        many = explain_module(rows[0].module, rows)
        if as_json:
            write_json(many)
        else:
            write_result([f"{many.module} has {many.summary}", *_listed(many.tasks)])
        return 0
    [row] = rows
    answer = explain_task(plan.document, row, is_living=plan.is_living())
    if plan.root is not None:
        answer = msgspec.structs.replace(answer, facts=(*answer.facts, *_missed(plan, row.id)))
    if as_json:
        write_json(answer)
        return 0
    lines = [f"{row.id} is {row.state.replace('_', ' ')}: {answer.summary}", *_listed(answer.tasks)]
    lines += [f"  waits for {one}" for one in answer.waits_for]
    lines += [f"  {fact}" for fact in answer.facts]
    write_result(lines)
    return 0


def _missed(plan: SeenPlan, task: str) -> list[str]:
    """Find what the cache missed in the log of a task, where the runner of it said so (CACHE-09)."""
    log = log_of(plan.root, plan.document.run_id, task) if plan.root is not None else None
    said = [MISSED + line.partition(MISSED)[2] for line in (log or "").splitlines() if f" debug {MISSED}" in line]
    return said[-1:]


def _listed(tasks: Sequence[TaskStanding]) -> list[str]:
    """List what did not succeed first: that is what is looked for."""
    ordered = sorted(tasks, key=lambda one: one.state == "succeeded")
    lines = [f"  {one.task} is {one.state.replace('_', ' ')}" for one in ordered[:TASKS_SHOWN]]
    return lines + ([f"  and {len(tasks) - TASKS_SHOWN:,} more"] if len(tasks) > TASKS_SHOWN else [])


Found: TypeAlias = "tuple[SeenPlan, list[PlannedTask]]"


def _find(task: str, where: Where) -> Found:
    """Find a task, or all tasks of an expanded module, in the plans that are meant, without case where unambiguous.

    Raises:
        UnknownNameError, AmbiguousNameError: No plan has it, or several have.
        StateError: No plan has it that can be read, and one cannot be.
    """
    plans, damages = seen_plans(where)
    known: set[str] = set()
    found: list[Found] = []
    alike: list[Found] = []
    for plan in plans:
        document = plan.document
        known.update(name for row in document.tasks for name in (row.id, row.module))
        for spelt, into in ((str, found), (str.casefold, alike)):
            wanted = spelt(task)
            rows = [row for row in document.tasks if spelt(row.id) == wanted]
            rows = rows or [row for row in document.tasks if spelt(row.module) == wanted]
            if rows and len({row.module for row in rows}) == 1:
                into.append((plan, rows))
    found = found or alike
    if damages and not found:
        raise damages[0]
    for damage in damages:
        say(f"warning: {damage}")
    if len(found) == 1:
        return found[0]
    if found:
        raise AmbiguousNameError("task", task, tuple(plan.flags for plan, _ in found))
    hint = suggestion(task, known) or "`towline show` lists the tasks."
    place = "the plans of this folder" if where.state is None else f"the plan in {without_password(where.state)}"
    raise UnknownNameError("task", task, place, hint)
