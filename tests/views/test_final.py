"""What stands at the end of a run: the table, the failures once, and GitHub's summary."""

from __future__ import annotations

from pathlib import Path

import msgspec

from towline.execution.report import PreviousRun, TaskReport
from towline.testing import clause
from towline.views.colours import coloured
from towline.views.final import final_lines
from towline.views.step_summary import LIMIT_BYTES, append_summary, summary
from views.scenes import done, failed, report


@clause("REP-07", "CTL-23")
def test_a_failure_appears_once_with_all_that_helps() -> None:
    """Root first with module, attempt, worker, text, own frames and last log lines; cascades are one line."""
    task, failure = failed("build")
    skipped = [
        TaskReport(id=f"ship[{n}]", module="ship", state="skipped", reason="dependency_failed", blocked_by="build")
        for n in range(3)
    ]
    lines = final_lines(report(done("lint"), task, *skipped, status="failed", failures=(failure,)), 80)

    assert lines == [
        "",
        "lint     ok               1.0 s",
        "build    FAILED           2.0 s  ValueError: boom",
        "ship[0]  skipped                 a dependency failed: build",
        "ship[1]  skipped                 a dependency failed: build",
        "ship[2]  skipped                 a dependency failed: build",
        "",
        "first failure: build failed (attempt 1 on w-2)",
        "    ValueError: boom",
        '      File "/home/me/flights.py", line 7, in build',
        '        raise ValueError("boom")',
        "  the last lines of its log (all of it: towline show r-1 --task build)",
        "    read 812 rows",
        "    row 813 has no airport",
        "3 more tasks did not run because of that",
        "flights r-1 failed in 12 s: 1 succeeded, 1 failed, 3 skipped",
    ]
    assert not any("succeeded in" in line for line in lines), "a failed run shows no heading of success"


@clause("REP-05")
def test_what_became_slower_or_faster_than_the_last_success_is_said() -> None:
    """A build that takes twice as long is found when it happens, not a month later."""
    slower, same = done("build", 9.0, previous_s=4.0), done("lint", 1.2, previous_s=1.0)
    before = PreviousRun(run_id="r-0", duration_s=6.0)

    lines = final_lines(report(slower, same, previous=before), 80)

    assert lines[1:3] == ["build  ok               9.0 s  was 4.0 s", "lint   ok               1.2 s"]
    assert lines[-1] == "flights r-1 succeeded in 12 s (r-0 took 6.0 s): 2 succeeded"


@clause("REP-12")
def test_the_final_table_of_a_large_run_lists_what_is_uncommon() -> None:
    """Nobody reads 10,000 lines of "ok" to find one failure."""
    task, failure = failed("t9999")
    lines = final_lines(report(*(done(f"t{n}") for n in range(9_999)), task, status="failed", failures=(failure,)), 80)

    assert lines[1].startswith("t9999")
    assert lines[2] == "… and 9,999 more tasks: towline show r-1"


def test_a_blocked_run_says_what_to_do() -> None:
    """Exit code 3 means that an operator must act: on what, and how to go on, stands there."""
    gate = TaskReport(
        id="check", module="check", state="pending", reason="blocked", reason_text="2 findings", gate=True
    )

    lines = final_lines(report(gate, status="blocked"), 80)

    assert lines[1] == "check  BLOCKED                 2 findings"
    assert "blocked: check - 2 findings" in lines
    assert any("--resume" in line for line in lines)


@clause("REP-14")
def test_the_step_summary_is_a_table_in_which_text_is_text(tmp_path: Path) -> None:
    """A task's error goes onto a page of GitHub: it must not become markup, a mention or a new column."""
    task, _ = failed("build", "<img src=x> | @everyone `rm` **b**\nsecond")
    file = tmp_path / "summary.md"
    file.write_text("before\n")

    trouble = append_summary(report(done("lint"), task, status="failed"), {"GITHUB_STEP_SUMMARY": str(file)})

    assert trouble is None
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["before", "### flights: failed in 12 s"]
    row = next(line for line in lines if line.startswith("| build"))
    assert "| **failed** | 2.0 s |" in row
    assert "&lt;img src=x&gt; \\|" in row
    assert "@everyone" not in row
    assert "second" in row


@clause("REP-14")
def test_the_step_summary_stays_below_900_kib_and_keeps_the_failures() -> None:
    """GitHub drops a summary above its limit whole: the failures would be gone with it."""
    task, _ = failed("zzz")
    text = summary(report(*(done(f"task-{n}-" + "x" * 100) for n in range(10_000)), task, status="failed"))

    assert len(text.encode()) <= LIMIT_BYTES
    assert "| zzz | **failed**" in text
    assert "more tasks: towline show r-1" in text


@clause("REP-14")
def test_a_step_summary_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    """It changes no outcome."""
    assert append_summary(report(), {}) is None
    trouble = append_summary(report(), {"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "such")})
    assert trouble is not None
    assert "could not be written" in trouble


@clause("REP-09")
def test_colour_never_replaces_a_word() -> None:
    """Without colours, or eyes for them, the line says the same."""
    line = coloured("10:00:03 build failed in 2.0 s - ValueError: boom")

    assert line == "10:00:03 build \x1b[1;31mfailed\x1b[0m in 2.0 s - ValueError: boom"
    assert coloured("build | it failed") == "build | it failed"
    assert coloured("lint     ok               1.0 s") == "lint     \x1b[32mok\x1b[0m               1.0 s"


@clause("RUN-15")
def test_what_this_machine_could_not_do_stands_beside_the_verdict() -> None:
    """A run that did nothing for want of a GPU has succeeded; whoever reads that must read why, too."""
    text = "needs gpu; this machine has linux"
    unmet = [
        TaskReport(id=f"train[{n}]", module="train", state="skipped", reason="requirement_unmet", reason_text=text)
        for n in range(2)
    ]
    after = TaskReport(
        id="publish", module="publish", state="skipped", reason="dependency_skipped", blocked_by="train[0]"
    )

    lines = final_lines(report(done("prep"), *unmet, after), 80)

    assert lines[-3:-1] == [
        "2 tasks were skipped, and 1 that needs them, for want of what they require: train needs gpu; this machine has linux",
        "    --capability NAME declares what this machine has; a run with workers fails where no worker has it",
    ]
    assert not any("for want of" in line for line in final_lines(report(done("prep")), 80))


@clause("REP-07", "SER-12")
def test_what_a_long_traceback_leaves_out_is_said() -> None:
    """Of a chain of 2,000 causes the last few are shown: a reader must not take the first of these for the root."""
    task, failure = failed("build")
    text = "".join(
        f"ValueError: level {n}\n\nThe above exception was the direct cause of the following exception:\n\n"
        for n in range(15)
    )
    chain = msgspec.structs.replace(failure, traceback=text + "ValueError: level 15\n")

    lines = final_lines(report(task, status="failed", failures=(chain,)), 80)

    shown = lines.index("    … 44 earlier lines are left out: the report has them")
    assert lines[shown + 1] == "    ValueError: level 11"
    assert not any(
        "earlier lines" in line for line in final_lines(report(task, status="failed", failures=(failure,)), 80)
    )
