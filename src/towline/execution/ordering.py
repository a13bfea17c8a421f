"""In which order ready tasks start: priority, then critical path, then place (SCHED-03, SCHED-04)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from towline.planning.records import FINAL_STATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from towline.execution.limits import ModuleRules
    from towline.execution.links import Links
    from towline.planning.records import PlannedTask

UNKNOWN_ESTIMATE_S: Final = 120.0
"""What a task without history is taken to need (REP-08)."""

_PLACE_BITS, _PATH_BITS = 24, 44
PLACE_MASK: Final = (1 << _PLACE_BITS) - 1
_PATH_LIMIT: Final = (1 << _PATH_BITS) - 1
_PRIORITY_LIMIT: Final = 999


def place_of(key: int) -> int:
    """Give back the task of an order key."""
    return key & PLACE_MASK


class Ordering:
    """One integer per task; the smallest starts first.

    Effective priority, critical path in microseconds and place are packed in one int: a heap of ints
    compares several times faster than one of tuples. ``keys`` is indexed by place.
    """

    __slots__ = ("_estimates", "_paths", "_priorities", "_rules", "keys")

    def __init__(self, rules: Mapping[str, ModuleRules], estimates: Mapping[str, float]) -> None:
        self._rules = rules
        self._estimates = estimates
        self._paths: list[float] = []
        self._priorities: list[int] = []
        self.keys: list[int] = []

    def estimate_s(self, row: PlannedTask) -> float:
        """Return the estimate of one task in seconds: its own, else its module's, else 120."""
        if not self._estimates:
            return UNKNOWN_ESTIMATE_S
        estimate = self._estimates.get(row.id)
        if estimate is None:
            estimate = self._estimates.get(row.module, UNKNOWN_ESTIMATE_S)
        return estimate

    def critical_path_s(self, place: int) -> float:
        """Return the seconds from the start of this task to the end of the longest chain behind it."""
        return self._paths[place]

    def longest_chain(self, links: Links, parents: Mapping[int, int]) -> list[int]:
        """Follow the longest path from its first task to its last; empty when nothing is left to run."""
        paths = self._paths
        chain: list[int] = []
        behind: Iterable[int] = [place for place, key in enumerate(self.keys) if key]  # a final task has none
        while (place := max(behind, key=lambda one: (paths[one], -one), default=None)) is not None:
            chain.append(place)
            behind = [parents[place]] if place in parents else links.dependents(place)
        return chain

    def extend(self, rows: Sequence[PlannedTask], links: Links, parents: Mapping[int, int], start: int) -> None:
        """Order the tasks from ``start`` on; those before keep their keys.

        The rows stand in topological order, but that children of a join may stand anywhere behind it: a
        child leads to its join, so children come after all others here.
        """
        count = len(rows)
        self._paths.extend([0.0] * (count - start))
        self._priorities.extend([0] * (count - start))
        self.keys.extend([0] * (count - start))
        children: list[int] = []
        dependents = links.dependents
        for place in range(count - 1, start - 1, -1):
            row = rows[place]
            if row.state in FINAL_STATES:
                continue  # kept from an earlier run: it neither starts nor lengthens what is ahead
            if place in parents:
                children.append(place)
            else:
                self._place(place, row, dependents(place))
        for place in children:
            self._place(place, rows[place], (parents[place],))

    def _place(self, place: int, row: PlannedTask, dependents: Iterable[int]) -> None:
        rules = self._rules.get(row.module)
        priority = rules.priority if rules is not None else 0
        longest = 0.0
        paths, priorities = self._paths, self._priorities
        for dependent in dependents:
            if paths[dependent] > longest:
                longest = paths[dependent]
            if priorities[dependent] > priority:
                priority = priorities[dependent]
        path = self.estimate_s(row) + longest
        paths[place] = path
        priorities[place] = priority
        micros = min(_PATH_LIMIT, int(path * 1e6))
        self.keys[place] = (
            ((_PRIORITY_LIMIT - priority) << (_PATH_BITS + _PLACE_BITS))
            | ((_PATH_LIMIT - micros) << _PLACE_BITS)
            | place
        )
