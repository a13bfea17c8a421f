"""Choosing tasks by flags."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.declared import Graph, edge, graphs, modules_of, planned, spec
from towline.errors.planning import SelectionError
from towline.planning.built import BuiltPlan
from towline.planning.selection import Choice, select, split_names
from towline.testing import clause


def release() -> BuiltPlan:
    build = spec("build", matrix={"os": ["linux", "macos"], "python": ["3.11"]}, category="Build")
    judge = spec("judge", gate=True, phase="prepare")
    return planned(
        spec("test", edge(build), category="check", phase="import"),
        spec("docs", category="check"),
        judge,
        spec("Lint"),
        phases=("prepare", "import"),
    )


def chosen(plan: BuiltPlan, **flags: tuple[str, ...]) -> set[str] | None:
    selection = select(plan.tasks, plan.specs, plan.phases, Choice(**flags))
    return None if selection.chosen is None else {plan.tasks[place].id for place in selection.chosen}


@clause("CLI-03")
def test_modules_are_chosen_with_all_they_need_gates_included() -> None:
    """A chosen module without its dependencies could not start."""
    plan = release()
    assert chosen(plan) is None
    assert chosen(plan, modules=("test",)) == {"test", "judge", "build[linux,3.11]", "build[macos,3.11]"}
    assert chosen(plan, modules=("build[linux,3.11]",)) == {"build[linux,3.11]"}
    assert chosen(plan, modules=("lint",)) == {"Lint"}
    assert split_names(["a, build[linux,3.11],b", "c"]) == ("a", "build[linux,3.11]", "b", "c")


@clause("CLI-04")
def test_categories_and_phases_add_their_closures() -> None:
    """They are shorthands for their modules."""
    plan = release()
    assert chosen(plan, categories=("CHECK",)) == {"docs", *(chosen(plan, modules=("test",)) or ())}
    assert chosen(plan, phases=("Prepare",)) == {"judge"}


@clause("PLAN-48")
@settings(max_examples=40, deadline=None)
@given(graph=graphs(80), data=st.data())
def test_the_choice_is_the_closure_over_all_kinds_of_edges(graph: Graph, data: st.DataObject) -> None:
    """An optional dependency that is planned is waited for, so it belongs to the run."""
    plan = planned(*modules_of(graph))
    asked = data.draw(st.lists(st.sampled_from(sorted(graph)), min_size=1, max_size=3, unique=True))
    reached, waiting = set(asked), list(asked)
    while waiting:
        more = set(graph[waiting.pop()]) - reached
        reached |= more
        waiting += more
    assert chosen(plan, modules=tuple(f"n{node}" for node in asked)) == {f"n{node}" for node in reached}


@clause("PLAN-48")
def test_a_success_is_not_deselected() -> None:
    """What is done stays done, whatever the flags of a later run."""
    plan = release()
    plan.tasks[plan.index["docs"]].state = "succeeded"
    selection = select(plan.tasks, plan.specs, plan.phases, Choice(skips=("docs", "Lint")))
    assert {plan.tasks[place].id for place in selection.deselected} == {"Lint"}
    assert selection.chosen is None


@clause("CLI-02")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"modules": ("tset",)}, r"--module tset: .*Did you mean 'test'"),
        ({"categories": ("chekc",)}, r"--category chekc: .*Did you mean 'check'"),
        ({"phases": ("export",)}, "--phase export: the plan has none"),
        ({"phases": ("import",), "skips": ("test",)}, "test is both chosen and skipped"),
        ({"skips": ("gone",), "modules": ("gone2",)}, r"--module gone2.*; --skip gone:"),
    ],
)
def test_a_typo_never_runs_all_or_nothing(flags: dict[str, tuple[str, ...]], words: str) -> None:
    """All problems at once, each with the nearest name; exit code 2."""
    with pytest.raises(SelectionError, match=words) as caught:
        chosen(release(), **flags)
    assert caught.value.exit_code == 2


@clause("CLI-02")
def test_a_phase_without_tasks_is_an_empty_selection() -> None:
    """Running nothing is not what anyone asked for."""
    plan = planned(spec("a"), phases=("export",))
    with pytest.raises(SelectionError, match="nothing is chosen"):
        chosen(plan, phases=("export",))


def test_a_chosen_join_comes_with_its_children_and_a_child_with_its_join() -> None:
    """After a resume children are tasks like others; the join is what dependents wait for."""
    from towline.planning.children import children_of

    plan = planned(spec("pack", each=edge(spec("list"))))
    children = children_of(plan.tasks[1], ("a", "b"), ("1", "2"), (), {})
    tasks = [*plan.tasks, *children]

    def ids(name: str) -> set[str]:
        selection = select(tasks, plan.specs, (), Choice(modules=(name,)))
        return {tasks[place].id for place in selection.chosen or ()}

    assert ids("pack") == {"list", "pack", "pack[a]", "pack[b]"}
    assert ids("pack[a]") == {"list", "pack", "pack[a]"}
