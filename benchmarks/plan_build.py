"""Time per task of building a plan: wide, chain, layered and grid graphs of no-op modules.

Run: ``python benchmarks/plan_build.py [tasks] [repeats]``. Declaring the modules does not count.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from typing import TYPE_CHECKING

from towline.modules.spec import Edge, ModuleRef, ModuleSpec
from towline.planning.graph import build_plan

if TYPE_CHECKING:
    from collections.abc import Callable


def no_op(ctx: object, inputs: dict[str, object], item: object) -> None:
    """Do nothing."""


def module(name: str, above: list[ModuleSpec]) -> ModuleSpec:
    """Declare a module that takes the values of others."""
    edges = tuple(Edge(to=ModuleRef(one.name, one), use="value", param=f"p{n}") for n, one in enumerate(above))
    return ModuleSpec(name=name, kind="function", sync=True, call=no_op, declared=object(), edges=edges)


def wide(count: int) -> list[ModuleSpec]:
    """One task, then ``count - 2``, then one that takes them all."""
    first = module("first", [])
    middle = [module(f"middle{n:06}", [first]) for n in range(count - 2)]
    return [first, *middle, module("last", middle)]


def chain(count: int) -> list[ModuleSpec]:
    """Each task needs the one before."""
    made = [module("link000000", [])]
    for n in range(1, count):
        made.append(module(f"link{n:06}", [made[-1]]))
    return made


def layered(count: int, width: int = 100) -> list[ModuleSpec]:
    """Layers of ``width``; each task needs three of the layer above."""
    made: list[ModuleSpec] = []
    for n in range(count):
        row, column = divmod(n, width)
        above = [made[(row - 1) * width + (column + shift) % width] for shift in range(3)] if row else []
        made.append(module(f"layer{n:06}", above))
    return made


def grid(count: int) -> list[ModuleSpec]:
    """A square; each task needs its left and its upper neighbour."""
    side = int(count**0.5)
    made: list[ModuleSpec] = []
    for n in range(side * side):
        row, column = divmod(n, side)
        above = ([made[n - 1]] if column else []) + ([made[n - side]] if row else [])
        made.append(module(f"cell{n:06}", above))
    return made


def main() -> None:
    """Print the median microseconds per task of each shape."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    shapes: list[Callable[[int], list[ModuleSpec]]] = [wide, chain, layered, grid]
    for shape in shapes:
        specs = shape(count)
        spent: list[float] = []
        for _ in range(repeats):
            gc.collect()
            began = time.perf_counter()
            plan = build_plan(specs, code_digest=lambda spec: "sha256:0")
            spent.append(time.perf_counter() - began)
        print(
            f"{shape.__name__:8} {len(plan.tasks):7,} tasks  {statistics.median(spent) / count * 1e6:6.1f} us per task"
        )


if __name__ == "__main__":
    main()
