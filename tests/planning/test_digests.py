"""What makes a task another task, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.declared import Graph, edge, graphs, modules_of, planned, spec, takes
from towline.modules.spec import ModuleSpec
from towline.planning.digests import canonical_json, child_digests, params_digests, program_fingerprint
from towline.testing import clause


class Wheel:
    pass


def own(module: ModuleSpec, **options: Any) -> str:
    plan = planned(module, **options)
    return plan.tasks[plan.index.get("m", len(plan.tasks) - 1)].own_digest


@clause("PLAN-14")
@pytest.mark.parametrize(
    "other",
    [
        spec("m2"),
        spec("m", arguments=(("region", "eu"),)),
        spec("m", version="2"),
        spec("m", phase="late"),
        spec("m", edge(spec("above"))),
        spec("m", edge(spec("above"), "order")),
        spec("m", edge(spec("other"))),
        spec("m", produces={"log": "*.log"}),
        spec("m", consumes=(takes(spec("p", produces={"log": "*.log"}), "log"),)),
        spec("m", result=Wheel),
        spec("m", matrix={"x": ["1"]}),
    ],
)
def test_what_a_task_is_enters_its_own_digest(other: ModuleSpec) -> None:
    """A change of any of these may change the result, so the task runs again."""
    assert own(other, phases=("late",)) != own(spec("m"))


@clause("PLAN-14")
def test_how_a_task_is_run_does_not_enter_its_own_digest() -> None:
    """A longer timeout or a repaired body must not throw away a cursor."""
    tuned = spec(
        "m", timeout_s=5.0, priority=200, tags=frozenset({"db"}), gate=True, category="x", locks=frozenset({"l"})
    )
    assert own(tuned) == own(spec("m"))
    assert own(spec("m"), code_digest=lambda one: "another source text") == own(spec("m"))


@clause("PLAN-15")
@settings(max_examples=40, deadline=None)
@given(graph=graphs(60), data=st.data())
def test_closure_digest_changes_exactly_for_what_is_below(graph: Graph, data: st.DataObject) -> None:
    """Reconcile trusts it: too few changes would keep stale results, too many would run everything."""
    changed = data.draw(st.sampled_from(sorted(graph)))
    below = {changed}
    for node in sorted(graph):
        if below & set(graph[node]):
            below.add(node)

    before = planned(*modules_of(graph))
    after = planned(*modules_of(graph, lambda node: {"version": "2"} if node == changed else {}))

    differ = {
        task.id
        for task, now in zip(before.tasks, after.tasks, strict=True)
        if task.closure_digest != now.closure_digest
    }
    assert differ == {f"n{node}" for node in below}
    assert before.graph_digest != after.graph_digest


@clause("PLAN-15")
def test_a_child_stands_on_its_item_not_on_the_list_that_it_came_from() -> None:
    """One new file in a folder must not run the thousand others again."""
    join = planned(spec("pack", each=edge(spec("source")))).tasks[1]
    assert child_digests(join, "above", "a", "sha256:1") == child_digests(join, "above", "a", "sha256:1")
    base_own, base = child_digests(join, "above", "a", "sha256:1")
    assert child_digests(join, "above", "a", "sha256:2") == (base_own, child_digests(join, "above", "a", "sha256:2")[1])
    assert (
        len({base, *(child_digests(join, *other)[1] for other in (("x", "a", "1"), ("above", "b", "sha256:1")))}) == 3
    )


class Secret:
    """Stands for the masking room's."""


@clause("PLAN-16")
def test_params_digest_covers_all_parameters_but_secrets() -> None:
    """A changed region is another job; a rotated token is not."""
    first = params_digests({"region": "eu", "count": 3, "token": Secret()}, secret=Secret)
    assert first == params_digests({"count": 3, "token": Secret(), "region": "eu"}, secret=Secret)
    assert set(first[1]) == {"region", "count"}

    other_total, other = params_digests({"region": "us", "count": 3}, secret=Secret)
    assert other_total != first[0]
    assert {name for name in other if other[name] != first[1][name]} == {"region"}
    assert canonical_json({"b": 1, "a": [1, {"d": 2, "c": 3}]}) == b'{"a":[1,{"c":3,"d":2}],"b":1}'


def test_the_fingerprint_covers_kernels_too() -> None:
    """Nodes that share the graph but not the kernels would compute different numbers."""
    assert program_fingerprint("g", {"add": "1"}) != program_fingerprint("g", {"add": "2"}) != program_fingerprint("g")


class Mode:
    def __init__(self, name: str) -> None:
        self.name = name


def test_parameters_without_json_form_still_tell_instances_apart() -> None:
    """`Deploy(Mode("fast"), name="x")` is not `Deploy(Mode("safe"), name="x")`, and no address may enter a digest."""
    fast, safe = (own(spec("m", arguments=(("mode", Mode(name)),))) for name in ("fast", "safe"))
    assert fast != safe
    assert fast == own(spec("m", arguments=(("mode", Mode("fast")),)))
