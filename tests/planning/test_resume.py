"""The second table of planning.md 4.3, row by row: what a task that was found becomes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.declared import Graph, edge, graphs, modules_of, planned, spec
from towline.planning.records import FINAL_STATES, PlannedTask, TaskState
from towline.planning.resume import FailedTasks, carry_on, fate_of, tasks_left
from towline.testing import clause

MODES: tuple[FailedTasks, ...] = ("default", "retry", "keep")


def row(state: TaskState, reason: str | None = None, **more: Any) -> PlannedTask:
    more.setdefault("attempts", 2)
    return PlannedTask(id="t", module="t", state=state, reason=reason, epoch=3, started_at="t0", **more)


TABLE: list[tuple[str, PlannedTask, tuple[TaskState, TaskState, TaskState]]] = [
    ("succeeded", row("succeeded"), ("succeeded", "succeeded", "succeeded")),
    ("failed", row("failed", "error"), ("pending", "pending", "failed")),
    ("timed_out", row("timed_out", "timeout"), ("pending", "pending", "timed_out")),
    ("failed, at_most_once, entered", row("failed", "error", at_most_once=True), ("failed", "pending", "failed")),
    ("timed_out, at_most_once", row("timed_out", "timeout", at_most_once=True), ("timed_out", "pending", "timed_out")),
    (
        "failed, at_most_once, not entered",
        row("failed", at_most_once=True, attempts=0),
        ("pending", "pending", "failed"),
    ),
    ("ignored failure", row("failed", "error", ignored=True), ("failed", "pending", "failed")),
    ("running", row("running"), ("pending", "pending", "pending")),
    ("running, at_most_once", row("running", at_most_once=True), ("failed", "pending", "failed")),
    ("pending", row("pending"), ("pending", "pending", "pending")),
    ("queued", row("queued"), ("pending", "pending", "pending")),
    ("cancelled", row("cancelled", "pipeline_failed"), ("pending", "pending", "pending")),
    ("skipped by condition", row("skipped", "condition"), ("skipped", "skipped", "skipped")),
    ("skipped by its body", row("skipped", "module_skipped"), ("skipped", "skipped", "skipped")),
    ("skipped for a dependency", row("skipped", "dependency_failed"), ("pending", "pending", "pending")),
    ("deselected", row("skipped", "deselected"), ("pending", "pending", "pending")),
]


@clause("PLAN-29")
@pytest.mark.parametrize(("name", "found", "becomes"), TABLE, ids=[name for name, *_ in TABLE])
def test_each_state_becomes_what_the_table_says(
    name: str, found: PlannedTask, becomes: tuple[TaskState, TaskState, TaskState]
) -> None:
    """A success is never entered again, and nothing that was open is lost."""
    for mode, state in zip(MODES, becomes, strict=True):
        task = PlannedTask(**{field: getattr(found, field) for field in found.__struct_fields__})
        carry_on([task], mode)
        assert task.state == state, mode
        assert (task.attempts, task.epoch) == (found.attempts, found.epoch)
        if state == "pending":
            assert task.started_at is None
            assert task.reason in (None, "interrupted")
        if name == "running, at_most_once" and state == "failed":
            assert task.reason == "lease_lost"


@clause("PLAN-29")
def test_a_running_task_goes_on_at_its_cursor() -> None:
    """Counts and the moment of the checkpoint are what the views show until the body reports again."""
    task = row("running", done=500, total=900, checkpoint_at="t9", worker="w-1")
    carried = carry_on([task])
    assert (task.state, task.reason, task.done, task.total, task.checkpoint_at) == (
        "pending",
        "interrupted",
        500,
        900,
        "t9",
    )
    assert (carried.again, carried.started_over) == (["t"], [])


@clause("PLAN-33")
def test_clean_up_runs_again_when_anything_above_it_does_and_starts_over() -> None:
    """Clean-up belongs to each run that did something; with remembered steps it would do nothing."""
    build = spec("build")
    test = spec("test", edge(build))
    clean = spec("clean", edge(test, "outcome"), always_run=True)
    plan = planned(clean)
    for task in plan.tasks:
        task.state, task.done = "succeeded", 3

    assert carry_on(plan.tasks).again == []
    plan.tasks[plan.index["build"]].state = "failed"
    carried = carry_on(plan.tasks)

    assert carried.again == ["build", "clean"]
    assert carried.started_over == ["clean"]
    assert [(task.id, task.state, task.done) for task in plan.tasks] == [
        *(("build", "pending", 3), ("test", "succeeded", 3), ("clean", "pending", None))
    ]


@clause("PLAN-37")
def test_a_success_whose_result_is_gone_runs_again() -> None:
    """Its dependents need the value; a recorded success alone cannot give it to them."""
    plan = planned(spec("b", edge(spec("a"))))
    for task in plan.tasks:
        task.state, task.result_digest = "succeeded", "sha256:r"
    assert tasks_left(plan.tasks, missing={"a"}) == 1

    carried = carry_on(plan.tasks, missing={"a"})

    assert carried.reset == ["a"]
    assert [(task.state, task.result_digest) for task in plan.tasks] == [("pending", None), ("succeeded", "sha256:r")]


@clause("PLAN-53")
def test_a_blocked_gate_judges_from_its_start() -> None:
    """The operator has changed what it judges; a cursor would skip exactly that."""
    gate = row("pending", "blocked", gate=True, done=7, findings={"blocking": 38})
    waiting = PlannedTask(id="load", module="load", gates=("t",), reason="blocked", blocked_by="t")
    carried = carry_on([gate, waiting])
    assert (gate.state, gate.reason, gate.findings, gate.done) == ("pending", None, None, None)
    assert (waiting.state, waiting.reason, waiting.blocked_by) == ("pending", None, None)
    assert carried.started_over == ["t"]


STATES: tuple[TaskState, ...] = ("pending", "running", "succeeded", "failed", "timed_out", "skipped", "cancelled")


@clause("PLAN-40")
@settings(max_examples=60, deadline=None)
@given(graph=graphs(60), data=st.data())
def test_two_resumes_in_a_row_are_one_and_no_success_is_entered(graph: Graph, data: st.DataObject) -> None:
    """A kill during a resume must not change where it leads."""
    flags = data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph)))
    plan = planned(*modules_of(graph, lambda node: {"always_run": flags[node] and node % 5 == 0}))
    drawn = st.sampled_from(STATES)
    for task in plan.tasks:
        task.state = data.draw(drawn)
        task.reason = "condition" if task.state == "skipped" else None
    mode = data.draw(st.sampled_from(MODES))
    succeeded = {task.id for task in plan.tasks if task.state == "succeeded" and not task.always_run}

    first = carry_on(plan.tasks, mode)
    once = [(task.id, task.state) for task in plan.tasks]
    second = carry_on(plan.tasks, mode)

    assert [(task.id, task.state) for task in plan.tasks] == once
    assert not second.again
    assert not second.lost
    assert succeeded <= {task.id for task in plan.tasks if task.state == "succeeded"}
    assert not succeeded & set(first.again)
    assert all(task.state in FINAL_STATES or task.state == "pending" for task in plan.tasks)


@settings(max_examples=60, deadline=None)
@given(graph=graphs(60), data=st.data())
def test_always_run_tasks_follow_a_reference_model(graph: Graph, data: st.DataObject) -> None:
    """PLAN-33 against a model that asks, task by task, for anything open above it."""
    plan = planned(*modules_of(graph, lambda node: {"always_run": node % 3 == 0}))
    for task in plan.tasks:
        task.state = data.draw(st.sampled_from(["succeeded", "failed", "pending"]))
    found = {task.id: task.state for task in plan.tasks}

    carry_on(plan.tasks)

    becomes: dict[str, bool] = {}  # whether something at or above the task is open now
    for node in sorted(graph):
        name, above = f"n{node}", any(becomes[f"n{one}"] for one in graph[node])
        becomes[name] = above or found[name] != "succeeded"
        expected = "pending" if found[name] != "succeeded" or (above and node % 3 == 0) else "succeeded"
        assert plan.tasks[plan.index[name]].state == expected


@clause("PLAN-48")
def test_a_later_resume_without_the_flags_runs_what_was_not_chosen_or_deselected() -> None:
    """`--module` and `--skip` are about one run, not about the plan."""
    assert fate_of(row("pending")) == fate_of(row("skipped", "deselected")) == "again"
