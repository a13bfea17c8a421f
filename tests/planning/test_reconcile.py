"""A plan that was kept against a program that has changed."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from planning.declared import Graph, code_of, document, edge, graphs, modules_of, planned, spec
from towline.modules.spec import ModuleSpec
from towline.planning.children import expansion
from towline.planning.document import encode_document
from towline.planning.live import LivePlan, apply
from towline.planning.loading import decode_document
from towline.planning.reconcile import Reconciled, reconcile
from towline.planning.records import PlannedTask
from towline.testing import clause


def done(plan_tasks: list[PlannedTask]) -> list[PlannedTask]:
    """Mark all tasks as succeeded, each with counts of its own, as a run would leave them."""
    for place, task in enumerate(plan_tasks):
        task.state, task.done, task.attempts, task.epoch = "succeeded", place, 1, 3
    return plan_tasks


@clause("PLAN-34")
@settings(max_examples=60, deadline=None)
@given(graph=graphs(60), data=st.data())
def test_classes_follow_a_reference_model(graph: Graph, data: st.DataObject) -> None:
    """Below a change things run again, beside it they do not; both are what a resume is for."""
    nodes = sorted(graph)
    changed = set(data.draw(st.lists(st.sampled_from(nodes), max_size=3, unique=True)))
    recoded = set(data.draw(st.lists(st.sampled_from(nodes), max_size=3, unique=True)))
    leaves = [node for node in nodes if not any(node in graph[other] for other in nodes)]
    gone = set(data.draw(st.lists(st.sampled_from(leaves), max_size=2, unique=True)))
    earlier = done(planned(*modules_of(graph)).tasks)

    now = modules_of(graph, lambda node: {"version": "2"} if node in changed else {})
    kept_modules = [one for node, one in enumerate(now) if node not in gone]
    new = spec("new", *(edge(one, "order") for one in kept_modules[:3]))
    built = planned(
        *kept_modules,
        new,
        code_digest=lambda one: (
            code_of(one) + ("!" if int("0" + one.name[1:].strip("ew")) in recoded and one.name != "new" else "")
        ),
    )
    rows, classes = reconcile(earlier, built)

    touched: set[int] = set()  # nodes that changed or have something above them that did
    for node in nodes:
        if node in changed or touched & set(graph[node]):
            touched.add(node)
    expected: dict[str, set[str]] = {
        "kept": {f"n{node}" for node in nodes if node not in touched | gone},
        "changed": {f"n{node}" for node in changed - gone},
        "stale": {f"n{node}" for node in touched - changed - gone},
        "removed": {f"n{node}" for node in gone},
        "added": {"new"},
        "code_changed": {f"n{node}" for node in recoded - touched - gone},
    }
    assert {name: set(getattr(classes, name)) for name in expected} == expected
    states = {row.id: (row.state, row.done is not None, row.attempts) for row in rows}
    for name, state in states.items():
        assert state == (("succeeded", True, 1) if name in expected["kept"] else ("pending", False, 0))
    # A write of the last claim of a changed task may still come; it must find a greater epoch than its own.
    assert {row.epoch for row in rows if row.id != "new"} <= {3}


def grown(*items: str) -> tuple[list[PlannedTask], dict[str, Any]]:
    """An earlier plan with two `each` modules over lists, all done, as it comes from disk; and how to build it again."""
    parts: dict[str, Any] = {"list": spec("list"), "tools": spec("tools")}
    parts["pack"] = spec("pack", edge(parts["tools"]), each=edge(parts["list"]))
    plan = LivePlan(document(planned(spec("ship", edge(parts["pack"])))))
    record = expansion(
        *(plan.row("pack"), list(items)),
        seq=1,
        source_digest="sha256:s",
        item_digest=lambda item: f"sha256:{item}",
        tasks_now=3,
        max_tasks=10,
    )
    apply(plan, record)
    done(plan.document.tasks)
    return decode_document(encode_document(plan.snapshot())).tasks, parts


def again(earlier: list[PlannedTask], pack: ModuleSpec) -> tuple[dict[str, PlannedTask], Reconciled]:
    rows, classes = reconcile(earlier, planned(spec("ship", edge(pack))))
    return {row.id: row for row in rows}, classes


@clause("PLAN-34")
def test_children_of_an_unchanged_join_are_kept() -> None:
    """They are most of the plan."""
    earlier, parts = grown("a", "b")
    rows, classes = again(earlier, parts["pack"])
    assert classes.is_same
    assert rows["pack[b]"].state == rows["pack"].state == "succeeded"
    assert rows["pack[b]"].item == 1
    assert rows["pack"].source_digest == "sha256:s"


@clause("PLAN-34")
def test_children_of_a_join_whose_list_comes_from_elsewhere_are_kept_but_those_of_changed_ones_are_not() -> None:
    """A new source that gives the same items costs nothing; a new version of the body costs all of them."""
    earlier, parts = grown("a", "b")
    moved = spec("list", version="2")
    rows, classes = again(earlier, spec("pack", edge(parts["tools"]), each=edge(moved)))
    assert (classes.changed, classes.stale) == (["list"], ["pack", "ship"])
    assert classes.kept == ["tools", "pack[a]", "pack[b]"]
    assert rows["pack[a]"].state == "succeeded"
    assert rows["pack"].source_digest is None  # so it is expanded again, and the children are held till then

    rows, classes = again(earlier, spec("pack", edge(parts["tools"]), each=edge(parts["list"]), version="2"))
    assert classes.changed == ["pack", "pack[a]", "pack[b]"]

    rows, classes = again(earlier, spec("pack", edge(spec("tools", version="2")), each=edge(parts["list"])))
    assert classes.stale == ["pack", "ship", "pack[a]", "pack[b]"]


@clause("PLAN-38")
def test_tasks_of_modules_that_are_gone_are_dropped_with_their_children() -> None:
    """Nothing could run them, and nothing waits for them."""
    earlier, parts = grown("a")
    rows, classes = reconcile(earlier, planned(parts["tools"]))
    assert [row.id for row in rows] == ["tools"]
    assert set(classes.removed) == {"list", "pack", "ship", "pack[a]"}
    assert set(classes.dropped) == set(classes.removed)


@clause("PLAN-46")
def test_gates_and_settings_of_today_stand_beside_the_states_of_yesterday() -> None:
    """They are in no digest: a new gate must hold back what it guards, and runs nothing again."""
    load = spec("load", phase="import")
    earlier = done(planned(load, phases=("prepare", "import")).tasks)
    judge = spec("judge", gate=True, phase="prepare")
    built = planned(load, judge, phases=("prepare", "import"))

    rows, classes = reconcile(earlier, built)

    assert (classes.kept, classes.added) == (["load"], ["judge"])
    assert {row.id: (row.state, row.gates) for row in rows} == {
        "judge": ("pending", None),
        "load": ("succeeded", ("judge",)),
    }
