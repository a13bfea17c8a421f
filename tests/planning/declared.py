"""Modules made by hand, and a reference model of what a plan of them is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from towline.modules.spec import (
    NO_SETTINGS,
    ArtifactUse,
    Edge,
    ModuleRef,
    ModuleSettings,
    ModuleSpec,
    SelectorRef,
    SourceRef,
)
from towline.planning.built import BuiltPlan
from towline.planning.graph import build_plan
from towline.planning.records import EdgeUse, PlanDocument

FILE = "pipe.py"


def body(ctx: object, inputs: dict[str, Any], item: object) -> None:
    """Do nothing; the planner never calls it."""


def spec(name: str, *edges: Edge, line: int = 1, each: Any = None, result: Any = Any, **more: Any) -> ModuleSpec:
    """Declare a module; ``more`` are its settings, but for those that ``ModuleSpec`` has itself."""
    fields = {key: more.pop(key) for key in ("declared", "arguments", "matrix", "code") if key in more}
    fields.setdefault("declared", object())
    return ModuleSpec(
        name=name,
        kind="function",
        sync=True,
        call=body,
        edges=edges,
        each=each,
        result_type=result,
        settings=ModuleSettings(**more) if more else NO_SETTINGS,  # as a declaration without any has
        source=SourceRef(FILE, line),
        **fields,
    )


def edge(to: ModuleSpec | SelectorRef, use: EdgeUse = "value", param: str | None = "p", **more: Any) -> Edge:
    """Depend on a module or a selector."""
    target = to if isinstance(to, SelectorRef) else ModuleRef(to.name, to)
    return Edge(to=target, use=use, param=None if use == "order" else param, source=SourceRef(FILE, 9), **more)


def takes(producer: ModuleSpec, artifact: str, **more: Any) -> ArtifactUse:
    """Consume an artifact."""
    return ArtifactUse(module=ModuleRef(producer.name, producer), artifact=artifact, **more)


def code_of(module: ModuleSpec) -> str:
    """Stand in for the digest of a module's source text."""
    return f"code:{module.name}"


def planned(*specs: ModuleSpec, **options: Any) -> BuiltPlan:
    """Build a plan with a fixed code digest."""
    options.setdefault("code_digest", code_of)
    return build_plan(specs, **options)


def ids(plan: BuiltPlan) -> list[str]:
    """The ids of all tasks, in plan order."""
    return [task.id for task in plan.tasks]


def document(plan: BuiltPlan, **more: Any) -> PlanDocument:
    """A fresh document of a plan."""
    fields = plan.document_fields(plan_id="00000001-0000000a", run_id="r-1", now=AT, owner=None)
    return PlanDocument(**{"tasks": plan.tasks, **fields, **more})


AT = "2026-03-01T10:00:00.000Z"

Graph = Mapping[int, Mapping[int, EdgeUse]]
"""Node to the nodes it depends on, with the kind of each edge. Only smaller nodes: no cycle."""


@st.composite
def graphs(draw: st.DrawFn, most: int = 200) -> Graph:
    """Draw a graph without cycles, of up to ``most`` nodes and a few edges per node."""
    size = draw(st.integers(1, most))
    seed = draw(st.randoms(use_true_random=False))
    density = draw(st.sampled_from([0.5, 1.5, 3.0]))
    uses: Sequence[EdgeUse] = ("value", "value", "order", "optional", "outcome")
    graph: dict[int, dict[int, EdgeUse]] = {}
    for node in range(size):
        count = min(node, int(seed.random() * 2 * density))
        graph[node] = {above: seed.choice(uses) for above in seed.sample(range(node), count)}
    return graph


def modules_of(graph: Graph, settings: Callable[[int], Mapping[str, Any]] = lambda node: {}) -> list[ModuleSpec]:
    """Declare one module per node, named ``n<number>``."""
    made: list[ModuleSpec] = []
    for node in sorted(graph):
        edges = [edge(made[above], use, f"p{above}") for above, use in graph[node].items()]
        made.append(spec(f"n{node}", *edges, line=node + 1, **settings(node)))
    return made


def reference_closure(graph: Graph, roots: Sequence[int]) -> set[int]:
    """Which nodes come along: every way down that has no optional edge, by repeated passes until nothing is new."""
    found = set(roots)
    while True:
        more = {above for node in found for above, use in graph[node].items() if use != "optional"} - found
        if not more:
            return found
        found |= more


def reference_tier(graph: Graph, within: set[int], node: int) -> int:
    """Longest path from a root, straight from the definition."""
    tiers: dict[int, int] = {}
    for one in sorted(within):  # dependencies have smaller numbers
        above = [tiers[below] for below in graph[one] if below in within]
        tiers[one] = 1 + max(above, default=-1)
    return tiers[node]
