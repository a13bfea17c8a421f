"""A plan as a table for people, readable at 60 columns, and as JSON for programs. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from towline.planning.nesting import under_their_module

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from towline.planning.plan import Plan, PlannedTask

MIN_WIDTH = 40
GROUPED_ABOVE = 50
"""Tasks of one module and tier with one decision that are shown one by one; more are one line."""

_INDENT = 2


class _Row(msgspec.Struct):
    """One line of the table before it is fitted to a width."""

    tier: str
    name: str
    decision: str
    estimate: str
    why: str


def plan_text(plan: Plan, width: int = 80) -> str:
    """Write a plan as a table: phase, tier, task, decision, estimate, and below a task why.

    Names, decisions and reasons are shown whole: a name that is too long for its column has the rest of
    its row on a line of its own. Control characters are shown escaped.
    """
    width = max(width, MIN_WIDTH)
    if not plan.tasks:
        return f"{_escaped(plan.pipeline)}: no tasks\n"
    sections = [
        (phase, [_row(group) for group in _groups(list(under_their_module(tasks)))]) for phase, tasks in plan.by_phase()
    ]
    rows = [row for _, section in sections for row in section]
    columns = _Columns(rows, width)
    lines = [
        *_refused(plan, width),
        *_wrapped(_headline(plan), width, between=" "),
        *_reconciled(plan, width),
        "",
        columns.line(_Row("tier", "task", "decision", "estimate", "")),
    ]
    for phase, section in sections:
        if phase is not None:
            lines.append(f"-- {_escaped(phase)} ".ljust(width, "-"))
        for row in section:
            lines += columns.lines(row)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def plan_json(plan: Plan) -> str:
    """Write a plan as JSON: ``{"schema": 1, "pipeline": ..., "tasks": [...]}``; what is not known is left out."""
    tasks: list[dict[str, Any]] = []
    for task in plan.tasks:
        shown = {name: value for name, value in msgspec.structs.asdict(task).items() if value is not None}
        tasks.append(shown)
    document: dict[str, Any] = {"schema": 1, "pipeline": plan.pipeline, "tasks": tasks}
    if plan.reconciled:
        document["reconciled"] = plan.reconciled
    if plan.refused is not None:
        document["refused"] = plan.refused
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _refused(plan: Plan, width: int) -> Iterator[str]:
    """Say first that a run would not do what stands below."""
    if plan.refused is not None:
        yield from _wrapped(f"a run would be refused: {_escaped(plan.refused)}", width, between=" ")
        yield from _wrapped("Below is the new plan that --fresh would make.", width, between=" ")
        yield ""


def _reconciled(plan: Plan, width: int) -> Iterator[str]:
    """Say what a resume does with each task of an earlier plan whose program has changed since (PLAN-35).

    The class ``kept`` is called unchanged here: some of them may never have run, so that they are not kept but run.
    """
    for kind, ids in plan.reconciled.items():
        if ids and kind != "kept":
            yield from _wrapped(_escaped(class_words(kind, ", ".join(ids))), width, between=" ")
    if plan.reconciled:
        yield f"unchanged: {tasks_words(len(plan.reconciled.get('kept', ())))}"


def class_words(kind: str, ids: str) -> str:
    """Name the tasks of one class of a reconcile, and what an operator can do about it."""
    line = f"{kind.replace('_', ' ')}: {ids}"
    return f"{line} (kept; to run them again, give their modules another version=)" if kind == "code_changed" else line


def tasks_words(count: int) -> str:
    """Write a count of tasks: ``1 task``, ``1,200 tasks``."""
    return "1 task" if count == 1 else f"{count:,} tasks"


class _Columns:
    """Widths of the table: decision and estimate have what they need, the name has the rest."""

    def __init__(self, rows: Sequence[_Row], width: int) -> None:
        self._width = width
        self._tier = max(4, max(len(row.tier) for row in rows))
        self._decision = max(8, max(len(row.decision) for row in rows))
        self._estimate = 8
        rest = width - self._tier - self._decision - self._estimate - 3 * _INDENT
        self._name = max(8, min(rest, max(len(row.name) for row in rows)))

    def line(self, row: _Row) -> str:
        gap = " " * _INDENT
        cells = (row.tier.rjust(self._tier), row.name.ljust(self._name), row.decision.ljust(self._decision))
        return gap.join((*cells, row.estimate.rjust(self._estimate)))

    def lines(self, row: _Row) -> Iterator[str]:
        """Give the lines of one row; a name that does not fit stands on lines of its own."""
        margin = self._tier + _INDENT
        if len(row.name) <= self._name:
            yield self.line(row)
        else:
            first, *others = _wrapped(row.name, self._width - margin, between="")
            yield row.tier.rjust(self._tier) + " " * _INDENT + first
            yield from (" " * margin + other for other in others)
            yield self.line(_Row("", "", row.decision, row.estimate, ""))
        for part in _wrapped(row.why, self._width - margin - _INDENT, between=" "):
            yield " " * (margin + _INDENT) + part


def _headline(plan: Plan) -> str:
    tiers = max(task.tier for task in plan.tasks) + 1
    counts = Counter(_decision(task) for task in plan.tasks)
    parts = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    return f"{_escaped(plan.pipeline)}: {tasks_words(len(plan.tasks))} in {tiers} {'tier' if tiers == 1 else 'tiers'} ({parts})"


def _groups(tasks: Sequence[PlannedTask]) -> Iterator[list[PlannedTask]]:
    """Give the tasks one by one, but those of a large matrix together where all is the same for them."""
    alike: dict[tuple[str, int, str, str], list[PlannedTask]] = {}
    for task in tasks:
        alike.setdefault((task.module, task.tier, _decision(task), _why(task)), []).append(task)
    given: set[str] = set()
    for task in tasks:
        group = alike[task.module, task.tier, _decision(task), _why(task)]
        if len(group) <= GROUPED_ABOVE:
            yield [task]
        elif task.module not in given or group[0] is task:
            if group[0] is task:
                yield group
            given.add(task.module)


def _row(group: Sequence[PlannedTask]) -> _Row:
    task = group[0]
    known = [one.estimate_s for one in group if one.estimate_s is not None]
    estimate = _duration(sum(known)) if len(known) == len(group) else ""
    name = task.id if len(group) == 1 else f"{task.module}[{task.key} .. {group[-1].key}] ({len(group):,} tasks)"
    return _Row(str(task.tier), _escaped(name), _decision(task), estimate, _why(task))


def _decision(task: PlannedTask) -> str:
    return task.decision or task.state


def _why(task: PlannedTask) -> str:
    reason = task.reason
    if reason is None:
        if task.items_of is None:
            return ""
        return f"one for each item of {_escaped(task.items_of)}; their count is unknown"
    text = reason.text or reason.code.replace("_", " ")
    if reason.blocked_by and reason.blocked_by not in text:
        text = f"{text} ({reason.blocked_by})"
    return _escaped(text)


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    return f"{minutes // 60}h{minutes % 60:02}m"


def _escaped(text: str) -> str:
    """Show characters that would move the cursor or the reading direction as escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode() for one in text)


def _wrapped(text: str, width: int, between: str) -> list[str]:
    """Break a text into lines: at spaces, or anywhere when ``between`` is empty."""
    lines: list[str] = []
    words = text.split(" ") if between else [text]
    line = ""
    for word in words:
        candidate = f"{line}{between}{word}" if line else word
        if len(candidate) <= width:
            line = candidate
            continue
        if line:
            lines.append(line)
        while len(word) > width:
            lines.append(word[:width])
            word = word[width:]
        line = word
    return [*lines, line] if line else lines
