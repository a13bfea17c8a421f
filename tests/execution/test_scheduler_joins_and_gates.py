"""Expansion at run time, and gates, as the scheduler decides them (PLAN-50..62)."""

from __future__ import annotations

from scheduler_world import World, task

from towline.execution.limits import RunLimits
from towline.execution.scheduler import Scheduler
from towline.execution.scheduling import Begin, Complete, Dispatch, Expand, Finished, Grown, Settle, StopAsked
from towline.testing import clause


def join(name: str, source: str, *needs: str, **fields: object):  # type: ignore[no-untyped-def]
    return task(name, source, *needs, join=True, source=source, **fields)


def child(of: str, key: str, *needs: str, item: int = 0, **fields: object):  # type: ignore[no-untyped-def]
    return task(f"{of}[{key}]", *needs, module=of, key=key, parent=of, item=item, **fields)


@clause("PLAN-56", "PLAN-57", "SCHED-19")
def test_a_join_expands_when_its_source_succeeded_and_ends_with_its_last_child() -> None:
    """Dependents wait until the growth is known, then for every child."""
    children = [child("each", "a", "list"), child("each", "b", "list", item=1)]
    rows = [task("list"), join("each", "list"), task("after", "each")]

    world = World(*rows, children={"each": children}, seconds={"each[a]": 2, "each[b]": 5}).run()

    assert world.started == {"list": 0, "each[a]": 1, "each[b]": 1, "after": 6}
    assert world.states["each"] == "succeeded"
    assert world.status == "succeeded"


@clause("PLAN-60")
def test_an_empty_source_makes_the_join_succeed_and_a_failed_one_skips_it() -> None:
    """No items are a result; no list is none."""
    empty = World(task("list"), join("each", "list"), task("after", "each"), children={"each": []}).run()
    assert empty.states == {"list": "succeeded", "each": "succeeded", "after": "succeeded"}

    failed = World(task("list"), join("each", "list"), task("after", "each"), ends={"list": "failed"}).run()
    assert failed.states == {"list": "failed", "each": "skipped", "after": "skipped"}
    assert failed.settled["after"].blocked_by == "list"

    skipped = World(task("list"), join("each", "list"), ends={"list": "skipped"}).run()
    assert skipped.codes["each"] == "dependency_skipped"


@clause("PLAN-60")
def test_an_empty_join_still_waits_for_its_other_dependencies() -> None:
    """Order must hold through a module that turned out to have no tasks."""
    rows = [task("list"), task("slow"), join("each", "list", "slow:order"), task("after", "each")]

    assert World(*rows, children={"each": []}, seconds={"slow": 9}).run().started["after"] == 9
    failing = World(*rows, children={"each": []}, ends={"slow": "failed"}, seconds={"slow": 9}, keep_going=True).run()
    assert failing.states["each"] == failing.states["after"] == "skipped"
    assert failing.settled["after"].blocked_by == "slow"


@clause("PLAN-58")
def test_a_failed_expansion_fails_the_join_and_not_its_source() -> None:
    """Bad keys are the fault of the join."""
    rows = [task("list"), join("each", "list"), task("after", "each")]
    scheduler = Scheduler(rows, {}, RunLimits(parallelism=9, cores=9), {})
    assert scheduler.on(Begin(), 0) == [Dispatch(0)]
    assert scheduler.on(Finished(0, "succeeded"), 1) == [Expand(1)]

    decisions = scheduler.on(Finished(1, "failed"), 2)

    assert decisions == [
        Settle(task=2, state="skipped", code="dependency_failed", text="each failed", blocked_by="each"),
        Complete("failed"),
    ]


def test_a_join_ends_as_the_worst_of_its_children() -> None:
    """The first of failed, timed out, cancelled, skipped found among them (planning.md section 3)."""
    children = [child("each", key, "list", item=n) for n, key in enumerate("abc")]
    rows = [task("list"), join("each", "list"), task("after", "each"), task("maybe", "each:optional")]

    world = World(
        *rows,
        children={"each": children},
        ends={"each[a]": "skipped", "each[b]": "timed_out", "each[c]": "succeeded"},
        keep_going=True,
    ).run()

    assert world.states["each"] == "timed_out"
    assert world.settled["after"].blocked_by == "each[b]"
    assert world.settled["after"].text == "each[b] timed out, via each"
    assert world.states["maybe"] == "succeeded"


@clause("RUN-54")
def test_a_join_whose_failed_children_are_ignored_is_ignored_itself() -> None:
    """What the user chose not to mind must not come back through the join."""
    children = [child("each", "a", "list"), child("each", "b", "list", item=1)]
    rows = [task("list"), join("each", "list"), task("order", "each:order"), task("value", "each")]

    world = World(*rows, children={"each": children}, ends={"each[a]": "ignored"}).run()

    assert world.settled["each"].ignored
    assert world.states["order"] == "succeeded"
    assert world.states["value"] == "skipped"
    assert world.status == "succeeded"


@clause("RUN-54")
def test_a_join_of_an_ignored_failure_and_a_skip_fails_no_run() -> None:
    """No failure counts, so the run succeeds; what needs the join is skipped all the same."""
    children = [child("each", "a", "list"), child("each", "b", "list", item=1)]
    rows = [task("list"), join("each", "list"), task("order", "each:order")]

    world = World(*rows, children={"each": children}, ends={"each[a]": "ignored", "each[b]": "skipped"}).run()

    assert (world.states["each"], world.settled["each"].ignored) == ("failed", False)
    assert world.states["order"] == "skipped"
    assert world.status == "succeeded"


@clause("PLAN-44")
def test_a_failed_child_skips_what_needs_the_join_and_cancels_its_siblings() -> None:
    """The join cannot succeed any more: its dependents are skipped because of the child, not cancelled."""
    children = [child("each", "a", "list"), child("each", "b", "list", item=1)]
    rows = [task("list"), join("each", "list"), task("after", "each"), task("other", "list")]

    world = World(
        *rows, children={"each": children}, ends={"each[a]": "failed"}, seconds={"each[b]": 50, "other": 50}
    ).run()

    assert world.states["after"] == "skipped"
    assert world.settled["after"].blocked_by == "each[a]"
    assert world.states["each[b]"] == world.states["other"] == "cancelled"
    assert world.states["each"] == "failed"


def test_children_that_come_after_a_stop_are_cancelled_at_once() -> None:
    """The record of the growth is durable, so each child needs an end."""
    rows = [task("list"), join("each", "list")]
    scheduler = Scheduler(rows, {}, RunLimits(parallelism=9, cores=9), {})
    scheduler.on(Begin(), 0)
    assert scheduler.on(Finished(0, "succeeded"), 1) == [Expand(1)]
    scheduler.on(StopAsked("stopped"), 1)

    decisions = scheduler.on(Grown(1, (child("each", "a", "list"),)), 2)

    assert [(one.task, one.state) for one in decisions if isinstance(one, Settle)] == [
        (2, "cancelled"),
        (1, "cancelled"),
    ]
    assert decisions[-1] == Complete("cancelled")


@clause("PLAN-61")
def test_a_kept_source_keeps_its_children_and_the_join_is_derived_anew() -> None:
    """A resume does not expand again what was expanded."""
    rows = [
        task("list", state="succeeded"),
        join("each", "list", source_digest="sha256:1"),
        task("after", "each"),
        child("each", "a", "list", state="succeeded"),
        child("each", "b", "list", item=1),
    ]

    world = World(*rows).run()

    assert world.order == ["each[b]", "after"]
    assert world.states["each"] == "succeeded"


@clause("PLAN-61")
def test_a_source_that_runs_again_expands_again() -> None:
    """Same key: kept with its state; new key: added; vanished key: gone. Until then children wait."""
    old = [child("each", "kept", "list", state="succeeded"), child("each", "gone", "list", item=1)]
    rows = [task("list"), join("each", "list", source_digest="sha256:1"), task("after", "each"), *old]
    again = [old[0], child("each", "new", "list", item=1)]

    world = World(*rows, children={"each": again}).run()

    assert world.order == ["list", "each[new]", "after"]
    assert "each[gone]" not in world.states
    assert world.states["each"] == "succeeded"


@clause("PLAN-51")
def test_a_blocked_gate_leaves_what_waits_for_it_pending_and_lets_the_rest_go_on() -> None:
    """An operator must act; until then nothing behind the gate moves, and nothing else is lost."""
    rows = [
        task("gate", gate=True),
        task("other"),
        task("more", "other"),
        task("import", gates=("gate",)),
        task("verify", "import"),
        task("clean", "verify", always_run=True),
    ]

    world = World(*rows, ends={"gate": "blocked"}, seconds={"other": 5}).run()

    assert world.states == {
        "import": "pending",
        "verify": "pending",
        "other": "succeeded",
        "more": "succeeded",
        "clean": "succeeded",
    }
    assert world.settled["verify"].blocked_by == "gate"
    assert world.codes["verify"] == "blocked"
    assert world.started["clean"] == 6, "always-run tasks come when all else has ended"
    assert world.status == "blocked"
    assert world.scheduler.waits_for(4) == "waits for gate, which is blocked"


@clause("PLAN-52")
def test_at_the_end_the_outcome_of_a_blocked_gate_may_be_looked_at() -> None:
    """It counts as skipped for outcome edges; for every other edge it is not final."""
    rows = [task("gate", gate=True), task("tells", "gate:outcome"), task("maybe", "gate:optional"), task("o", "tells")]

    world = World(*rows, ends={"gate": "blocked"}).run()

    assert world.states == {"maybe": "pending", "tells": "succeeded", "o": "succeeded"}
    assert world.status == "blocked"


@clause("PLAN-52")
def test_what_was_let_go_at_the_end_does_not_count_twice() -> None:
    """An operator cancels what is held while clean-up runs: the next clean-up still waits for the first."""
    rows = [
        task("gate", gate=True),
        task("import", gates=("gate",)),
        task("first", "import", always_run=True),
        task("second", "import", "first", always_run=True),
    ]
    world = World(*rows, ends={"gate": "blocked"}, seconds={"first": 10})
    world.at(5, StopAsked("operator", task=1))
    world.run()

    assert world.states["import"] == "cancelled"
    assert world.started["second"] == 11


@clause("PLAN-55")
def test_a_gate_that_fails_blocks_like_any_required_dependency() -> None:
    """A failed export that a gate needs stops the import, also under keep_going."""
    rows = [task("export"), task("gate", "export", gate=True), task("import", gates=("gate",))]

    world = World(*rows, ends={"export": "failed"}, keep_going=True).run()

    assert world.states == {"export": "failed", "gate": "skipped", "import": "skipped"}
    assert world.settled["import"].blocked_by == "export"
    assert world.status == "failed"


@clause("PLAN-51", "PLAN-56")
def test_children_behind_a_blocked_gate_stay_pending_with_their_join() -> None:
    """Growth does not open a gate."""
    rows = [task("gate", gate=True), task("list"), join("each", "list", gates=("gate",)), task("after", "each")]
    children = [child("each", "a", "list", gates=("gate",))]

    world = World(*rows, ends={"gate": "blocked"}, children={"each": children}, seconds={"list": 3}).run()

    assert world.states["each[a]"] == world.states["each"] == world.states["after"] == "pending"
    assert world.status == "blocked"


def test_a_failure_beside_a_blocked_gate_fails_the_run() -> None:
    """The worse of both is reported; the gate runs again at a resume."""
    rows = [task("gate", gate=True), task("bad"), task("import", gates=("gate",))]

    world = World(*rows, ends={"gate": "blocked", "bad": "failed"}, seconds={"bad": 3}).run()

    assert world.states["import"] == "cancelled"
    assert world.status == "failed"
