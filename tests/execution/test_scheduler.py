"""Starts, orders, rights and ends of the scheduler, one behaviour at a time."""

from __future__ import annotations

import sys

import pytest
from scheduler_world import World, task

from towline.execution.limits import ModuleRules, RunLimits
from towline.execution.scheduler import Scheduler
from towline.execution.scheduling import (
    Begin,
    Cancel,
    Complete,
    Dispatch,
    Finished,
    Refused,
    RightFreed,
    Settle,
    Started,
    StopAsked,
    Withdraw,
)
from towline.testing import clause


@clause("SCHED-02", "SCHED-21")
def test_each_task_starts_in_the_list_that_made_it_ready() -> None:
    """Eager means eager: nothing but its own dependencies delays a task."""
    world = World(task("a"), task("b"), task("c", "a"), task("d", "a", "b"), seconds={"a": 1, "b": 5}).run()

    assert world.started == {"a": 0, "b": 0, "c": 1, "d": 5}
    assert world.status == "succeeded"


@clause("SCHED-03")
def test_ready_tasks_go_by_effective_priority_then_critical_path_then_place() -> None:
    """What a critical task needs is critical itself; of equals the long way comes first."""
    rules = {"urgent": ModuleRules(priority=200)}
    rows = [task("plain"), task("long"), task("needed"), task("tail", "long"), task("urgent", "needed")]

    world = World(*rows, rules=rules, parallelism=1).run()

    assert world.order == ["needed", "urgent", "long", "plain", "tail"]


@clause("SCHED-04", "SCHED-22")
def test_a_long_chain_is_begun_before_many_short_tasks() -> None:
    """With two slots the chain decides the makespan, if estimates are known."""
    chain = [task("c0"), task("c1", "c0"), task("c2", "c1")]
    short = [task(f"s{n}") for n in range(30)]
    seconds = {"c0": 10.0, "c1": 10.0, "c2": 10.0} | {f"s{n}": 1.0 for n in range(30)}

    world = World(*short, *chain, seconds=seconds, parallelism=2).run()

    assert world.order[0] == "c0"
    assert world.now == 30


@clause("SCHED-05")
def test_waiting_tasks_hold_no_slot() -> None:
    """Parallelism bounds what runs, not what waits."""
    world = World(task("a"), *[task(f"b{n}", "a") for n in range(10)], parallelism=3).run()

    assert world.most_running == 3
    assert world.now == 1 + 4


@clause("SCHED-06")
def test_cpu_tasks_are_bounded_by_cores_and_others_are_not() -> None:
    """Two cores: two cpu tasks at once, beside any number of waiting ones."""
    rules = {"cpu": ModuleRules(hint="cpu"), "io": ModuleRules(hint="io")}
    rows = [task(f"cpu{n}", module="cpu") for n in range(4)] + [task(f"io{n}", module="io") for n in range(4)]

    world = World(*rows, rules=rules, cores=2).run()

    assert [world.started[f"io{n}"] for n in range(4)] == [0, 0, 0, 0]
    assert [world.started[f"cpu{n}"] for n in range(4)] == [0, 0, 1, 1]


@clause("SCHED-07")
def test_locks_are_taken_all_at_once_or_not_at_all() -> None:
    """Crossing lock orders cannot deadlock, and no two holders meet."""
    rules = {
        "ab": ModuleRules(locks=frozenset("ab")),
        "bc": ModuleRules(locks=frozenset("bc")),
        "ca": ModuleRules(locks=frozenset("ca")),
    }
    rows = [task(f"{name}{n}", module=name) for n in range(3) for name in ("ab", "bc", "ca")]

    world = World(*rows, rules=rules).run()

    assert world.status == "succeeded"
    assert world.most_running == 1
    assert world.now == 9


@clause("SCHED-08", "SCHED-09")
def test_an_exclusive_task_drains_the_run_and_is_alone() -> None:
    """It starts only when nothing is active; behind it nothing starts, before it everything does."""
    rules = {"alone": ModuleRules(exclusive=True, priority=100), "first": ModuleRules(priority=200)}
    rows = [task("first"), task("gate", module="first"), task("alone", "gate"), task("x", "first"), task("y", "gate")]

    world = World(*rows, rules=rules, seconds={"first": 5, "gate": 1, "x": 2, "y": 2}).run()

    assert world.started["alone"] == 5, "it waits for what was running"
    assert world.started["y"] == 6, "it was ready at 1, but behind the exclusive one"
    assert world.started["x"] == 6, "nothing runs beside it"


@clause("SCHED-10")
def test_locks_of_a_task_passed_over_for_30_s_are_reserved() -> None:
    """A task that needs two busy locks would starve among users of one of them."""
    rules = {
        "both": ModuleRules(locks=frozenset({"x", "y"}), priority=1),
        "x": ModuleRules(locks=frozenset({"x"})),
        "y": ModuleRules(locks=frozenset({"y"})),
    }
    xs = [task(f"x{n}", module="x") for n in range(20)]
    ys = [task(f"y{n}", module="y") for n in range(20)]
    seconds = {row.id: 10.0 for row in xs} | {row.id: 7.0 for row in ys} | {"go": 1.0}

    world = World(*xs, *ys, task("go"), task("both", "go"), rules=rules, seconds=seconds).run()

    assert world.started["both"] == 40, "passed over at 1; reserved from 31 on; x ends at 40, y at 35"
    assert all(not 31 <= world.started[row.id] < 40 for row in [*xs, *ys])


@clause("SCHED-10")
def test_a_reservation_also_holds_against_tasks_that_become_ready_later() -> None:
    """The stream that starves it may be a chain, whose next task was never waiting."""
    rules = {
        "both": ModuleRules(locks=frozenset({"x", "y"}), priority=1),
        "x": ModuleRules(locks=frozenset({"x"})),
        "y": ModuleRules(locks=frozenset({"y"})),
    }
    xs = [task(f"x{n}", *([f"x{n - 1}"] if n else []), module="x") for n in range(20)]
    ys = [task(f"y{n}", *([f"y{n - 1}"] if n else []), module="y") for n in range(20)]
    seconds = {row.id: 10.0 for row in xs} | {row.id: 7.0 for row in ys} | {"go": 1.0}

    world = World(*xs, *ys, task("go"), task("both", "go"), rules=rules, seconds=seconds).run()

    assert world.started["both"] == 40


@clause("SCHED-02", "SCHED-11")
def test_all_that_fits_starts_when_several_tickets_come_back_at_once() -> None:
    """One ticket freed wakes one task; three wake three."""
    rules = {"all": ModuleRules(pools={"db": 3}, priority=1), "one": ModuleRules(pools={"db": 1})}
    rows = [task("all"), *[task(f"one{n}", module="one") for n in range(4)]]

    world = World(*rows, rules=rules, pools={"db": 3}).run()

    assert [world.started[f"one{n}"] for n in range(4)] == [1, 1, 1, 2]


@clause("SCHED-11")
def test_pools_are_counted_and_impossible_wishes_refused() -> None:
    """A task may take several tickets; more than exist could never start."""
    rules = {"one": ModuleRules(pools={"db": 1}), "two": ModuleRules(pools={"db": 2})}
    rows = [task(f"{name}{n}", module=name) for n in range(3) for name in ("one", "two")]

    world = World(*rows, rules=rules, pools={"db": 3}).run()

    assert world.most_running == 2
    assert world.now == 3
    with pytest.raises(ValueError, match="wants 2 tickets of pool 'db', which has 1"):
        World(*rows, rules=rules, pools={"db": 1})


@clause("SCHED-12", "SCHED-13")
def test_a_refused_task_keeps_its_place_and_gives_its_rights_back() -> None:
    """Refused at the start means never two holders, and nothing is lost."""
    rules = {"m": ModuleRules(locks=frozenset({"db"}))}
    scheduler = Scheduler([task("a", module="m"), task("b", module="m")], rules, RunLimits(parallelism=2, cores=2), {})

    assert scheduler.on(Begin(), 0) == [Dispatch(0)]
    assert scheduler.on(Refused(0), 1) == [Dispatch(0)]
    assert scheduler.on(Finished(0, "succeeded"), 2) == [Dispatch(1)]
    assert scheduler.on(Finished(1, "succeeded"), 3) == [Complete("succeeded")]


@clause("SCHED-15")
def test_a_stop_withdraws_what_is_queued_and_cancels_what_runs_in_one_list() -> None:
    """Where tasks are queued elsewhere, one decision list ends both kinds; a later stop may only escalate."""
    rows = [task("runs"), task("queued"), task("waits", "runs"), task("clean", always_run=True)]
    scheduler = Scheduler(rows, {}, RunLimits(parallelism=9, cores=9), {}, starts_at_once=False)
    scheduler.on(Begin(), 0)
    scheduler.on(Started(0), 0)
    scheduler.on(Started(3), 0)

    decisions = scheduler.on(StopAsked("pipeline_failed"), 1)

    assert decisions == [
        Cancel(0, "pipeline_failed"),
        Withdraw(1),
        Settle(task=1, state="cancelled", code="pipeline_failed"),
        Settle(task=2, state="cancelled", code="pipeline_failed"),
    ]
    assert scheduler.on(StopAsked("interrupted"), 2)[:2] == [Cancel(0, "interrupted"), Cancel(3, "interrupted")]
    assert scheduler.on(StopAsked("stopped"), 3) == []


@clause("SCHED-16")
def test_complete_comes_once_and_at_once_for_an_empty_plan() -> None:
    """Nothing to do is done; whatever comes after the end decides nothing."""
    scheduler = Scheduler([], {}, RunLimits(parallelism=1, cores=1), {})

    assert scheduler.on(Begin(), 0) == [Complete("succeeded")]
    assert scheduler.on(StopAsked("stopped"), 1) == []


@clause("SCHED-17")
def test_a_run_that_cannot_go_on_is_called_stuck_with_its_waits() -> None:
    """A fault of the scheduler must end a run with words, not hang it."""
    world = World(task("a"), task("b", "a"), selection={1}).run()

    assert world.stuck is not None
    assert world.now == pytest.approx(0.1)
    assert world.stuck.tasks == (("b", "waits for a, which is no part of this run"),)


@clause("SCHED-18")
def test_the_first_end_of_a_task_counts_and_a_late_start_is_cancelled_again() -> None:
    """A task executed twice after a lost lease ends once; one withdrawn in flight is stopped."""
    rows = [task("a"), task("b", "a"), task("c")]
    scheduler = Scheduler(rows, {}, RunLimits(parallelism=9, cores=9), {}, starts_at_once=False)
    scheduler.on(Begin(), 0)
    scheduler.on(Finished(0, "succeeded"), 1)

    assert scheduler.on(Finished(0, "failed"), 2) == []
    assert scheduler.late_finishes == 1
    scheduler.on(StopAsked("pipeline_failed"), 3)
    assert scheduler.on(Started(2), 4) == [Cancel(2, "pipeline_failed")]


@clause("SCHED-20")
def test_tiers_wait_for_each_other_and_always_run_tasks_for_none() -> None:
    """On request the seed's order: a tier starts when every task of the former is final."""
    rows = [
        task("a0"),
        task("b0"),
        task("a1", "a0", tier=1),
        task("c2", "a1", tier=2),
        task("clean", "a0:outcome", tier=1, always_run=True),
    ]

    world = World(*rows, seconds={"a0": 1, "b0": 9}, schedule="tiers").run()

    assert world.started == {"a0": 0, "b0": 0, "clean": 1, "a1": 9, "c2": 10}


@clause("SCHED-24", "PLAN-13")
def test_a_chain_of_20000_runs_and_skips_without_recursion() -> None:
    """Depth of the graph is no depth of calls."""
    rows = [task(f"t{n}", *([f"t{n - 1}"] if n else [])) for n in range(20_000)]
    depth = _depth()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 150)
    try:
        runs = World(*rows, seconds=dict.fromkeys((row.id for row in rows), 1.0)).run()
        skips = World(*rows, ends={"t0": "failed"}).run()
    finally:
        sys.setrecursionlimit(limit)

    assert runs.status == "succeeded"
    assert set(skips.states.values()) == {"failed", "skipped"}
    assert skips.settled["t19999"].blocked_by == "t0"


def _depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


@clause("SCHED-25")
def test_an_end_looks_only_at_its_own_dependents() -> None:
    """Cost per end must not grow with the plan: counted in looks at the state of tasks."""

    class Counting(bytearray):
        looks = 0

        def __getitem__(self, place):  # type: ignore[no-untyped-def,override]
            Counting.looks += 1
            return super().__getitem__(place)

    def looks_per_task(count: int) -> float:
        rows = [task(f"t{n}", *([f"t{n - 1}"] if n % 10 else [])) for n in range(count)]
        scheduler = Scheduler(rows, {}, RunLimits(parallelism=8, cores=8), {})
        scheduler._states = scheduler._standing.states = Counting(scheduler._states)
        todo = scheduler.on(Begin(), 0)
        Counting.looks = 0
        for decision in todo:
            if isinstance(decision, Dispatch):
                todo.extend(scheduler.on(Finished(decision.task, "succeeded"), 0))
        return Counting.looks / count

    assert looks_per_task(4_000) == pytest.approx(looks_per_task(400), rel=0.05)


@clause("RUN-23", "RUN-24")
def test_rights_of_an_abandoned_body_stay_taken_until_it_ends() -> None:
    """Two holders of a lock would be worse than waiting; and waiting is bounded."""
    rules = {"m": ModuleRules(locks=frozenset({"db"}))}
    rows = [task("old", module="m"), task("next", module="m"), task("busy")]
    freed = World(*rows, rules=rules, ends={"old": "abandoned"}, seconds={"busy": 500}, keep_going=True)
    freed.at(20, RightFreed(0))

    assert freed.run().started["next"] == 20

    vain = World(*rows, rules=rules, ends={"old": "abandoned"}, seconds={"busy": 500}, keep_going=True).run()
    assert vain.codes["next"] == "right_abandoned"
    assert vain.settled["next"].blocked_by == "old"
    assert 61 <= next(now for now, _, made in vain.log if any(isinstance(one, Settle) for one in made)) <= 63

    idle = World(*rows[:2], rules=rules, ends={"old": "abandoned"}, keep_going=True).run()
    assert idle.codes["next"] == "right_abandoned"
    assert idle.now == 1, "nothing else is active: waiting would be for ever"


@clause("RUN-23")
def test_one_more_slot_opens_when_abandoned_bodies_hold_all() -> None:
    """A node must not stand still because of bodies that nobody can end."""
    world = World(task("a"), task("b"), ends={"a": "abandoned"}, parallelism=1, keep_going=True).run()

    assert world.started["b"] == 6, "5 s after the abandonment at 1"
    assert world.scheduler.extra_slots == 1


@clause("CTL-17")
def test_a_waiting_task_says_for_what() -> None:
    """Views show these words; an operator acts on them."""
    rules = {
        "m": ModuleRules(locks=frozenset({"db"}), priority=2),
        "alone": ModuleRules(exclusive=True, priority=1),
    }
    rows = [task("a", module="m"), task("b", module="m"), task("c", "a"), task("d", "a", "b"), task("alone"), task("z")]

    world = World(*rows, rules=rules, parallelism=5).run(until=0)
    words = {row.id: world.scheduler.waits_for(place) for place, row in enumerate(rows)}

    assert words == {
        "a": "",
        "b": "waits for lock db",
        "c": "waits for a",
        "d": "waits for a and 1 more",
        "alone": "waits until nothing else runs",
        "z": "waits for alone, which runs alone",
    }
    narrow = World(task("x"), task("y"), parallelism=1).run(until=0)
    assert narrow.scheduler.waits_for(1) == "waits for a slot"


@clause("SCHED-04")
def test_the_critical_path_is_what_is_left_of_it() -> None:
    """Who resumes asks how long it still takes: what was kept neither starts nor lengthens anything."""
    rows = [
        task("kept", state="succeeded"),
        task("long", state="succeeded"),
        task("next", "kept"),
        task("last", "next"),
    ]
    seconds = {"kept": 500.0, "long": 900.0, "next": 2.0, "last": 3.0}
    scheduler = Scheduler(rows, {}, RunLimits(parallelism=1, cores=1), seconds)

    assert [rows[place].id for place in scheduler.critical_path()] == ["next", "last"]
    assert scheduler.critical_path_s(2) == 5.0
    ended = Scheduler(rows[:2], {}, RunLimits(parallelism=1, cores=1), seconds)
    assert ended.critical_path() == []
