"""``run``, ``resume``, ``plan`` and ``check`` end to end: every flag once, exit codes, who writes where."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from cli.shell import Shell, ended, interrupt, wait_for_file
from towline.testing import clause

OUTCOMES = """
import os, sys, time
from towline import Context, Finding, Options, Pipeline, SyncContext, module, result_of

@module
def good(ctx: SyncContext) -> int:
    return 1

@module
def bad(ctx: SyncContext, one: int = result_of(good)) -> None:
    raise ValueError("boom")

@module(timeout=0.2)
async def slow(ctx: Context) -> None:
    import asyncio
    await asyncio.sleep(30)

@module(skip_if=lambda facts: True)
def skipped(ctx: SyncContext) -> None: ...

@module(gate=True)
def gate(ctx: SyncContext) -> None:
    ctx.finding("airport", severity="blocking", message="no SJU", suggested_action="add it")

@module
async def long(ctx: Context) -> None:
    import asyncio
    open("begun.txt", "w").close()
    await asyncio.sleep(30)

fails = Pipeline("fails", [bad])
times_out = Pipeline("times-out", [slow])
skips = Pipeline("skips", [good, skipped])
blocks = Pipeline("blocks", [gate])
stops = Pipeline("stops", [long])

if __name__ == "__main__":
    globals()[os.environ["PICK"]].main()
"""


@clause("CLI-06", "CLI-07")
@pytest.mark.parametrize(("pick", "code"), [("fails", 1), ("times_out", 1), ("skips", 0), ("blocks", 3)])
def test_both_entry_points_end_with_the_code_of_the_outcome(shell: Shell, pick: str, code: int) -> None:
    """A tool that prints that tasks failed and exits with 0 turns a red build green."""
    shell.write("outcomes.py", OUTCOMES)

    command = shell.call("run", f"outcomes.py:{pick}")
    own = shell.call("outcomes.py", "--fresh", PICK=pick)

    assert (command.code, own.code) == (code, code), command.err + own.err
    assert shell.report()["exit_code"] == code
    verdict = command.out.splitlines()[-2]
    assert verdict.split()[2] == own.out.splitlines()[-2].split()[2]


@clause("CLI-06")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("entry", ["command", "own"])
def test_a_run_that_is_interrupted_says_by_what(shell: Shell, number: int, code: int, entry: str) -> None:
    """CI tells a cancelled job from a failed one by this code; the plan can be gone on with."""
    shell.write("outcomes.py", OUTCOMES)
    call = ["run", "outcomes.py:stops"] if entry == "command" else ["outcomes.py"]
    process = shell.start(*call, PICK="stops")
    wait_for_file(shell.folder / "begun.txt")

    result = interrupt(process, number)

    assert result.code == code
    assert "interrupted" in result.out
    assert "Traceback" not in result.err
    assert shell.report()["status"] == "cancelled"


@clause("CLI-06", "REP-03")
@pytest.mark.parametrize(("pick", "code"), [("skips", 0), ("fails", 1)])
def test_a_report_that_cannot_be_written_is_a_warning_and_changes_no_code(shell: Shell, pick: str, code: int) -> None:
    """The run did what it did; that nobody can read about it afterwards is said, and is no outcome."""
    shell.write("outcomes.py", OUTCOMES)
    shell.write("in-the-way", "a file where the folder of the report would be")

    result = shell.call("run", f"outcomes.py:{pick}", "--report", "in-the-way/report.json")

    assert result.code == code
    assert "warning: the report could not be written" in result.out


@clause("REP-01", "REP-02", "REP-03")
def test_the_report_says_all_of_a_run(shell: Shell) -> None:
    """Dashboards, `show`, `diff` and estimates read this file, so its fields are a promise."""
    shell.write("outcomes.py", OUTCOMES)
    shell.run(
        "run",
        "outcomes.py:fails",
        "--report",
        "deep/er/report.json",
        "--run-id",
        "r-7",
        code=1,
        CI="1",
        GITHUB_ACTIONS="1",
        GITHUB_SHA="abc",
    )

    report = json.loads((shell.folder / "deep/er/report.json").read_text())
    kept = json.loads((shell.folder / ".towline/fails/runs/r-7/report.json").read_text())

    assert kept == report
    assert not list(shell.folder.glob(".towline/fails/runs/*/*.tmp"))
    assert report["run_id"] == "r-7"
    assert (report["pipeline"], report["program"]) == ("fails", "outcomes/fails")
    assert (report["status"], report["exit_code"]) == ("failed", 1)
    assert report["ci"] == {"system": "github", "commit": "abc"}
    assert report["counts"] == {"failed": 1, "succeeded": 1}
    assert set(report["metrics"]) >= {
        "task_seconds",
        "parallelism",
        "peak",
        "mean",
        "cache_hits",
        "retries",
        "requeues",
    }
    assert [task["id"] for task in report["tasks"]] == ["good", "bad"]
    assert report["tasks"][0]["origin"] == "executed"
    [failure] = report["failures"]
    assert (failure["task"], failure["error_type"], failure["text"]) == ("bad", "ValueError", "boom")
    assert "outcomes.py" in failure["traceback"]
    for name in ("started_at", "finished_at", "duration_s", "host", "python"):
        assert report[name]


@clause("CLI-03", "CLI-04")
@pytest.mark.parametrize(
    ("flags", "ran"),
    [
        (["--module", "READ"], ["read"]),
        (["--module", "test[2]"], ["read", "test 2"]),
        (["--module", "lint,read"], ["lint", "read"]),
        (["-m", "lint", "-m", "read"], ["lint", "read"]),
        (["--skip", "lint,test[1]"], ["read", "test 2"]),
        (["--skip", "read"], ["lint"]),
        (["--category", "make"], ["read"]),
        (["--phase", "first"], ["read"]),
        (["--phase", "second"], ["lint", "read", "test 1", "test 2"]),
    ],
)
def test_a_selection_runs_what_it_names_and_what_that_needs(small: Shell, flags: list[str], ran: list[str]) -> None:
    """A developer repeats one test; what it needs comes along, nothing else runs, and the code is 0."""
    small.run("run", "small.py", *flags)

    assert sorted((small.folder / "said.txt").read_text().splitlines()) == ran


@clause("CLI-03")
def test_what_was_not_chosen_stays_pending_for_a_later_resume(small: Shell) -> None:
    """It is no part of the run: neither skipped nor counted as failed, and a resume runs it (PLAN-48)."""
    small.run("run", "small.py", "--module", "read")
    states = {task["id"]: task["state"] for task in small.report()["tasks"]}
    assert states == {"read": "succeeded", "lint": "pending", "test[1]": "pending", "test[2]": "pending"}

    small.run("resume", "small.py")

    assert sorted((small.folder / "said.txt").read_text().splitlines()) == ["lint", "read", "test 1", "test 2"]


FLAGS = """
import os
from dataclasses import dataclass
from towline import Cache, Context, Pipeline, Secret, SyncContext, module

@dataclass
class Wanted:
    size: int = 1
    names: tuple[str, ...] = ()
    token: Secret = Secret("none")

@module(requires="linux-box", retries=0)
async def first(ctx: Context) -> int:
    wanted = ctx.params(Wanted)
    print("size", wanted.size, "names", wanted.names, "token", wanted.token.reveal() == "abc")
    await ctx.run("touch", "touched.txt")
    return wanted.size

@module(cache=True)
async def cached(ctx: Context) -> int:
    print("computed")
    return 1

pipeline = Pipeline("flags", [first, cached], params=Wanted)
if __name__ == "__main__":
    pipeline.main()
"""


@clause("CLI-07", "CLI-09")
def test_flags_of_a_run_end_to_end(shell: Shell) -> None:
    """Each flag does what its help says, through the installed program."""
    shell.write("flags.py", FLAGS)
    common = ["flags.py", "--capability", "linux-box", "--param", "size=3", "-p", 'names=["a","b"]']
    more = ["--parallel", "2", "--module-timeout", "1h30m", "--schedule", "tiers", "--durability", "power"]

    first = shell.run("run", *common, *more, "--strict-values", "--plain", "--keep-going", TOWLINE_PARAM_TOKEN="abc")

    assert "first | size 3 names ('a', 'b') token True" in first.out
    assert "cached | computed" in first.out
    assert (shell.folder / "touched.txt").exists()

    again = shell.run("run", *common, "--state", "elsewhere", TOWLINE_PARAM_TOKEN="abc")
    assert "cached | computed" not in again.out, "the cache is shared by all states of the folder"
    assert (shell.folder / "elsewhere/plan.json").exists()

    without = shell.run("run", *common, "--no-cache", "--run-id", "r-5", TOWLINE_PARAM_TOKEN="abc")
    assert "cached | computed" in without.out
    assert "r-5 succeeded" in without.out


@clause("CMD-14")
def test_a_dry_run_runs_bodies_and_no_command_and_leaves_nothing(shell: Shell) -> None:
    """What would it do? The answer must not be taken for done by a resume (CMD-14)."""
    shell.write("flags.py", FLAGS)

    result = shell.run("run", "flags.py", "--capability", "linux-box", "--dry-run")

    assert "first | size 1" in result.out
    assert not (shell.folder / "touched.txt").exists()
    assert not (shell.folder / ".towline").exists()


@clause("CLI-05")
def test_failed_tasks_are_retried_by_a_resume_unless_told_otherwise(shell: Shell) -> None:
    """`--keep-failed` looks at the rest first; the code still tells of the failure."""
    shell.write("outcomes.py", OUTCOMES)
    shell.run("run", "outcomes.py:fails", code=1)

    kept = shell.run("run", "outcomes.py:fails", "--resume", "--keep-failed", code=1)
    retried = shell.run("resume", "outcomes.py:fails", "--retry-failed", code=1)

    assert "bad running" not in kept.out
    assert "good running" not in retried.out
    assert "bad running" in retried.out


@clause("CTL-25", "CLI-12")
def test_json_is_events_alone_and_ends_with_the_end(small: Shell) -> None:
    """A program can read stdout line by line; people read stderr."""
    result = small.run("run", "small.py", "--json")

    events = result.events()
    assert events[0]["kind"] == "run_started"
    assert events[-1]["kind"] == "run_ended"
    assert events[-1]["data"]["exit_code"] == 0
    numbers = [event["n"] for event in events]
    assert numbers == sorted(numbers)
    assert "small r-" in result.err


@clause("REP-13")
def test_a_reader_that_leaves_does_not_stop_the_run(small: Shell) -> None:
    """``towline run | head -1`` must not kill a migration in the middle."""
    process = small.start("run", "small.py", "--plain")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None

    result = ended(process)

    assert result.code == 0
    assert result.err == ""
    assert small.report()["counts"] == {"succeeded": 4}


@clause("REP-13")
def test_a_plan_for_a_reader_that_left_is_no_error(small: Shell) -> None:
    """``towline plan | head`` is an everyday call."""
    read, write = os.pipe()
    os.close(read)
    process = small.start("plan", "small.py", stdout=write)
    os.close(write)

    result = ended(process)

    assert (result.code, result.err) == (0, "")


@clause("REP-13", "REP-09")
def test_a_pipe_gets_no_control_codes_and_survives_any_locale(shell: Shell) -> None:
    """A CI image without locales is the rule, not the exception."""
    shell.write(
        "umlaut.py",
        """
from towline import Pipeline, SyncContext, module
@module
def say(ctx: SyncContext) -> None:
    print("z\\u00fcrich \\u2713 \\x1b[31mred")
pipeline = Pipeline("umlaut", [say])
""",
    )
    result = shell.run(
        "run", "umlaut.py", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii"
    )

    assert "say | z?rich ? \\x1b[31mred" in result.out
    assert "\x1b" not in result.out
    assert result.err == ""


@clause("PLAN-35", "CLI-12")
def test_a_plan_shows_what_a_resume_would_do_and_writes_nothing(small: Shell) -> None:
    """After an edit the operator sees what is kept and what starts over, before anything is touched."""
    small.run("run", "small.py", "--skip", "lint")
    before = {file: file.read_bytes() for file in small.folder.rglob(".towline/**/*") if file.is_file()}
    program = (small.folder / "small.py").read_text()
    small.write("small.py", program.replace('@module(category="make"', '@module(version="2", category="make"'))

    shown = small.run("plan", "small.py", "--resume")
    as_json = small.run("plan", "small.py", "--resume", "--json").json()

    assert "changed: read" in shown.out
    assert "stale: test[1], test[2]" in shown.out
    assert "unchanged: 1 task\n" in shown.out
    assert as_json["reconciled"]["stale"] == ["test[1]", "test[2]"]
    assert {file: file.read_bytes() for file in before} == before

    ran = small.run("run", "small.py", "--resume")
    assert "changed: read" in ran.out
    assert "stale: test[1], test[2]" in ran.out


@pytest.mark.parametrize(
    ("form", "start"), [("text", "small: 4 tasks"), ("json", "{"), ("mermaid", "flowchart"), ("dot", "digraph")]
)
def test_a_plan_has_four_forms(small: Shell, form: str, start: str) -> None:
    """For people, programs, pages and Graphviz."""
    result = small.run("plan", "small.py", "--format", form)

    assert result.out.startswith(start)
    assert result.err == ""
    small.said()


@clause("CLI-11")
def test_check_reports_everything_that_can_be_refused(shell: Shell) -> None:
    """All problems at once, sorted, with file and line; no body, hook or condition runs."""
    shell.write(
        "wrong.py",
        """
from towline import Pipeline, SyncContext, module, result_of

def asked(facts):
    open("asked.txt", "w").close()
    return True

@module(ignore_failure=True, run_if=asked)
def a(ctx: SyncContext) -> int:
    open("ran.txt", "w").close()
    return 1

@module(pools={"gpu": 1}, phase="nowhere")
def b(ctx: SyncContext, x: int = result_of(a)) -> None: ...

pipeline = Pipeline("wrong", [b], phases=("somewhere",))
good = Pipeline("good", [a])
""",
    )
    wrong = shell.run("check", "wrong.py", code=2)
    as_json = shell.run("check", "wrong.py", "--json", code=2).json()
    good = shell.run("check", "wrong.py:good")

    assert "wrong.py:" in wrong.err
    assert len(as_json["problems"]) == 2
    assert as_json["problems"] == sorted(as_json["problems"])
    assert all(problem in wrong.err for problem in as_json["problems"])
    assert "no problems found" in good.out
    assert not (shell.folder / "asked.txt").exists()
    assert not (shell.folder / "ran.txt").exists()
    assert not (shell.folder / ".towline").exists()


@clause("CLI-11")
def test_check_warns_of_a_result_that_may_never_come(shell: Shell) -> None:
    """Reading the result of a module whose failure is ignored skips the reader (MOD-14): allowed, hardly meant."""
    shell.write(
        "ignored.py",
        """
from towline import Pipeline, SyncContext, module, result_of
@module(ignore_failure=True)
def a(ctx: SyncContext) -> int: return 1
@module
def b(ctx: SyncContext, x: int = result_of(a)) -> None: ...
pipeline = Pipeline("ignored", [b])
""",
    )
    result = shell.run("check", "ignored.py")

    assert "warning: b reads result_of(a), whose failure is ignored" in result.err


@clause("CLI-01")
def test_targets_of_files_and_packages(small: Shell) -> None:
    """A file with a name, the only pipeline of a file whatever its name is, a package's."""
    small.write("pkg/__init__.py", "")
    small.write("pkg/flow.py", (small.folder / "small.py").read_text().replace("pipeline =", "only ="))

    for target in (
        "small.py:pipeline",
        "./small.py",
        str(small.folder / "small.py"),
        "pkg.flow",
        "pkg.flow:only",
        "pkg/flow.py",
    ):
        assert small.run("plan", target).out.startswith("small: 4 tasks")


@clause("CLI-14")
def test_help_and_version_load_nothing_optional(small: Shell) -> None:
    """Completion scripts and impatient people call these often; and a broken extra must not break them."""
    for call in (["--help"], ["--version"], ["run", "--help"]):
        code = (
            "import sys, atexit\n"
            "from towline.cli import main\n"
            "heavy = 'rich redis numpy anyio asyncio ssl sqlite3 dask ray uvloop ahocorasick_rs'.split()\n"
            "atexit.register(lambda: print('LOADED', *(name for name in heavy if name in sys.modules)))\n"
            f"main({call!r})\n"
        )
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=small.folder, timeout=60
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout.splitlines()[-1].split() == ["LOADED"]
        assert re.search("Usage: |towline, version|towline \\d", result.stdout)
