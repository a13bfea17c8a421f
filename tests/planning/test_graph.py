"""What is planned: closure, order, tiers, cycles and refusals."""

from __future__ import annotations

import itertools
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.declared import Graph, edge, graphs, ids, modules_of, planned, reference_closure, reference_tier, spec
from towline.errors.declaration import DeclarationError
from towline.errors.planning import CycleError, PlanBuildError, PlanTooLargeError
from towline.modules.spec import Edge, ModuleRef, ModuleSpec, SelectorRef, SourceRef
from towline.planning.built import BuiltPlan
from towline.planning.ordering import cycles_of, tiers_of
from towline.testing import clause

TAGGED = SelectorRef("tag", "db")


def facts(plan: BuiltPlan) -> list[tuple[object, ...]]:
    """Everything of a plan that the order of registration could change."""
    return [(task, plan.depends_on[place], plan.inputs[place]) for place, task in enumerate(plan.tasks)]


@clause("MOD-12")
@settings(max_examples=60, deadline=None)
@given(graph=graphs(), data=st.data())
def test_required_edges_bring_their_modules_and_optional_ones_never_do(graph: Graph, data: st.DataObject) -> None:
    """Users name what they want; a forgotten dependency would run against nothing."""
    made = modules_of(graph)
    roots = data.draw(st.lists(st.sampled_from(sorted(graph)), min_size=1, max_size=5, unique=True))

    plan = planned(*(made[root] for root in roots))

    assert set(ids(plan)) == {f"n{node}" for node in reference_closure(graph, roots)}


@clause("PLAN-02")
@settings(max_examples=40, deadline=None)
@given(graph=graphs(60), seed=st.randoms(use_true_random=False))
def test_order_of_registration_changes_nothing(graph: Graph, seed: random.Random) -> None:
    """A plan that depended on the order of imports could not be resumed."""
    made = modules_of(graph)
    shuffled = list(made)
    seed.shuffle(shuffled)

    first, second = planned(*made), planned(*shuffled)

    assert facts(first) == facts(second)
    assert first.graph_digest == second.graph_digest


@clause("PLAN-05")
@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_tier_is_the_longest_path_and_tasks_stand_in_topological_order(graph: Graph) -> None:
    """People read tiers, and everything that walks the plan once relies on its order."""
    plan = planned(*modules_of(graph))

    everything = set(graph)
    for task in plan.tasks[:40]:
        assert task.tier == reference_tier(graph, everything, int(task.id[1:]))
    for place, above in enumerate(plan.depends_on):
        assert all(one < place for one in above)
    assert ids(plan) == [task.id for task in sorted(plan.tasks, key=lambda task: (task.tier, task.id))]


@clause("PLAN-01")
@settings(max_examples=40, deadline=None)
@given(graph=graphs(80))
def test_a_task_depends_on_what_was_declared_and_nothing_else(graph: Graph) -> None:
    """The plan comes from declared dependencies alone."""
    plan = planned(*modules_of(graph))

    for task in plan.tasks:
        declared = {f"n{above}": use for above, use in graph[int(task.id[1:])].items()}
        kinds = {name: (task.edges or {}).get(name, "value") for name in task.depends_on}
        assert kinds == declared
        assert task.depends_on == tuple(sorted(declared))
        assert [plan.tasks[place].id for place in plan.depends_on[plan.index[task.id]]] == list(task.depends_on)


@clause("PLAN-03")
@settings(max_examples=40, deadline=None)
@given(graph=graphs(60), data=st.data())
def test_a_cycle_is_refused_with_a_path_that_is_one(graph: Graph, data: st.DataObject) -> None:
    """A cycle would wait for ever; the path and its places are what the user repairs."""
    high = data.draw(st.sampled_from(sorted(graph)))
    low = data.draw(
        st.sampled_from(sorted(reference_closure({n: dict.fromkeys(a, "value") for n, a in graph.items()}, [high])))
    )
    ring = {node: set(above) for node, above in graph.items()}
    ring[low].add(high)
    needs = [sorted(ring[node]) for node in sorted(ring)]
    cycles = cycles_of(needs, tiers_of(needs))

    assert cycles
    for cycle in cycles:
        assert cycle[0] == cycle[-1] == min(cycle)
        assert all(above in needs[node] for node, above in itertools.pairwise(cycle))


@clause("PLAN-03")
@pytest.mark.parametrize("use", ["value", "order", "optional", "outcome"])
def test_a_cycle_through_any_kind_of_edge_names_its_places(use: str) -> None:
    """Optional and outcome edges wait too, so a ring of them hangs as well."""
    first = spec("a", line=3)
    second = spec("b", edge(first, "value"))
    closing = Edge(to=ModuleRef("b", second), use=use, source=SourceRef("pipe.py", 12))  # type: ignore[arg-type]
    ring = spec("a", closing, declared=first.declared)
    again = spec("b", edge(ring), declared=second.declared)

    with pytest.raises(CycleError) as caught:
        planned(ring, again)

    assert caught.value.path == ("a", "b", "a")
    assert "a -> b -> a" in str(caught.value)
    assert "pipe.py:12" in str(caught.value)
    assert "pipe.py:9" in str(caught.value)


@clause("PLAN-03")
def test_a_cycle_through_selectors_gates_and_each_is_refused() -> None:
    """Edges that nobody wrote down as such close rings all the same."""
    one = spec("one", edge(TAGGED, "order"), tags=frozenset({"db"}))
    two = spec("two", edge(TAGGED, "order"), tags=frozenset({"db"}))
    with pytest.raises(CycleError, match="one -> two -> one"):
        planned(one, two)

    late = spec("late", phase="import")
    loose = spec("loose", edge(late))
    gate = spec("gate", edge(loose), gate=True, phase="prepare")
    with pytest.raises(CycleError, match="because gate is a gate of an earlier phase"):
        planned(gate, phases=("prepare", "import"))

    source = spec("source")
    pack = spec("pack", each=edge(source))
    ring = spec("source", edge(pack), declared=source.declared)
    with pytest.raises(CycleError, match="pack -> source -> pack"):
        planned(spec("pack", each=edge(ring), declared=pack.declared), ring)


@clause("MOD-12")
def test_a_module_that_needs_itself_is_a_cycle() -> None:
    """The shortest ring has one step."""
    plain = spec("a")
    with pytest.raises(CycleError) as caught:
        planned(spec("a", edge(plain), declared=plain.declared))
    assert caught.value.path == ("a", "a")


@clause("PLAN-04")
def test_all_problems_are_one_error() -> None:
    """Repairing one problem per start wastes an afternoon."""
    late = spec("late", phase="import")
    problems = [
        spec("Build"),
        spec("build"),
        spec("lost", phase="nowhere"),
        spec("early", edge(late), phase="export"),
        spec("stop", gate=True, always_run=True, phase="export"),
        spec("chooses", edge(SelectorRef("tag", "bd"), "order")),
        spec("twice", matrix={"x": ["a", "A"]}),
    ]

    with pytest.raises(PlanBuildError) as caught:
        planned(*problems, phases=("export", "import"))

    text = str(caught.value)
    for words in ("differ only in case", "'nowhere'", "later phase 'import'", "always_run=True", "'bd'", "twice[A]"):
        assert words in text
    assert len(caught.value.problems) == 6
    assert isinstance(caught.value, DeclarationError)
    assert caught.value.exit_code == 2
    assert type(caught.value)(*caught.value.args).problems == caught.value.problems


@clause("MOD-05")
def test_two_modules_of_one_name_are_refused_with_both_places_but_one_given_twice_is_one() -> None:
    """Two tasks of one id would share one cursor; the same object twice is just one module."""
    with pytest.raises(PlanBuildError, match=r"pipe.py:3 and at pipe.py:8"):
        planned(spec("a", line=8), spec("a", line=3))

    one = spec("a")
    assert ids(planned(one, one)) == ["a"]
    assert ids(planned(spec("a", declared=["eu"]), spec("a", declared=["eu"]))) == ["a"]


@clause("MOD-06")
def test_a_file_that_was_loaded_twice_says_so() -> None:
    """The usual cause is `python file.py` beside an import of it, and the cure is another command."""

    def code(home: str) -> type:
        return type("Body", (), {"__module__": home})

    with pytest.raises(PlanBuildError, match=r"'__main__' and 'release'.*towline run pipe.py"):
        planned(spec("a", code=code("__main__")), spec("a", code=code("release")))


@clause("MOD-21")
def test_too_many_tasks_are_refused_before_they_are_made() -> None:
    """A typo in an axis must not fill the memory first."""
    huge = spec("huge", matrix={"x": range(10_000), "y": range(10_000)})
    with pytest.raises(PlanTooLargeError) as caught:
        planned(huge, spec("one"))
    assert (caught.value.count, caught.value.limit) == (100_000_001, 100_000)


def chain(length: int) -> list[ModuleSpec]:
    made = [spec("link0")]
    for number in range(1, length):
        made.append(spec(f"link{number}", edge(made[-1])))
    return made


@clause("PLAN-13")
def test_a_chain_of_20_000_needs_no_recursion() -> None:
    """Python's stack ends at a thousand frames; plans do not."""
    made = chain(20_000)
    depth = len(_frames())
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 150)
    try:
        plan = planned(made[-1])
    finally:
        sys.setrecursionlimit(limit)
    assert len(plan.tasks) == 20_000
    assert plan.tasks[-1].tier == 19_999


def _frames() -> list[object]:
    frame, frames = sys._getframe(), []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return frames


@clause("PLAN-13")
def test_100_000_tasks_with_300_000_edges_are_planned() -> None:
    """The bar for large plans: linear, so this takes seconds; a quadratic step would take hours."""
    width, made = 1_000, []
    for number in range(100_000):
        row, column = divmod(number, width)
        above = [made[(row - 1) * width + (column + shift) % width] for shift in range(3)] if row else []
        made.append(spec(f"t{number}", *(edge(one, param=f"p{place}") for place, one in enumerate(above))))

    plan = planned(*made)

    assert len(plan.tasks) == 100_000
    assert sum(len(above) for above in plan.depends_on) == 297_000
    assert plan.tasks[-1].tier == 99
