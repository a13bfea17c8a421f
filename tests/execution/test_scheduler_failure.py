"""Failures, skips, stops and always-run tasks, as the scheduler decides them."""

from __future__ import annotations

from scheduler_world import World, task

from towline.execution.limits import ModuleRules, RunLimits
from towline.execution.scheduler import Scheduler
from towline.execution.scheduling import (
    Begin,
    Complete,
    Finished,
    Settle,
    Started,
    StopAsked,
    Tick,
    WakeAt,
    Withdraw,
)
from towline.testing import clause


@clause("RUN-50", "PLAN-42", "PLAN-44")
def test_a_failure_cancels_what_it_does_not_block_and_skips_what_it_does() -> None:
    """By default one failure ends the run: dependents are skipped, strangers cancelled, clean-up runs."""
    rows = [
        task("bad"),
        task("runs"),
        task("behind", "bad"),
        task("further", "behind:order"),
        task("later", "runs"),
        task("clean", "bad:outcome", "later:outcome", always_run=True),
    ]

    world = World(*rows, ends={"bad": "failed"}, seconds={"runs": 50}).run()

    assert world.states == {
        "bad": "failed",
        "runs": "cancelled",
        "behind": "skipped",
        "further": "skipped",
        "later": "cancelled",
        "clean": "succeeded",
    }
    assert world.codes["runs"] == world.codes["later"] == "pipeline_failed"
    assert world.status == "failed"


@clause("PLAN-43", "RUN-52")
def test_a_skip_names_the_first_cause_and_the_way_it_came() -> None:
    """An operator wants the failed task, not the one in between."""
    world = World(task("a"), task("b", "a"), task("c", "b"), ends={"a": "failed"}, keep_going=True).run()

    for name in ("b", "c"):
        assert world.settled[name].blocked_by == "a"
        assert world.codes[name] == "dependency_failed"
    assert world.settled["b"].text == "a failed"
    assert world.settled["c"].text == "a failed, via b"


@clause("PLAN-43")
def test_of_several_causes_the_one_recorded_first_is_named() -> None:
    """Two failures block one task: the earlier one tells the story."""
    rows = [task("late"), task("soon"), task("both", "late", "soon")]

    world = World(
        *rows, ends={"late": "failed", "soon": "failed"}, seconds={"late": 9, "soon": 2}, keep_going=True
    ).run()

    assert world.settled["both"].blocked_by == "soon"


@clause("RUN-51")
def test_keep_going_runs_everything_that_the_failure_does_not_block() -> None:
    """The seed's rule, on request; the run has failed all the same."""
    rows = [task("bad"), task("runs"), task("behind", "bad"), task("later", "runs")]

    world = World(*rows, ends={"bad": "failed"}, seconds={"runs": 50}, keep_going=True).run()

    assert world.states == {"bad": "failed", "runs": "succeeded", "behind": "skipped", "later": "succeeded"}
    assert world.status == "failed"


@clause("PLAN-45")
def test_skips_block_required_edges_and_no_others() -> None:
    """A skipped task blocks value and order, never optional, outcome or an always-run task."""
    rows = [
        task("skips"),
        task("value", "skips"),
        task("order", "skips:order"),
        task("optional", "skips:optional"),
        task("outcome", "skips:outcome"),
        task("always", "skips", always_run=True),
        task("further", "value"),
    ]

    world = World(*rows, ends={"skips": "skipped"}).run()

    assert world.states == {
        "skips": "skipped",
        "value": "skipped",
        "order": "skipped",
        "optional": "succeeded",
        "outcome": "succeeded",
        "always": "succeeded",
        "further": "skipped",
    }
    assert world.codes["value"] == world.codes["further"] == "dependency_skipped"
    assert world.settled["further"].blocked_by == "skips"
    assert world.status == "succeeded", "skips alone are success"


@clause("PLAN-45")
def test_what_waits_for_a_cancelled_task_is_skipped_as_after_a_failure() -> None:
    """A cancelled dependency gave no result; its dependents did nothing wrong."""
    world = World(task("slow"), task("next", "slow"), task("other"), seconds={"slow": 99, "other": 5})
    world.at(2, StopAsked("operator", task=0))
    world.run()

    assert world.states == {"slow": "cancelled", "next": "skipped", "other": "succeeded"}
    assert world.codes == {"slow": "operator", "next": "dependency_failed"}
    assert world.status == "failed", "a task cancelled alone leaves the run failed"


@clause("RUN-54", "MOD-14")
def test_an_ignored_failure_satisfies_all_edges_but_a_value() -> None:
    """There is no value to give; everything else goes on, and the run may succeed."""
    rows = [task("bad"), task("value", "bad"), task("order", "bad:order"), task("optional", "bad:optional")]

    world = World(*rows, ends={"bad": "ignored"}).run()

    assert world.states == {"bad": "failed", "value": "skipped", "order": "succeeded", "optional": "succeeded"}
    assert world.codes["value"] == "dependency_failed"
    assert world.status == "succeeded"


@clause("PLAN-46")
def test_kept_ends_satisfy_and_block_as_those_of_this_run() -> None:
    """A resume with --keep-failed leaves dependents skipped and runs the rest."""
    rows = [
        task("good", state="succeeded"),
        task("bad", state="failed"),
        task("old", "bad", state="skipped", reason="dependency_failed", blocked_by="bad"),
        task("next", "good"),
        task("behind", "bad"),
        task("further", "old"),
    ]

    world = World(*rows).run()

    assert world.states == {"next": "succeeded", "behind": "skipped", "further": "skipped"}
    assert world.settled["further"].blocked_by == "bad"
    assert world.settled["further"].text == "bad failed, via old"
    assert world.status == "failed"


@clause("PLAN-48")
def test_tasks_outside_the_selection_are_no_part_of_the_run() -> None:
    """They stay pending; what would like to have them goes on without."""
    rows = [task("chosen"), task("other"), task("wants", "chosen", "other:optional")]

    world = World(*rows, selection={0, 2}).run()

    assert world.states == {"chosen": "succeeded", "wants": "succeeded"}
    assert world.status == "succeeded"


@clause("PLAN-49")
def test_a_stop_leaves_no_task_open_and_none_failed() -> None:
    """What is cancelled is run by a resume; a stop of the user applies to clean-up too."""
    rows = [task("runs"), task("waits", "runs"), task("clean", "waits", always_run=True)]
    world = World(*rows, seconds={"runs": 99})
    world.at(3, StopAsked("interrupted"))
    world.run()

    assert set(world.states.values()) == {"cancelled"}
    assert set(world.codes.values()) == {"interrupted"}
    assert world.status == "cancelled"


@clause("RUN-42")
def test_on_interrupt_always_run_tasks_may_be_spared() -> None:
    """``always_run_on_interrupt``: clean-up still comes after the first signal; a second wish takes it too."""
    rows = [task("runs"), task("clean", "runs", always_run=True)]
    world = World(*rows, seconds={"runs": 99})
    world.at(3, StopAsked("interrupted", always_run_too=False))
    world.run()

    assert world.states == {"runs": "cancelled", "clean": "succeeded"}
    assert world.status == "cancelled"


@clause("RUN-55", "SCHED-14")
def test_an_always_run_task_runs_once_however_its_dependencies_ended() -> None:
    """It competes for slots like others and is exempt from cancellation alone."""
    rows = [task("bad"), task("blocked", "bad"), task("slow"), task("clean", "blocked", "slow", always_run=True)]

    world = World(*rows, ends={"bad": "failed"}, seconds={"slow": 9}, cancel_s=2).run()

    assert world.order.count("clean") == 1
    assert world.started["clean"] == 3, "the cancel of slow took two seconds"
    assert world.states["clean"] == "succeeded"


@clause("RUN-57")
def test_a_failing_always_run_task_leaves_the_run_failed() -> None:
    """Its failure is added; nothing that is already decided changes."""
    rows = [task("bad"), task("clean", "bad", always_run=True), task("more", "clean", always_run=True)]

    world = World(*rows, ends={"bad": "failed", "clean": "failed"}).run()

    assert world.states == {"bad": "failed", "clean": "failed", "more": "succeeded"}
    assert world.status == "failed"


@clause("RUN-56")
def test_the_budget_counts_only_while_nothing_of_the_run_is_at_work() -> None:
    """A queued clean-up that no worker takes ends; a slow cancel beside it costs nothing."""
    rows = [task("bad"), task("slow"), task("clean", always_run=True)]
    limits = RunLimits(parallelism=9, cores=9, always_run_budget_s=30)
    scheduler = Scheduler(rows, {}, limits, {}, starts_at_once=False)
    scheduler.on(Begin(), 0)
    scheduler.on(Started(0), 0)
    scheduler.on(Started(1), 0)

    assert WakeAt(40) not in scheduler.on(Finished(0, "failed"), 10)
    assert scheduler.on(Finished(1, "cancelled"), 110) == [WakeAt(140)], "slow was being cancelled till now"
    assert scheduler.on(Tick(), 140) == [
        Withdraw(2),
        Settle(task=2, state="cancelled", code="always_run_budget"),
        Complete("failed"),
    ]


@clause("RUN-51")
def test_keep_going_has_no_budget() -> None:
    """Nothing is being stopped there, so nothing has to hurry."""
    rules = {"m": ModuleRules(locks=frozenset({"db"}))}
    rows = [task("bad"), task("holds", module="m"), task("clean", "bad", module="m", always_run=True)]

    world = World(
        *rows, rules=rules, ends={"bad": "failed"}, seconds={"holds": 900}, keep_going=True, always_run_budget_s=30
    ).run()

    assert world.states["clean"] == "succeeded"
