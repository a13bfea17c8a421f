"""The graphs that are measured: for each task the numbers of those that it waits for."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Graph = list[list[int]]


def wide(count: int) -> Graph:
    """One task, ``count`` after it, one after all of them."""
    return [[], *([0] for _ in range(count)), list(range(1, count + 1))]


def chain(count: int) -> Graph:
    """Each task after the one before."""
    return [[number - 1] if number else [] for number in range(count)]


def chains(number: int, length: int) -> Graph:
    """Chains side by side."""
    return [[at - 1] if at % length else [] for at in range(number * length)]


def layered(count: int, layers: int = 20, dependencies: int = 3, seed: int = 7) -> Graph:
    """Layers of equal size; each task waits for three random ones of the layer before."""
    random, size = Random(seed), count // layers
    graph: Graph = []
    for number in range(count):
        first = number // size * size
        graph.append(sorted(random.sample(range(first - size, first), dependencies)) if first else [])
    return graph


def grid(side: int) -> Graph:
    """A square; each task waits for its upper and its left neighbour."""
    graph: Graph = []
    for row in range(side):
        for column in range(side):
            upper = [(row - 1) * side + column] if row else []
            left = [row * side + column - 1] if column else []
            graph.append(upper + left)
    return graph


SHAPES: dict[str, Callable[[], Graph]] = {
    "wide-10000": lambda: wide(10_000),
    "chain-10000": lambda: chain(10_000),
    "layered-10000": lambda: layered(10_000),
    "grid-100x100": lambda: grid(100),
    "wide-100000": lambda: wide(100_000),
    "chains-10x1000": lambda: chains(10, 1_000),
    "chains-100x1000": lambda: chains(100, 1_000),
}


def last_tasks(graph: Graph) -> list[int]:
    """Return the tasks that nothing waits for."""
    waited_for = {one for waits in graph for one in waits}
    return [number for number in range(len(graph)) if number not in waited_for]
