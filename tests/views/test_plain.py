"""Plain lines: what a pipe, a log file and a CI system get."""

from __future__ import annotations

import pytest

from towline.testing import clause
from towline.views.ci_hosts import CiHost, defused, host_of
from towline.views.held_output import FAILED_TASKS, HELD_LINES, HELD_S, HeldOutput
from towline.views.plain import PlainConsole
from towline.views.streams import fitted, harmless, write_lines
from views.scenes import FakeClock, Pipe, Scene, failure_error, planned


def shown(scene: Scene, host: CiHost | None = None, **options: bool) -> list[str]:
    """Play a scene to its end and return the lines."""
    pipe = Pipe()
    console = PlainConsole(pipe, host=host, clock=FakeClock(), **options)
    console(scene.events)
    console.flush()
    return pipe.getvalue().splitlines()


def small_run() -> Scene:
    """Two tasks at once whose lines mix; the first one fails."""
    scene = Scene().begin(planned("build"), planned("lint"), planned("ship", "build"))
    scene.running(1, "build")
    scene.running(1, "lint")
    for number in range(3):
        scene.said(2, "build", f"compiled {number}")
        scene.said(2, "lint", f"checked {number}")
    scene.ended(3, "build", "failed", error=failure_error())
    scene.tell(
        "task_state",
        3,
        "ship",
        **{"from": "pending", "to": "skipped", "reason": "dependency_failed", "blocked_by": "build"},
    )
    scene.ended(4.25, "lint")
    return scene


@clause("CTL-24", "REP-10")
def test_local_output_streams_in_whole_lines_with_one_line_per_transition() -> None:
    """Someone who reads a log afterwards sees who said what, and when what began and ended."""
    assert shown(small_run()) == [
        "10:00:01 build running (attempt 1)",
        "10:00:01 lint running (attempt 1)",
        "build | compiled 0",
        "lint | checked 0",
        "build | compiled 1",
        "lint | checked 1",
        "build | compiled 2",
        "lint | checked 2",
        "10:00:03 build failed in 2.0 s - ValueError: boom",
        "10:00:03 ship skipped - a dependency failed: build",
        "10:00:04 lint succeeded in 3.2 s",
    ]


@clause("REP-10", "REP-11")
def test_on_ci_each_task_is_one_fold_and_the_failed_one_comes_last_and_open() -> None:
    """Interleaved output is unreadable in a CI log, and a folded failure is a failure that nobody sees."""
    assert shown(small_run(), "github") == [
        "10:00:01 build running (attempt 1)",
        "10:00:01 lint running (attempt 1)",
        "10:00:03 build failed in 2.0 s - ValueError: boom",
        "10:00:03 ship skipped - a dependency failed: build",
        "::group::lint succeeded in 3.2 s",
        "checked 0",
        "checked 1",
        "checked 2",
        "::endgroup::",
        "10:00:04 lint succeeded in 3.2 s",
        "",
        "== build failed in 2.0 s",
        "compiled 0",
        "compiled 1",
        "compiled 2",
    ]


@clause("REP-11")
@pytest.mark.parametrize(
    ("host", "first", "last"),
    [
        ("github", "::group::lint succeeded in 3.2 s", "::endgroup::"),
        ("azure", "##[group]lint succeeded in 3.2 s", "##[endgroup]"),
        (
            "gitlab",
            "\x1b[0Ksection_start:1772359200:towline_1[collapsed=true]\r\x1b[0Klint succeeded in 3.2 s",
            "\x1b[0Ksection_end:1772359200:towline_1\r\x1b[0K",
        ),
        (
            "teamcity",
            "##teamcity[blockOpened name='lint succeeded in 3.2 s']",
            "##teamcity[blockClosed name='lint succeeded in 3.2 s']",
        ),
        ("travis", "travis_fold:start:towline_1\r\x1b[0Klint succeeded in 3.2 s", "travis_fold:end:towline_1\r\x1b[0K"),
        ("buildkite", "--- lint succeeded in 3.2 s", "10:00:04 lint succeeded in 3.2 s"),
        ("other", "== lint succeeded in 3.2 s", "10:00:04 lint succeeded in 3.2 s"),
    ],
)
def test_each_host_gets_its_own_folds(host: CiHost, first: str, last: str) -> None:
    """A marker of another host would be noise in the log instead of a fold."""
    pipe = Pipe()
    console = PlainConsole(pipe, host=host, clock=FakeClock())
    console(small_run().events)
    text = pipe.getvalue()

    start = text.index(first + "\n")
    assert text[start:].startswith(f"{first}\nchecked 0\nchecked 1\nchecked 2\n{last}\n")


@clause("REP-11")
@pytest.mark.parametrize(
    ("variables", "host"),
    [
        ({}, None),
        ({"CI": "false"}, None),
        ({"CI": "true"}, "other"),
        ({"CI": "true", "GITHUB_ACTIONS": "true"}, "github"),
        ({"CI": "true", "GITLAB_CI": "true"}, "gitlab"),
        ({"TF_BUILD": "True"}, "azure"),
        ({"TEAMCITY_VERSION": "2025.03"}, "teamcity"),
        ({"CI": "true", "BUILDKITE": "true"}, "buildkite"),
        ({"CI": "true", "TRAVIS": "true"}, "travis"),
    ],
)
def test_the_host_is_known_by_its_variable(variables: dict[str, str], host: CiHost | None) -> None:
    """Nobody configures this: the right folds appear where the run happens to be."""
    assert host_of(variables) == host


@clause("REP-11")
@pytest.mark.parametrize(
    ("host", "line", "broken"),
    [
        ("github", "::error file=a.py::no", ": :error file=a.py::no"),
        ("github", "  ::stop-commands::x", "  : :stop-commands::x"),
        ("github", "say ##[set-output name=a]b", "say # #[set-output name=a]b"),
        ("github", "std::vector::push_back", "std::vector::push_back"),
        ("azure", "x ##vso[task.setvariable variable=a]b", "x # #vso[task.setvariable variable=a]b"),
        ("azure", "##[error]no", "# #[error]no"),
        ("teamcity", "##teamcity[testFailed name='a']", "# #teamcity[testFailed name='a']"),
        ("gitlab", "section_end:1:towline_1", "section_end :1:towline_1"),
        ("buildkite", "--- a/file", " --- a/file"),
        ("buildkite", "^^^ +++", " ^^^ +++"),
        ("travis", "travis_fold:end:towline_1", "travis_fold :end:towline_1"),
        (None, "::error::no", "::error::no"),
    ],
)
def test_lines_of_bodies_do_not_steer_the_host(host: CiHost | None, line: str, broken: str) -> None:
    """A file name, a commit message or a test's output must not set variables of the job or end a fold."""
    assert defused(host, line) == broken


@clause("REP-11")
def test_lines_that_may_steer_the_host_are_let_through_on_request() -> None:
    """Some bodies want to annotate a pull request: ``Options(ci_commands="pass")``."""
    scene = Scene().begin(planned("lint"))
    scene.running(1, "lint")
    scene.said(1, "lint", "::warning file=a.py,line=1::unused")
    scene.ended(2, "lint")

    assert "::warning file=a.py,line=1::unused" in shown(scene, "github", defuse=False)
    assert ": :warning file=a.py,line=1::unused" in shown(scene, "github")


@clause("REP-10")
def test_much_output_comes_in_parts_and_all_of_it_comes() -> None:
    """A chatty task is seen while it runs, and a buffer that never ends would be a leak."""
    scene = Scene().begin(planned("build"))
    scene.running(0, "build")
    for number in range(2 * HELD_LINES + 5):
        scene.said(1, "build", f"line {number}")
    scene.ended(2, "build")

    lines = shown(scene, "github")

    assert [line for line in lines if line.startswith("::group::")] == [
        "::group::build …",
        "::group::build …",
        "::group::build succeeded in 2.0 s",
    ]
    assert [line for line in lines if line.startswith("line ")] == [f"line {n}" for n in range(2 * HELD_LINES + 5)]


@clause("REP-10")
def test_output_is_not_held_longer_than_a_minute() -> None:
    """A task of an hour that says little must not look dead in the CI log."""
    clock, pipe = FakeClock(), Pipe()
    console = PlainConsole(pipe, host="github", clock=clock)
    scene = Scene().begin(planned("build"))
    scene.running(0, "build")
    scene.said(0, "build", "begun")
    console(scene.events)

    clock.time = HELD_S - 1
    console.tick()
    assert "begun" not in pipe.getvalue()
    clock.time = HELD_S
    console.tick()
    console.tick()

    assert pipe.getvalue().count("::group::build …\nbegun\n::endgroup::\n") == 1


@clause("REP-10")
def test_nothing_is_lost_with_a_run_that_ends_in_the_middle() -> None:
    """Grouping by buffering has lost the failing task's output elsewhere: the process ended before the flush."""
    scene = Scene().begin(planned("build"))
    scene.running(0, "build")
    scene.said(1, "build", "the last words")

    assert shown(scene, "github")[-3:] == ["::group::build did not end", "the last words", "::endgroup::"]


@clause("REP-11")
def test_a_failed_task_is_shown_whole_though_parts_of_it_were_folded() -> None:
    """Whoever looks at a red job wants the failing output in one piece."""
    held = HeldOutput()
    parts = [piece for n in range(HELD_LINES + 10) for piece in held.say("build", f"line {n}", 0.0)]

    at_end = held.ended("build", "failed in 2 s", failed=True)
    [last] = held.rest()

    assert len(parts) == 1
    assert parts[0].is_folded
    assert at_end == []
    assert last.lines == tuple(f"line {n}" for n in range(HELD_LINES + 10))
    assert not last.is_folded
    assert held.rest() == []


@clause("REP-11")
def test_of_very_many_failed_tasks_only_the_first_are_shown_open() -> None:
    """A thousand failures with one cause must not push the first one out of sight."""
    held = HeldOutput()
    folded = 0
    for number in range(FAILED_TASKS + 3):
        held.say(f"t{number}", "no", 0.0)
        folded += len(held.ended(f"t{number}", "failed", failed=True))

    assert folded == 3
    assert [piece.task for piece in held.rest()] == [f"t{number}" for number in range(FAILED_TASKS)]


@clause("REP-12")
def test_a_status_line_comes_each_15_seconds_if_something_changed() -> None:
    """A CI system kills a job that is silent for long, and a reader wants to know that it moves."""
    clock, pipe = FakeClock(), Pipe()
    console = PlainConsole(pipe, clock=clock)
    scene = Scene().begin(planned("build"), planned("ship", "build"))
    scene.running(0, "build")
    scene.tell("progress", 1, "build", 1, done=3, total=10)
    console(scene.events)
    before = pipe.getvalue()

    for second in range(1, 46):
        clock.time = second
        console.tick()

    assert pipe.getvalue().removeprefix(before) == "10:00:15 flights: 1 running, 1 pending - build 3/10\n"


@clause("REP-13")
def test_a_closed_pipe_ends_the_printing_and_nothing_else() -> None:
    """``towline run | head`` must not kill a run in the middle of a migration."""
    pipe = Pipe(breaks_after=1)
    console = PlainConsole(pipe, clock=FakeClock())

    console.write(["first"])
    console.write(["second"])
    console(small_run().events)
    console.flush()

    assert pipe.getvalue() == "first\n"


@clause("REP-13")
def test_characters_that_a_stream_cannot_show_are_replaced() -> None:
    """A terminal of another alphabet, or ``LC_ALL=C``, must not turn a good run into an encoding error."""
    pipe = Pipe(encoding="ascii")

    assert write_lines(pipe, ["zürich … done → ✓"])

    assert pipe.getvalue() == "z?rich ... done -> ?\n"
    assert fitted("zürich … ✓", "latin-1") == "zürich ... ?"
    assert fitted("zürich … ✓", "utf-8") == "zürich … ✓"


@clause("CTL-24", "REP-13")
def test_control_characters_of_a_body_do_not_reach_the_terminal() -> None:
    """A body's text is text: it neither moves the cursor nor hides a line nor retitles the window."""
    assert harmless("\x1b[2Jgone\x07 a\tb\r") == "\\x1b[2Jgone\\x07 a\tb\\r"
    scene = Scene().begin(planned("build"))
    scene.running(0, "build")
    scene.said(0, "build", "\x1b]0;title\x07")
    assert "build | \\x1b]0;title\\x07" in shown(scene)


def test_lone_surrogates_are_shown_as_escapes() -> None:
    """File names of other systems hold them; printing one would raise."""
    assert harmless("a\ud800b") == "a\\ud800b"


def test_a_gate_that_found_something_is_called_blocked() -> None:
    """It is pending for the plan; the operator who must act looks for another word."""
    scene = Scene().begin(planned("check", gate=True))
    scene.running(1, "check")
    scene.ended(2, "check", "pending", reason="blocked", reason_text="1 blocking finding: airport.missing")

    assert shown(scene)[-1] == "10:00:02 check blocked - 1 blocking finding: airport.missing"


@clause("PLAN-35")
def test_what_a_resume_does_with_each_task_is_on_the_screen() -> None:
    """After an edit the operator sees what is kept and what starts over before it happens."""
    scene = Scene().begin(planned("a"))
    scene.tell(
        "reconciled", 0, changed=["a"], changed_count=1, stale=["b", "c"], stale_count=1200, kept=["d"], kept_count=7
    )

    assert shown(scene) == ["changed: a", "stale: b, c and 1,198 more", "unchanged: 7 tasks"]
