"""Who waits for whom in a plan, by place, with nothing allocated per edge beyond one list entry (SCHED-25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from towline.planning.records import EdgeUse, PlannedTask

Sparse: TypeAlias = dict[int, list[int]]


class Links:
    """The dependents of each task, apart by what their edge accepts.

    ``value`` is the common kind and a list per task; the other kinds are rare and kept in dicts.
    ``always`` holds the dependents that run however the task ends: those of always-run tasks (RUN-55).
    A gate is an ``order`` edge: like any required dependency it blocks when it fails (PLAN-55).
    """

    __slots__ = ("always", "optional", "order", "outcome", "value")

    def __init__(self) -> None:
        self.value: list[list[int] | None] = []
        self.order: Sparse = {}
        self.optional: Sparse = {}
        self.outcome: Sparse = {}
        self.always: Sparse = {}

    def connect(self, task: int, dependent: int, use: EdgeUse) -> None:
        """Let ``dependent`` wait for ``task``."""
        if use == "value":
            targets = self.value[task]
            if targets is None:
                self.value[task] = [dependent]
            else:
                targets.append(dependent)
        else:
            kind = self.order if use == "order" else self.optional if use == "optional" else self.outcome
            kind.setdefault(task, []).append(dependent)

    def connect_always(self, task: int, dependent: int) -> None:
        """Let an always-run ``dependent`` wait for ``task``."""
        self.always.setdefault(task, []).append(dependent)

    def dependents(self, task: int) -> Sequence[int]:
        """Return every dependent, whatever its edge accepts."""
        found: Sequence[int] = self.value[task] or ()
        for kind in (self.order, self.optional, self.outcome, self.always):
            if task in kind:
                found = [*found, *kind[task]] if found else kind[task]
        return found


def dependencies(row: PlannedTask) -> Iterator[tuple[str, EdgeUse]]:
    """Give what a planned task waits for, with the kind of each edge; gates last."""
    edges = row.edges
    if edges:
        for name in row.depends_on:
            yield name, edges.get(name, "value")
    else:
        for name in row.depends_on:
            yield name, "value"
    for name in row.gates or ():
        yield name, "order"
