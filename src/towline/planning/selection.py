"""Which tasks a run is about: ``--module``, ``--skip``, ``--category``, ``--phase`` (PLAN-48, CLI-02 to 04). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from towline.errors.planning import SelectionError
from towline.identity.names import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from towline.modules.spec import ModuleSpec
    from towline.planning.records import PlannedTask


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What the flags name, each entry as typed; commas are split already (``split_names``)."""

    modules: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()


class Selection(msgspec.Struct, frozen=True):
    """Places of tasks in the plan. ``chosen``: those of this run, ``None`` for all. ``deselected``: to be skipped."""

    chosen: frozenset[int] | None = None
    deselected: frozenset[int] = frozenset()


def split_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Split repeated flags at their commas, but for those in the brackets of a key: ``a,test[3.12,linux]``."""
    names: list[str] = []
    for text in texts:
        start = depth = 0
        for place, character in enumerate(text):
            if character == "," and not depth:
                names.append(text[start:place])
                start = place + 1
            depth += (character == "[") - (character == "]")
        names.append(text[start:])
    return tuple(name.strip() for name in names if name.strip())


def select(
    tasks: Sequence[PlannedTask], specs: Mapping[str, ModuleSpec], phases: Sequence[str], choice: Choice
) -> Selection:
    """Resolve the flags against a plan.

    Chosen are the named tasks and all they need, gates included; the others stay ``pending``, outside the
    run. A succeeded task is never deselected.

    Args:
        tasks: The rows of the plan, in order.
        specs: Module name to module.
        phases: The pipeline's phases.
        choice: What the flags say.

    Raises:
        SelectionError: An unknown name (with the nearest known ones), a task both chosen and skipped, or
            nothing chosen; all of them together.
    """
    if choice == Choice():
        return Selection()  # as nearly always: names need not be looked up
    names = _Names(tasks)
    asked = set(names.find_all("--module", choice.modules))
    asked.update(names.with_word("--category", choice.categories, _categories(tasks, specs)))
    asked.update(
        names.with_word("--phase", choice.phases, {name.casefold(): _in_phase(tasks, name) for name in phases})
    )
    skipped = set(names.find_all("--skip", choice.skips))
    both = sorted(tasks[place].id for place in asked & skipped)
    if both:
        names.problems.append(f"{', '.join(both[:5])} is both chosen and skipped: leave out one of the two flags")
    chooses = bool(choice.modules or choice.categories or choice.phases)
    if chooses and not asked and not names.problems:
        names.problems.append("nothing is chosen")
    if names.problems:
        raise SelectionError(tuple(names.problems))
    deselected = frozenset(place for place in skipped if tasks[place].state != "succeeded")
    return Selection(_closure(tasks, asked) if chooses else None, deselected)


class _Names:
    """Finds tasks by module name or id, without case where that is unambiguous."""

    def __init__(self, tasks: Sequence[PlannedTask]) -> None:
        self.problems: list[str] = []
        self._exact: dict[str, list[int]] = {}
        self._folded: dict[str, set[str]] = {}
        for place, task in enumerate(tasks):
            for name in {task.id, task.module}:
                self._exact.setdefault(name, []).append(place)
                self._folded.setdefault(name.casefold(), set()).add(name)

    def find_all(self, flag: str, names: Iterable[str]) -> Iterable[int]:
        for name in names:
            yield from self._find(flag, name)

    def _find(self, flag: str, name: str) -> list[int]:
        if name in self._exact:
            return self._exact[name]
        alike = self._folded.get(name.casefold(), set())
        if len(alike) == 1:
            return self._exact[next(iter(alike))]
        hint = suggestion(name, self._exact).rstrip(".")
        self.problems.append(f"{flag} {name}: the plan has no such module or task.{hint}".rstrip("."))
        return []

    def with_word(self, flag: str, words: Iterable[str], known: Mapping[str, list[int]]) -> Iterable[int]:
        """Find the tasks of categories or phases, compared without case."""
        for word in words:
            places = known.get(word.casefold())
            if places is None:
                self.problems.append(f"{flag} {word}: the plan has none.{suggestion(word, known)}".rstrip("."))
            else:
                yield from places


def _categories(tasks: Sequence[PlannedTask], specs: Mapping[str, ModuleSpec]) -> dict[str, list[int]]:
    known: dict[str, list[int]] = {}
    for place, task in enumerate(tasks):
        category = specs[task.module].settings.category
        if category is not None:
            known.setdefault(category.casefold(), []).append(place)
    return known


def _in_phase(tasks: Sequence[PlannedTask], phase: str) -> list[int]:
    return [place for place, task in enumerate(tasks) if task.phase == phase]


def _closure(tasks: Sequence[PlannedTask], asked: Iterable[int]) -> frozenset[int]:
    """Return the asked tasks and all they need. A join comes with its children, a child with its join."""
    index = {task.id: place for place, task in enumerate(tasks)}
    children: dict[str, list[int]] = {}
    for place, task in enumerate(tasks):
        if task.parent is not None:
            children.setdefault(task.parent, []).append(place)
    whole_joins = {place for place in asked if tasks[place].join}
    chosen: set[int] = set()
    waiting = list(asked)
    while waiting:
        place = waiting.pop()
        if place in chosen:
            continue
        chosen.add(place)
        task = tasks[place]
        above = [index[name] for name in (*task.depends_on, *(task.gates or ()))]
        whole_joins.update(one for one in above if tasks[one].join)
        waiting += above
        if task.parent is not None:
            waiting.append(index[task.parent])
        if place in whole_joins:
            waiting += children.get(task.id, ())
    return frozenset(chosen)
