"""The order of a graph: tiers and cycles. Nodes are ints; no recursion, linear time (PLAN-03, 05, 13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CYCLES_NAMED = 10
"""How many separate cycles one error names; finding each costs a walk over what is left."""


def tiers_of(needs: Sequence[Sequence[int]]) -> list[int]:
    """Return the longest path from a root to each node, from 0; -1 for nodes in or behind a cycle.

    ``needs``: for each node, those it waits for; the same one may be named more than once.
    """
    dependents: list[list[int]] = [[] for _ in needs]
    open_edges = [0] * len(needs)
    ready: list[int] = []
    for node, above in enumerate(needs):
        open_edges[node] = len(above)
        if not above:
            ready.append(node)
        for one in above:
            dependents[one].append(node)
    tiers = [-1] * len(needs)
    tier = 0
    while ready:
        following: list[int] = []
        for node in ready:
            tiers[node] = tier
            for dependent in dependents[node]:
                open_edges[dependent] -= 1
                if not open_edges[dependent]:
                    following.append(dependent)
        ready, tier = following, tier + 1
    return tiers


def cycles_of(needs: Sequence[Sequence[int]], tiers: Sequence[int]) -> list[list[int]]:
    """Return up to ten cycles that share no node, each as ``[a, b, a]``: a needs b, b needs a.

    ``tiers`` are those of ``tiers_of``. Each cycle starts at its smallest node, and which are found
    depends on the numbering alone, so that sorted names give the same text every time (PLAN-02).
    """
    left = {node for node, tier in enumerate(tiers) if tier < 0}
    cycles: list[list[int]] = []
    while left and len(cycles) < CYCLES_NAMED:
        cycle = _walk(needs, left)
        cycles.append(cycle)
        left -= set(cycle)
        left = _without_free(needs, left)
    return cycles


def _walk(needs: Sequence[Sequence[int]], left: set[int]) -> list[int]:
    """Follow the smallest open need from the smallest node until one repeats. Every node left has one."""
    node = min(left)
    step_of: dict[int, int] = {}
    path: list[int] = []
    while node not in step_of:
        step_of[node] = len(path)
        path.append(node)
        node = min(above for above in needs[node] if above in left)
    cycle = path[step_of[node] :]
    start = cycle.index(min(cycle))
    return [*cycle[start:], *cycle[:start], cycle[start]]


def _without_free(needs: Sequence[Sequence[int]], left: set[int]) -> set[int]:
    """Return the nodes that still wait for a cycle once those outside ``left`` count as done."""
    places = sorted(left)
    place_of = {node: place for place, node in enumerate(places)}
    inner = [[place_of[above] for above in needs[node] if above in place_of] for node in places]
    return {places[place] for place, tier in enumerate(tiers_of(inner)) if tier < 0}
