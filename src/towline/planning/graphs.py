"""A plan as a graph for other programs to draw: Mermaid and Graphviz. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from towline.planning.plan import Plan, PlannedTask

_COLOURS = {
    "succeeded": "#d5f0d5",
    "failed": "#f6cccc",
    "timed_out": "#f6cccc",
    "skipped": "#e6e6e6",
    "cancelled": "#e6e6e6",
    "running": "#cfe2fb",
}
_MARKS = {"succeeded": "✓", "failed": "✗", "timed_out": "✗", "skipped": "-", "cancelled": "-", "running": "▶"}
"""Colour is never the only sign."""


def mermaid(plan: Plan) -> str:
    """Write a Mermaid flowchart: one node per task, grouped by phase, an arrow from each dependency."""
    names = _names(plan)
    lines = ["flowchart LR"]
    for phase, tasks in plan.by_phase():
        if phase is not None:
            lines.append(f'  subgraph phase_{len(lines)}["{_mermaid_text(phase)}"]')
        indent = "  " if phase is None else "    "
        lines += [f'{indent}{names[task.id]}["{_mermaid_text(_label(task))}"]' for task in tasks]
        if phase is not None:
            lines.append("  end")
    lines += [f"  {names[above]} --> {names[task.id]}" for task, above in _edges(plan)]
    for state, colour in _COLOURS.items():
        members = [names[task.id] for task in plan.tasks if task.state == state]
        if members:
            lines += [f"  classDef {state} fill:{colour}", f"  class {','.join(members)} {state}"]
    return "\n".join(lines) + "\n"


def dot(plan: Plan) -> str:
    """Write a Graphviz digraph: one node per task, a cluster per phase, an arrow from each dependency."""
    names = _names(plan)
    lines = [f'digraph "{_dot_text(plan.pipeline)}" {{', "  rankdir=LR;", "  node [shape=box, style=filled];"]
    for phase, tasks in plan.by_phase():
        if phase is not None:
            lines += [f"  subgraph cluster_{len(lines)} {{", f'    label="{_dot_text(phase)}";']
        indent = "  " if phase is None else "    "
        for task in tasks:
            colour = _COLOURS.get(task.state, "#ffffff")
            lines.append(f'{indent}{names[task.id]} [label="{_dot_text(_label(task))}", fillcolor="{colour}"];')
        if phase is not None:
            lines.append("  }")
    lines += [f"  {names[above]} -> {names[task.id]};" for task, above in _edges(plan)]
    return "\n".join([*lines, "}"]) + "\n"


def _names(plan: Plan) -> dict[str, str]:
    """Give each task a name that needs no quoting in either language."""
    return {task.id: f"t{number}" for number, task in enumerate(plan.tasks)}


def _edges(plan: Plan) -> Iterator[tuple[PlannedTask, str]]:
    known = {task.id for task in plan.tasks}
    return ((task, above) for task in plan.tasks for above in task.depends_on if above in known)


def _label(task: PlannedTask) -> str:
    mark = _MARKS.get(task.state)
    return task.id if mark is None else f"{mark} {task.id}"


def _mermaid_text(text: str) -> str:
    """Escape what Mermaid would read as markup or as the end of the text."""
    return "".join(one if one.isalnum() or one in " ._-✓✗-▶" else f"#{ord(one)};" for one in text)


def _dot_text(text: str) -> str:
    printable = "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')
