"""The fold that all views share, and the live view's drawing of it."""

from __future__ import annotations

import time

import pytest

from towline.testing import clause
from towline.views.drawing import details, drawing
from towline.views.plain import status_line
from towline.views.screen import STATES, Screen, advance
from views.scenes import Scene, at, failure_error, planned


def folded(scene: Scene) -> Screen:
    """Fold all events of a scene."""
    screen = Screen()
    for event in scene.events:
        advance(screen, event)
    return screen


def drawn(screen: Screen, width: int, second: float = 10, height: int = 24, **more: object) -> list[str]:
    """Draw a screen as text."""
    return [line.plain.rstrip() for line in drawing(screen, at(second), width, height, **more)]  # type: ignore[arg-type]


def move() -> Scene:
    """A run in the middle: one phase is over, one task is half done, one failed, one waits."""
    scene = Scene().begin(
        planned("export.planes", phase="export"),
        planned("import.planes", "export.planes", phase="import"),
        planned("import.flights", "export.planes", phase="import"),
        planned("report", "import.flights", phase="import"),
    )
    scene.running(0, "export.planes")
    scene.ended(2, "export.planes", done=3322, total=3322)
    scene.running(2, "import.planes", attempt=2)
    scene.running(2, "import.flights")
    scene.tell(
        "progress",
        9,
        "import.planes",
        1,
        done=1200,
        total=3322,
        last_checkpoint_at=at(8),
        next_checkpoint_at=at(11),
    )
    scene.ended(5, "import.flights", "failed", error=failure_error("no airport SJU"))
    return scene


@clause("CTL-15")
def test_the_same_events_give_the_same_screen_however_they_come() -> None:
    """A view that joins late, or gets everything in one look, shows the same rows and numbers."""
    scene = move()
    live, late = Screen(), Screen()
    for event in scene.events:
        advance(live, event)
        advance(live, scene.events[-1].__class__(n=0, at=event.at, kind="of_a_later_version"))
    for event in list(scene.events):
        advance(late, event)

    assert live == late
    assert live.counts == dict.fromkeys(STATES, 0) | {"succeeded": 1, "running": 1, "failed": 1, "pending": 1}
    assert live.phases == {"export": (1, 1), "import": (1, 3)}
    assert list(live.running) == ["import.planes"]
    assert live.failed == ["import.flights"]
    assert (live.done, live.total) == (2, 4)


@clause("CTL-15")
def test_joins_are_drawn_but_not_counted() -> None:
    """Counts are of tasks that do something (PLAN-62)."""
    screen = folded(Scene().begin(planned("load", join=True), planned("load[a]", "load")))

    assert screen.total == 1
    assert len(screen.rows) == 2


@clause("PLAN-62")
def test_a_join_without_tasks_stands_for_itself() -> None:
    """A failure that no count shows reads as a run that failed of nothing."""
    scene = Scene().begin(planned("load", join=True, phase="import"), planned("report", phase="import"))
    scene.ended(1, "load", "failed", error=failure_error("no items"))
    screen = folded(scene)
    assert {state: count for state, count in screen.counts.items() if count} == {"failed": 1, "pending": 1}
    assert screen.phases == {"import": (1, 2)}

    scene.tell("tasks_added", 2, tasks=[planned("load[a]", "load", phase="import")])
    screen = folded(scene)
    assert {state: count for state, count in screen.counts.items() if count} == {"pending": 2}
    assert screen.phases == {"import": (0, 2)}


@clause("CTL-16", "CTL-18", "CTL-24")
def test_golden_screen_of_80_columns() -> None:
    """What an operator sees: progress, rate, time, saves, why something waits, phases, and the footer."""
    screen = folded(move())
    waits = {"report": "waits for import.flights"}

    assert drawn(screen, 80, eta="at least 14 s (1 unknown)", waits=waits) == [
        "+ export.planes              succeeded  2.0 s  3,322 items",
        "> import.planes              running    1,200/3,322  150/s  8.0 s  14 s left  …",
        "x import.flights             failed     3.0 s  ValueError: no airport SJU",
        ". report                     pending    waits for import.flights",
        "export 1/1 > [import 1/3]",
        "flights 2/4  10 s  left at least 14 s (1 unknown)  1 succeeded, 1 failed, 1 …",
    ]


@clause("CTL-24")
@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """A line that wraps would tear the view at each redraw."""
    scene = move()
    scene.tell("finding", 9, "import.planes", severity="blocking", code="x", message="y")
    screen = folded(scene)
    screen.rows["report"].id = "report[" + "x" * 120 + "]"

    assert max(len(line) for line in drawn(screen, width, eta="14 s")) <= width


@clause("CTL-24")
def test_the_last_line_has_room_for_what_a_terminal_echoes() -> None:
    """``^C`` behind a full last line wrapped it, and a torn row stayed on the screen (seen on a real terminal)."""
    lines = drawn(folded(move()), 60, eta="at least 14 s (1 unknown)")

    assert len(lines[-1]) <= 57


@clause("CTL-16")
def test_a_row_says_all_that_is_known_of_a_running_task() -> None:
    """Bar with counts, rate, elapsed, left, attempt above 1, worker when distributed, saves."""
    row = folded(move()).rows["import.planes"]
    row.attempt, row.worker = 2, "w-3"

    assert details(row, at(10), width=120) == (
        "#######.............  1,200/3,322  150/s  8.0 s  14 s left  attempt 2  on w-3  saved 2.0 s ago, next in 1.0 s"
    )
    row.total = None
    assert details(row, at(10), width=120).startswith("1,200  150/s  8.0 s  attempt 2")


def test_a_task_whose_cancel_was_asked_is_shown_as_cancelling() -> None:
    """It is cancelled only when its body has ended (CTL-17)."""
    scene = move()
    scene.tell("cancel_requested", 9.5)

    assert "> import.planes        cancelling" in drawn(folded(scene), 60)[1]


@clause("REP-12", "CTL-24")
def test_a_screen_of_100_000_tasks_is_summarised_and_cheap() -> None:
    """The view must not cost more than the run: what runs, what failed, counts; the rest is a number."""
    scene = Scene().begin()
    names = [f"load[{number:05}]" for number in range(100_000)]
    scene.tell("plan", 0, part=1, parts=1, tasks=[planned(name) for name in names])
    for name in names[:50_000]:
        scene.running(1, name)
        scene.ended(2, name)
    for name in names[50_000:50_008]:
        scene.running(3, name)
    scene.ended(4, names[50_000], "failed", error=failure_error())
    screen = folded(scene)

    begun = time.perf_counter()
    for _ in range(10):
        lines = drawn(screen, 100, height=40)
        status_line(screen)
    each_s = (time.perf_counter() - begun) / 10

    assert lines[0].startswith("x load[50000]")
    assert [line[:13] for line in lines[1:8]] == [f"> load[{number}]" for number in range(50_001, 50_008)]
    assert lines[8] == "  … 99,992 more tasks"
    assert lines[9].startswith("flights 50,001/100,000  10 s  50,000 succeeded, 1 failed, 7 running, 49,992 pending")
    assert len(lines) == 10
    assert each_s < 0.02


def test_a_small_terminal_gets_a_low_drawing() -> None:
    """A drawing higher than the terminal would scroll away its own top."""
    scene = Scene().begin(*(planned(f"t{number:02}") for number in range(40)))

    assert len(drawn(folded(scene), 60, height=10)) <= 9
