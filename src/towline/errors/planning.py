"""Errors of building, resuming and growing a plan (``planning.md`` section 10); those of its files are in ``state.py``."""

from __future__ import annotations

from typing import ClassVar

from towline.errors.declaration import DeclarationError
from towline.errors.root import TowlineError

SHOWN = 20
"""Problems, names or tasks that one text lists; the fields hold all of them."""


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


class PlanBuildError(DeclarationError):
    """What was declared gives no plan; holds every problem that was found (PLAN-04)."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("plan", "modules", problems, "repair every one of them")
        self.args = (problems,)
        self.problems = problems

    def __str__(self) -> str:
        if len(self.problems) == 1:
            problem = self.problems[0]
            return f"the plan cannot be built: {problem}{'' if problem.endswith('?') else '.'} Nothing ran."
        lines = [f"  {number}. {problem}" for number, problem in enumerate(self.problems[:SHOWN], 1)]
        if len(self.problems) > SHOWN:
            lines.append(f"  and {len(self.problems) - SHOWN} more")
        return f"the plan cannot be built; {len(self.problems)} things to repair, and nothing ran:\n" + "\n".join(lines)


class CycleError(PlanBuildError):
    """Modules wait for one another (PLAN-03, MOD-12). ``path`` names the first cycle, ``problems`` has all problems."""

    def __init__(self, path: tuple[str, ...], problems: tuple[str, ...]) -> None:
        super().__init__(problems)
        self.args = (path, problems)
        self.path = path


class PlanTooLargeError(PlanBuildError):
    """More tasks than ``max_tasks`` allows (MOD-21)."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(
            (f"it would have {count:,} tasks, the limit is {limit:,}: expand less, or raise Options.max_tasks",)
        )
        self.args = (count, limit)
        self.count, self.limit = count, limit


class SelectionError(TowlineError):
    """A flag names a module, category or phase that the plan does not have, or chooses nothing (CLI-02 to 04)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        text = "; ".join(self.problems[:SHOWN])
        end = "" if text.endswith("?") else "."
        return f"{text}{end} Nothing ran; `towline plan` lists what there is."


class PlanMissingError(TowlineError):
    """There are cursors, steps or results, but no plan that they belong to."""

    exit_code: ClassVar[int] = 4

    def __init__(self, root: str, documents: int) -> None:
        super().__init__(root, documents)
        self.root, self.documents = root, documents

    def __str__(self) -> str:
        return (
            f"{self.root} holds {self.documents} cursors, steps or results of an earlier run, but its plan.json is gone. "
            f"Restore plan.json, or start over with --fresh, which removes them."
        )


class OtherProgramError(TowlineError):
    """The state belongs to another program."""

    exit_code: ClassVar[int] = 2

    def __init__(self, root: str, found: str, ours: str) -> None:
        super().__init__(root, found, ours)
        self.root, self.found, self.ours = root, found, ours

    def __str__(self) -> str:
        return (
            f"the state in {self.root} belongs to {self.found}, this is {self.ours}. Nothing was changed: "
            f"give another --state, or start over with --fresh, which keeps a copy of the old plan."
        )


class ParamsChangedError(TowlineError):
    """A resume was asked for with other parameters. Names them, never their values."""

    exit_code: ClassVar[int] = 2

    def __init__(self, changed: tuple[str, ...]) -> None:
        super().__init__(changed)
        self.changed = changed

    def __str__(self) -> str:
        return (
            f"the plan was made with other parameters; changed: {', '.join(self.changed) or 'their order or kind'}. "
            f"Nothing ran: set them back to go on, or start over with --fresh."
        )


class UnfinishedPlanError(TowlineError):
    """A new plan would throw away work that has come part of the way (PLAN-31)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, tasks_left: int, cursors_moved: int) -> None:
        super().__init__(tasks_left, cursors_moved)
        self.tasks_left, self.cursors_moved = tasks_left, cursors_moved

    def __str__(self) -> str:
        return (
            f"the earlier plan is not finished: {_counted(self.tasks_left, 'task is', 'tasks are')} left and "
            f"{_counted(self.cursors_moved, 'cursor has', 'cursors have')} moved. Nothing ran: go on with --resume, or drop that work with --fresh."
        )


class ExpansionError(TowlineError):
    """The items of an ``each`` module give no tasks (PLAN-58). ``index`` is -1 when no single item is to blame."""

    def __init__(self, join: str, index: int, key: str | None, problem: str) -> None:
        super().__init__(join, index, key, problem)
        self.join, self.index, self.key, self.problem = join, index, key, problem

    def __str__(self) -> str:
        which = (
            "" if self.index < 0 else f"item {self.index}" + (f" (key {self.key!r})" if self.key is not None else "")
        )
        return (
            f"{self.join} cannot be expanded: {which + ' ' if which else ''}{self.problem}. "
            "Repair the source of the items, or give each item a unique key of 1 to 128 characters. A source that has run "
            "keeps its value: give it another version= and go on with --resume, or start anew with --fresh."
        )


class FindingError(TowlineError):
    """A blocking finding in a task that is no gate, where it would block nothing (PLAN-54)."""

    def __init__(self, task: str, code: str) -> None:
        super().__init__(task, code)
        self.task, self.code = task, code

    def __str__(self) -> str:
        return (
            f"{self.task} recorded the blocking finding {self.code}, but it is no gate, so nothing would be blocked. "
            f"Declare its module with gate=True, or lower the severity."
        )
