"""Growing a plan by the items of an `each` module, the first time and again."""

from __future__ import annotations

import enum
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.declared import document, edge, planned, spec
from towline.errors.planning import ExpansionError
from towline.planning.children import expansion, join_state
from towline.planning.document import encode_document
from towline.planning.live import LivePlan, apply
from towline.planning.loading import decode_document
from towline.planning.records import ExpandRecord, PlannedTask, StateRecord, TaskState
from towline.planning.resume import carry_on
from towline.testing import clause


class Kind(enum.Enum):
    FAST = "fast"


class Flight:
    def __init__(self, key: object) -> None:
        self.key = key


def grown() -> LivePlan:
    """A plan whose source `list` has succeeded; `ship` takes the whole list."""
    source = spec("list")
    pack = spec("pack", edge(spec("tools"), param="t"), each=edge(source), at_most_once=False, phase="build")
    plan = LivePlan(document(planned(spec("ship", edge(pack)), phases=("build",)), phases=("build",)))
    for name in ("list", "tools"):
        plan.row(name).state = "succeeded"
    return plan


def expand(plan: LivePlan, items: Any, **more: Any) -> ExpandRecord:
    options: dict[str, Any] = {
        "seq": plan.document.applied_seq + 1,
        "source_digest": "sha256:s",
        "item_digest": lambda item: f"sha256:{item!r}",
        "tasks_now": 3,
        "max_tasks": 100,
    }
    return expansion(plan.row("pack"), items, **(options | more))


@clause("PLAN-57", "PLAN-62")
def test_one_record_makes_all_children_which_inherit_from_their_join() -> None:
    """A kill leaves none or all of them, and each is a task of its own."""
    plan = grown()
    record = expand(plan, {"a": 1, "b": 2})

    children = apply(plan, record)

    assert [(child.id, child.key, child.item, child.parent) for child in children] == [
        *(("pack[a]", "a", 0, "pack"), ("pack[b]", "b", 1, "pack"))
    ]
    join = plan.row("pack")
    assert (join.state, join.source_digest) == ("running", "sha256:s")
    for child in children:
        assert (child.phase, child.tier, child.depends_on) == (join.phase, join.tier, join.depends_on)
        assert not child.join
        assert plan.document.tasks[plan.index[child.id]] is child
    assert [task.id for task in plan.document.tasks][-2:] == ["pack[a]", "pack[b]"]


@clause("PLAN-58")
def test_keys_come_from_dicts_from_plain_items_or_from_the_field_key() -> None:
    """A key names the child for good, so it must not be a place in a list."""
    plan = grown()
    assert expand(plan, {"a,b": 1}).keys == ("a%2Cb",)
    assert expand(plan, ["x", 7, Kind.FAST, PurePosixPath("d/f")]).keys == ("x", "7", "fast", "d/f")
    assert expand(plan, (Flight("EWR"), {"key": "JFK"})).keys == ("EWR", "JFK")


@clause("PLAN-58")
@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([Flight(None)], r"item 0 has no key"),
        ([1.5], "item 0 has no key"),
        (["a", ""], r"item 1 .*has a key that cannot be used"),
        (["a", "A"], r"item 1 \(key 'A'\) has the key of item 0"),
        (["k" * 129], "1 to 128 characters"),
        ("text", "got a str"),
        (None, "got a NoneType"),
        ([str(n) for n in range(98)], "gives 98 tasks, with 3 there are above 100"),
    ],
)
def test_items_that_give_no_tasks_are_refused_by_index_and_key(items: Any, words: str) -> None:
    """The join fails with a text that finds the item; the source's outcome stays what it is."""
    with pytest.raises(ExpansionError, match=words) as caught:
        expand(grown(), items)
    assert caught.value.join == "pack"
    assert str(type(caught.value)(*caught.value.args)) == str(caught.value)


@clause("PLAN-60", "MOD-20")
def test_an_empty_source_gives_no_children_and_a_join_that_succeeds() -> None:
    """Nothing to do is not a failure: dependents get `[]`."""
    plan = grown()
    assert apply(plan, expand(plan, [])) == ()
    assert join_state([]) == "succeeded"


@clause("PLAN-61")
@given(
    states=st.lists(
        st.sampled_from(["succeeded", "failed", "timed_out", "cancelled", "skipped", "running"]), min_size=1
    )
)
def test_a_join_ends_as_the_worst_of_its_children(states: list[TaskState]) -> None:
    """One failed item of a thousand is a failure of the whole."""
    ended = join_state(states)
    if "running" in states:
        assert ended == "running"
    else:
        order = ["failed", "timed_out", "cancelled", "skipped", "succeeded"]
        assert ended == min(states, key=order.index)


def finish(plan: LivePlan, name: str, to: TaskState = "succeeded") -> None:
    seq = plan.document.applied_seq + 1
    apply(plan, StateRecord(seq=seq, at=f"t{seq}", task=name, state=to, attempts=1, done=9))


@clause("PLAN-61")
def test_a_kept_source_keeps_its_children_without_expanding_again() -> None:
    """Walking the source again would cost what the resume is to save."""
    plan = grown()
    apply(plan, expand(plan, ["a", "b"]))
    finish(plan, "pack[a]")
    finish(plan, "pack[b]", "failed")
    loaded = LivePlan(decode_document(encode_document(plan.snapshot())))

    carry_on(loaded.document.tasks)

    resumed = LivePlan(loaded.document)
    assert not resumed.held
    assert [resumed.row(name).state for name in ("pack", "pack[a]", "pack[b]")] == ["running", "succeeded", "pending"]


@clause("PLAN-61")
@settings(max_examples=50, deadline=None)
@given(
    before=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2), min_size=1),
    after=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2)),
    killed=st.booleans(),
)
def test_a_source_that_ran_again_keeps_equal_children_adds_new_and_drops_vanished(
    before: dict[str, int], after: dict[str, int], killed: bool
) -> None:
    """A changed list may cost only what changed; and a kill before the new list loses nothing."""
    plan = grown()
    apply(plan, expand(plan, before))
    for key in before:
        finish(plan, f"pack[{key}]")
    plan.row("list").state = "failed"
    rows = plan.document.tasks
    carry_on(rows)
    plan = LivePlan(plan.document)
    assert set(plan.held) == {f"pack[{key}]" for key in before}
    assert (plan.row("pack").state, plan.row("pack").source_digest) == ("pending", None)
    if killed:
        plan = LivePlan(decode_document(encode_document(plan.snapshot())))

    finish(plan, "list")
    children = apply(plan, expand(plan, after))

    kept = {key for key in after if before.get(key) == after[key]}
    assert [child.key for child in children] == list(after)
    assert {child.key for child in children if child.state == "succeeded" and child.done == 9} == kept
    assert all(child.state == "pending" and child.done is None for child in children if child.key not in kept)
    assert not plan.held
    assert [task.id for task in plan.snapshot().tasks if task.parent] == [f"pack[{key}]" for key in after]


@clause("PLAN-59")
def test_a_child_names_its_item_by_place_and_digest_alone() -> None:
    """Items may be large or confidential; the plan is neither."""
    plan = grown()
    (child,) = apply(plan, expand(plan, [Flight("EWR")], item_digest=lambda item: "sha256:d"))
    assert (child.key, child.item, child.item_digest) == ("EWR", 0, "sha256:d")
    assert not {"value", "item_value"} & set(PlannedTask.__struct_fields__)
