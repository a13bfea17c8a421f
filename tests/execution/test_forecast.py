"""What a run will do, and when it will be over."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from scheduler_world import World, task
from test_scheduler_properties import Plan, seeds

from towline.execution.forecast import eta, forecast, left_of_running_s
from towline.execution.limits import ModuleRules, RunLimits
from towline.testing import clause


@clause("SCHED-23", "PLAN-12")
@settings(max_examples=80, deadline=None)
@given(seeds)
def test_planned_order_and_skips_are_those_of_the_run_that_takes_the_estimated_times(seed: int) -> None:
    """A forecast that follows other rules than the run would mislead."""
    plan = Plan(seed, most=60, rights=True)
    skipped = {name for name, end in plan.ends.items() if end == "skipped"}
    rows = [row for row in plan.rows if not row.join]
    while len(kept := [row for row in rows if set(row.depends_on) <= {one.id for one in rows}]) < len(rows):
        rows = kept
    if not rows:
        return
    seconds = plan.seconds | dict.fromkeys(skipped, 0.0)
    limits = {"parallelism": plan.slots, "cores": 2, "pools": {"p": 3}}
    run = World(*rows, ends=dict.fromkeys(skipped, "skipped"), seconds=seconds, rules=plan.rules, **limits).run()

    told = forecast(
        rows,
        plan.rules,
        RunLimits(**limits),
        seconds,
        skips={place: "never" for place, row in enumerate(rows) if row.id in skipped},
    )

    assert [rows[place].id for place in told.order] == run.order
    assert {rows[place].id for place in told.skipped} == {n for n, state in run.states.items() if state == "skipped"}
    assert told.makespan_s == pytest.approx(max(run.finished.values()))
    assert {rows[place].id: at for place, at in told.started_at_s.items()} == run.started


def test_the_critical_path_is_the_longest_chain() -> None:
    """Where time is to be saved, if anywhere."""
    rows = [task("a"), task("b"), task("c", "a", "b"), task("d", "c"), task("e", "c")]
    seconds = {"a": 1.0, "b": 5.0, "c": 2.0, "d": 1.0, "e": 9.0}

    told = forecast(rows, {}, RunLimits(parallelism=9, cores=9), seconds)

    assert [rows[place].id for place in told.critical_path] == ["b", "c", "e"]
    assert told.makespan_s == 16


def test_rows_are_not_changed_and_kept_ones_take_no_time() -> None:
    """A forecast may be made at any moment of a run."""
    rows = [task("a", state="succeeded"), task("b", "a"), task("c", "b")]
    before = [row.state for row in rows]

    told = forecast(rows, {}, RunLimits(parallelism=1, cores=1), {"b": 3.0, "c": 4.0})

    assert told.order == (1, 2)
    assert told.makespan_s == 7
    assert [row.state for row in rows] == before


@clause("CTL-19")
def test_eight_tasks_of_ten_seconds_on_four_slots_take_twenty() -> None:
    """Not eighty: what is left is simulated, not added up."""
    rows = [task(f"t{n}", module="m") for n in range(8)]

    assert str(eta(rows, {}, RunLimits(parallelism=4, cores=4), {"m": 10.0}, {})) == "20 s"
    locked = {"m": ModuleRules(locks=frozenset({"db"}))}
    assert eta(rows, locked, RunLimits(parallelism=4, cores=4), {"m": 10.0}, {}).left_s == 80


@clause("CTL-19")
def test_a_running_task_is_judged_by_its_count_then_by_its_estimate() -> None:
    """Once it counts its items, that is the better witness."""
    assert left_of_running_s(100, 30, done=None, total=None) == 70
    assert left_of_running_s(100, 300, done=None, total=None) == 10, "at least a tenth"
    assert left_of_running_s(100, 30, done=10, total=40) == 90
    assert left_of_running_s(100, 30, done=0, total=40) == 70

    rows = [task("r", state="running", done=10, total=40), task("next", "r")]
    assert eta(rows, {}, RunLimits(parallelism=4, cores=4), {"next": 5.0}, {0: 30.0}).left_s == 95


@clause("CTL-20")
def test_what_is_not_known_makes_a_lower_bound() -> None:
    """A guess shown as knowledge is worse than none."""
    rows = [task("known"), task("new", "known"), task("each", "known", join=True, source="known")]
    limits = RunLimits(parallelism=4, cores=4)

    assert str(eta(rows, {}, limits, {"known": 90.0}, {})) == "at least 1 min 30 s (2 unknown)"
    assert str(eta(rows, {}, limits, {}, {})) == "unknown"
    assert str(eta([], {}, limits, {}, {})) == "0 s"
