"""Matrices, keys, selectors, artifacts and types: what becomes of them when the plan is built."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import date
from pathlib import PurePosixPath
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.declared import edge, ids, planned, spec, takes
from towline.errors.declaration import DeclarationError
from towline.errors.planning import PlanBuildError
from towline.identity import encode_key
from towline.modules.conditions import env
from towline.modules.spec import ModuleSpec, SelectorRef
from towline.planning.keys import key_text
from towline.testing import clause

PYTHONS = ["3.11", "3.12", "3.13"]
TAGGED = SelectorRef("tag", "DB")


class Color(enum.Enum):
    RED = "red"


class Level(enum.Enum):
    LOW = (1, 2)


def matrix_module() -> ModuleSpec:
    return spec("test", matrix={"python": PYTHONS, "os": ["linux", "macos"]}, result=int)


@clause("PLAN-10", "MOD-18")
def test_a_matrix_is_one_task_per_combination_and_dependents_get_them_in_key_order() -> None:
    """Whoever lists axes expects the last one to turn fastest, and a list in that order."""
    matrix = matrix_module()
    plan = planned(matrix, spec("report", edge(matrix)))

    keys = [f"{python},{system}" for python in PYTHONS for system in ("linux", "macos")]
    assert [plan.tasks[place].key for place in plan.tasks_of["test"]] == keys
    (given_to_report,) = plan.inputs[plan.index["report"]]
    assert given_to_report.many
    assert [plan.tasks[place].key for place in given_to_report.tasks] == keys
    assert plan.matrix[plan.index["test[3.12,macos]"]] == {"python": "3.12", "os": "macos"}


@clause("MOD-19")
def test_same_key_pairs_tasks_by_their_values() -> None:
    """A test of 3.12 wants the build of 3.12, however the axes are ordered and whatever else varies."""
    build = spec("build", matrix={"python": PYTHONS}, produces={"wheel": "dist/*.whl"})
    test = spec(
        "test",
        edge(build, same_key=True),
        matrix={"os": ["linux", "macos"], "python": ["3.12", "3.11"]},
        consumes=(takes(build, "wheel", same_key=True),),
    )
    plan = planned(test)

    place = plan.index["test[macos,3.12]"]
    assert plan.tasks[place].depends_on == ("build[3.12]",)
    (paired,) = plan.inputs[place]
    assert (paired.many, [plan.tasks[one].id for one in paired.tasks]) == (False, ["build[3.12]"])
    (wheel,) = plan.artifacts[place]
    assert [plan.tasks[one].id for one in wheel.tasks] == ["build[3.12]"]


@clause("MOD-19")
@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"os": ["linux"]}, "has no axis 'python' itself"),
        ({"python": ["3.11", "3.9"]}, "has no '3.9' on axis 'python'"),
        (None, "has no axis 'python' itself"),
    ],
)
def test_same_key_without_a_partner_is_refused(axes: Any, words: str) -> None:
    """A task that pairs with nothing would wait for nothing, or for everything."""
    build = spec("build", matrix={"python": PYTHONS})
    with pytest.raises(PlanBuildError, match=words):
        planned(spec("test", edge(build, same_key=True), matrix=axes))


@clause("PLAN-07")
@settings(max_examples=50, deadline=None)
@given(text=st.text(min_size=1, max_size=128))
def test_keys_are_encoded_so_that_distinct_values_have_distinct_printable_ids(text: str) -> None:
    """Ids become file names, log lines and wire fields; nothing parses them."""
    encoded = encode_key(text)
    assert not set(encoded) & set("[],\n\r\x00")
    encoded.encode("utf-8")  # also what came from a file name that is no UTF-8
    assert encoded == text or encoded != encode_key(text[:-1] + chr(ord(text[-1]) ^ 1))


@clause("PLAN-07")
def test_keys_come_from_values_not_from_their_representation() -> None:
    """A key that said `Color.RED` or a Windows path would differ between machines and releases."""
    assert [key_text(one) for one in (Color.RED, Level.LOW, True, 3, date(2026, 3, 1), PurePosixPath("a/b"))] == [
        *("red", "LOW", "True", "3", "2026-03-01", "a/b")
    ]
    assert key_text(object()) is None
    with pytest.raises(PlanBuildError, match="gives no key"):
        planned(spec("a", matrix={"x": [object()]}))
    with pytest.raises(PlanBuildError, match="128 characters"):
        planned(spec("a", matrix={"x": ["k" * 129]}))


@clause("PLAN-09", "MOD-16")
def test_selectors_become_the_other_modules_of_the_plan_in_id_order() -> None:
    """A selector that named itself, or brought modules along, could not be reasoned about."""
    one = spec("zeta", tags=frozenset({"db"}))
    many = spec("alpha", matrix={"n": [2, 1]}, tags=frozenset({"Db"}))
    own = spec("collect", edge(TAGGED), tags=frozenset({"db"}))
    plan = planned(own, many, one)

    assert plan.tasks[plan.index["collect"]].depends_on == ("alpha[1]", "alpha[2]", "zeta")
    (given_to_collect,) = plan.inputs[plan.index["collect"]]
    assert [plan.tasks[place].id for place in given_to_collect.tasks] == ["alpha[1]", "alpha[2]", "zeta"]
    assert given_to_collect.many


@clause("MOD-16")
def test_a_selector_without_a_match_is_refused_with_the_nearest_word() -> None:
    """A typo would otherwise mean "wait for nothing"."""
    with pytest.raises(PlanBuildError, match=r"'dbs'.*Did you mean 'db'"):
        planned(spec("a", edge(SelectorRef("tag", "dbs"))), spec("b", tags=frozenset({"db"})))


class Plain:
    pass


class Derived(Plain):
    pass


class Other:
    pass


class Shape(Protocol):
    def draw(self) -> None: ...


@clause("MOD-17")
def test_unrelated_plain_classes_are_refused_with_parameter_and_types() -> None:
    """The body would fail on its first line, after an hour of building."""
    build = spec("build", result=Plain)
    with pytest.raises(DeclarationError, match=r"'wheel' of ship .*is a Other, but build gives Plain"):
        planned(spec("ship", edge(build, param="wheel", annotation=Other)))


@clause("MOD-17")
@pytest.mark.parametrize(
    ("asked", "given_type"),
    [
        *((Plain, Derived), (Derived, Plain), (float, int), (Any, Plain), (object, Plain), (Plain, Any)),
        *((Shape, Plain), (Plain | None, Other), (list[int], Plain), ("Later", Plain), (Sequence, list)),
    ],
)
def test_what_may_fit_is_not_refused(asked: Any, given_type: Any) -> None:
    """Only what can never work is refused; a type checker judges the rest."""
    planned(spec("ship", edge(spec("build", result=given_type), annotation=asked)))


@clause("MOD-17")
def test_the_value_of_an_expanded_module_is_a_list() -> None:
    """Asking for one of many is the commonest slip with a matrix."""
    many = spec("build", matrix={"n": [1, 2]}, result=int)
    with pytest.raises(DeclarationError, match="is a int, but build gives list"):
        planned(spec("ship", edge(many, annotation=int)))
    planned(spec("ship", edge(many, annotation=list)))


@clause("MOD-18")
def test_absent_optional_modules_give_none_or_an_empty_list() -> None:
    """The type of a parameter may not change with what else is planned."""
    plan = planned(
        spec("ship", edge(spec("one"), "optional", "x"), edge(spec("many", matrix={"n": [1]}), "optional", "y"))
    )
    assert [(use.param, use.tasks, use.many) for use in plan.inputs[0]] == [("x", (), False), ("y", (), True)]


@clause("ART-02")
def test_consumed_artifacts_are_required_and_their_names_are_checked() -> None:
    """An artifact that nobody makes is found before the hour-long build, not after."""
    build = spec("build", produces={"wheel": "dist/*.whl"})
    plan = planned(spec("ship", consumes=(takes(build, "wheel", into="upload"),)))
    assert plan.tasks[1].depends_on == ("build",)
    assert plan.tasks[1].edges == {"build": "order"}
    assert (plan.artifacts[1][0].artifact, plan.artifacts[1][0].into) == ("wheel", "upload")

    for wrong, words in (
        ((takes(build, "whel"),), "does not produce it. Did you mean 'wheel'"),
        ((takes(build, "wheel"), takes(build, "wheel")), "twice"),
        ((takes(build, "wheel", into="../up"),), "leaves the workdir"),
    ):
        with pytest.raises(PlanBuildError, match=words):
            planned(spec("ship", consumes=wrong))


@clause("ART-03")
def test_an_artifact_is_demanded_unless_only_a_node_can_say_that_it_is_taken() -> None:
    """A missing artifact fails its producer only when someone surely needs it."""
    build = spec("build", produces={"wheel": "dist/*.whl", "log": "*.log"})
    sure = spec("sure", consumes=(takes(build, "wheel"),), run_if=(env("CI"),))
    perhaps = spec("perhaps", consumes=(takes(build, "log"),), run_if=(lambda task: True,))
    plan = planned(sure, perhaps)

    assert plan.demanded == {plan.index["build"]: {"wheel": ("sure",)}}


def test_several_edges_between_two_tasks_show_the_one_that_asks_for_most() -> None:
    """A value edge beside an order edge must not read as if a failure could be ignored."""
    build = spec("build")
    plan = planned(spec("ship", edge(build, "optional", "x"), edge(build, "order"), edge(build, "value", "y")))
    assert plan.tasks[1].edges is None
    assert ids(plan) == ["build", "ship"]


@clause("PLAN-50")
def test_a_gate_blocks_all_later_phases_but_no_always_run_task_and_adds_no_other_edge() -> None:
    """Phases group; only a gate holds back, and clean-up is held back by nothing."""
    plan = planned(
        spec("judge", gate=True, phase="Prepare"),
        spec("second", gate=True, phase="import"),
        spec("load", phase="import", matrix={"n": [1, 2]}),
        spec("clean", phase="import", always_run=True),
        spec("free"),
        spec("copy", edge(spec("read", phase="export"), "order"), phase="export"),
        phases=("export", "prepare", "import"),
    )

    gates = {task.id: task.gates for task in plan.tasks if task.gates}
    assert gates == {"load[1]": ("judge",), "load[2]": ("judge",), "second": ("judge",)}
    assert {task.id: task.depends_on for task in plan.tasks if task.depends_on} == {"copy": ("read",)}
    assert plan.tasks[plan.index["load[1]"]].tier == 1
    assert plan.tasks[plan.index["judge"]].phase == "prepare"


@clause("PLAN-56")
def test_each_is_one_join_until_its_source_is_known() -> None:
    """Nobody knows the count before; dependents wait for the whole."""
    source = spec("list_files")
    pack = spec("pack", edge(spec("restore"), param="tools"), each=edge(source))
    plan = planned(spec("ship", edge(pack, param="packed")))

    join = plan.tasks[plan.index["pack"]]
    assert (join.join, join.source, join.depends_on) == (True, "list_files", ("list_files", "restore"))
    assert [use.param for use in plan.inputs[plan.index["pack"]]] == ["tools"]
    (packed,) = plan.inputs[plan.index["ship"]]
    assert packed.many
    assert packed.tasks == (plan.index["pack"],)

    with pytest.raises(PlanBuildError, match="each= takes result_of"):
        planned(spec("twice", each=edge(pack)))
