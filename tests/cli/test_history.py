"""``runs``, ``show``, ``diff``, ``why``, ``artifacts``, ``cancel``: of living, finished and interrupted runs."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import msgspec
import pytest

from cli.shell import Shell, ended, wait_for_file
from towline.clock import moment
from towline.execution.report import RunReport, TaskReport
from towline.pipeline.durations import ESTIMATE_AGE_S, estimates_of, forget_old_runs, previous_of, read_heads
from towline.testing import clause

PROGRAM = """
import asyncio, os
from pathlib import Path
from towline import Context, Pipeline, SyncContext, module, result_of

@module(produces={"wheel": "dist/*.whl"})
def build(ctx: SyncContext) -> int:
    Path("dist").mkdir(exist_ok=True)
    Path("dist/a.whl").write_text("wheel " + os.environ.get("CONTENT", ""))
    print("built it")
    return 1

@module
async def wait(ctx: Context, one: int = result_of(build)) -> None:
    Path("waiting.txt").touch()
    while not Path("go.txt").exists():
        await asyncio.sleep(0.02)

@module
def check(ctx: SyncContext, _: None = result_of(wait)) -> None:
    if os.environ.get("CONTENT") == "bad":
        raise ValueError("the wheel is bad")

pipeline = Pipeline("wheels", [check])
"""


@pytest.fixture
def wheels(shell: Shell) -> Shell:
    """A folder with a program that waits in its middle until ``go.txt`` is there."""
    shell.write("wheels.py", PROGRAM)
    return shell


@clause("REP-06")
def test_a_living_run_can_be_looked_at_from_outside(wheels: Shell) -> None:
    """Which runs, how far, and what waits for what, without touching the run."""
    process = wheels.start("run", "wheels.py", "--run-id", "r-live")
    wait_for_file(wheels.folder / "waiting.txt")

    [row] = wheels.run("runs", "--json").json()["runs"]
    shown = wheels.run("show").out
    waits = wheels.run("why", "check").out
    runs = wheels.run("why", "wait").out
    (wheels.folder / "go.txt").touch()

    assert (row["run_id"], row["state"], row["exit_code"]) == ("r-live", "running", None)
    assert "wheels r-live running: 1 succeeded, 1 running, 1 pending" in shown
    assert waits.splitlines()[:2] == ["check is pending: what it needs is not there yet", "  waits for wait (running)"]
    assert "wait is running: its body runs" in runs
    assert ended(process).code == 0


@clause("REP-06")
def test_a_run_whose_process_died_is_shown_as_interrupted(wheels: Shell) -> None:
    """It has no report; saying "running" for ever would be a lie."""
    process = wheels.start("run", "wheels.py", "--run-id", "r-dead")
    wait_for_file(wheels.folder / "waiting.txt")
    process.kill()
    ended(process)

    [row] = wheels.run("runs", "--json").json()["runs"]
    shown = wheels.run("show", "r-dead").out
    why = wheels.run("why", "WAIT").out

    assert row["state"] == "interrupted"
    assert "Run it again to go on" in shown
    assert "it was running when the run ended" in why


@clause("CTL-28")
def test_cancel_stops_the_run_that_owns_a_folder_and_waits_for_its_end(wheels: Shell) -> None:
    """From another shell, without looking for a process id; what is done stays done."""
    process = wheels.start("run", "wheels.py", "--run-id", "r-stop")
    wait_for_file(wheels.folder / "waiting.txt")

    other = wheels.run("cancel", ".towline/wheels", "--run-id", "r-other", code=2)
    task = wheels.run("cancel", ".towline/wheels", "--task", "wait", code=2)
    cancelled = wheels.run("cancel", ".towline/wheels")
    again = wheels.run("cancel", ".towline/wheels", code=2)

    assert "r-stop runs there, not r-other" in other.err
    assert "control plane" in task.err
    assert "r-stop has stopped" in cancelled.out
    assert "nothing runs there" in again.err
    assert ended(process).code == 130
    (wheels.folder / "go.txt").touch()
    resumed = wheels.run("run", "wheels.py", "--resume")
    assert "build running" not in resumed.out


@clause("REP-06")
def test_runs_are_compared_task_by_task(wheels: Shell) -> None:
    """What changed between the green run of yesterday and the red one of today."""
    (wheels.folder / "go.txt").touch()
    wheels.run("run", "wheels.py", "--run-id", "r-1")
    wheels.run("run", "wheels.py", "--run-id", "r-2", code=1, CONTENT="bad")
    program = (wheels.folder / "wheels.py").read_text()
    wheels.write("wheels.py", program.replace('Pipeline("wheels", [check])', 'Pipeline("wheels", [build])'))
    wheels.run("run", "wheels.py", "--run-id", "r-3")

    assert wheels.run("diff", "r-1", "r-2").out.splitlines() == ["check: succeeded -> failed"]
    assert wheels.run("diff", "r-1", "r-1").out == "no difference\n"
    assert wheels.run("diff", "r-2", "r-3", "--json").json() == {
        "added": [],
        "gone": ["check", "wait"],
        "state": [],
        "duration": [],
    }
    assert [row["run_id"] for row in wheels.run("runs", "--json").json()["runs"]] == ["r-3", "r-2", "r-1"]
    assert "there is no run 'r-12' in this folder. Did you mean 'r-" in wheels.run("diff", "r-12", "r-2", code=2).err


@clause("REP-06", "REP-07")
def test_show_prints_a_run_and_a_task_with_its_log(wheels: Shell) -> None:
    """The failure once, and on request what the task said."""
    (wheels.folder / "go.txt").touch()
    wheels.run("run", "wheels.py", code=1, CONTENT="bad")

    shown = wheels.run("show").out
    task = wheels.run("show", "latest", "--task", "BUILD").out

    assert shown.count("ValueError: the wheel is bad") == 2, "in the table and once in full"
    assert "first failure: check failed (attempt 1 on local)" in shown
    assert "stdout built it" in task
    assert "'check'" in wheels.run("show", "latest", "--task", "chek", code=2).err


@clause("REP-06")
def test_why_says_where_a_result_came_from(wheels: Shell) -> None:
    """Executed, kept, failed and skipped: from recorded facts."""
    (wheels.folder / "go.txt").touch()
    wheels.run("run", "wheels.py", "--keep-going", code=1, CONTENT="bad")

    assert "check is failed: ValueError: the wheel is bad" in wheels.run("why", "check").out
    assert "build is succeeded: its body ran and gave a result" in wheels.run("why", "build").out

    wheels.run("run", "wheels.py", "--resume", "--run-id", "r-again")
    kept = wheels.run("why", "build", "--json").json()
    assert kept["summary"] == "run r-again kept it from an earlier run: nothing that it comes from has changed"


def test_artifacts_of_a_run_are_listed_and_fetched(wheels: Shell) -> None:
    """The wheel of the red build, on the desk, two days later."""
    (wheels.folder / "go.txt").touch()
    wheels.run("run", "wheels.py", CONTENT="good")

    listed = wheels.run("artifacts", "latest")
    [row] = wheels.run("artifacts", "latest", "--json").json()["artifacts"]
    fetched = wheels.run("artifacts", "latest", "wheel", "--into", "out")
    wrong = wheels.run("artifacts", "latest", "wheal", code=2)

    assert listed.out.startswith("build/wheel  2.0 KiB  sha256:")
    assert (row["task"], row["name"]) == ("build", "wheel")
    [file] = [path for path in (wheels.folder / "out").rglob("*") if path.is_file()]
    assert file.read_text() == "wheel good"
    assert fetched.out.strip()
    assert "'wheel'" in wrong.err


@clause("REP-04")
def test_damaged_and_foreign_reports_are_left_out_with_a_warning(wheels: Shell) -> None:
    """One broken file must not hide the history of a pipeline."""
    (wheels.folder / "go.txt").touch()
    wheels.run("run", "wheels.py", "--run-id", "r-1")
    runs = wheels.folder / ".towline/wheels/runs"
    for name, text in {
        "r-a": "{",
        "r-b": json.dumps({"schema": 9} | json.loads((runs / "r-1/report.json").read_text()) | {"schema": 9}),
    }.items():
        (runs / name).mkdir()
        (runs / name / "report.json").write_text(text)

    result = wheels.run("runs")

    assert [line.split()[0] for line in result.out.splitlines()] == ["r-1"]
    assert "r-a/report.json is left out" in result.err
    assert "r-b/report.json is left out: its schema is 9" in result.err


@clause("REP-04")
def test_a_damaged_plan_does_not_hide_what_ran_before(wheels: Shell) -> None:
    """People look back when something is damaged."""
    (wheels.folder / "go.txt").touch()
    wheels.run("run", "wheels.py", "--run-id", "r-1")
    (wheels.folder / ".towline/wheels/plan.json").write_text("{")

    listed = wheels.run("runs")
    shown = wheels.run("show")
    refused = wheels.run("run", "wheels.py", code=4)

    assert listed.out.startswith("r-1 ")
    assert "warning: " in listed.err
    assert "plan.json is damaged" in listed.err
    assert "wheels r-1 succeeded" in shown.out
    assert "--fresh" in refused.err
    assert "plan.json is damaged" in wheels.run("why", "build", code=4).err


# ---------------------------------------------------------------- what is kept of earlier runs


def keep_report(root: Path, run_id: str, started_at: str = "2026-03-01T10:00:00.000Z", **more: object) -> None:
    """Write a report as a run leaves it."""
    fields: dict[str, object] = {
        "run_id": run_id,
        "pipeline": root.name,
        "status": "succeeded",
        "exit_code": 0,
        "duration_s": 1.0,
    }
    folder = root / "runs" / run_id
    folder.mkdir(parents=True)
    (folder / "report.json").write_bytes(msgspec.json.encode(RunReport(started_at=started_at, **fields | more)))  # type: ignore[arg-type]


def took(
    duration_s: float, state: str = "succeeded", origin: str | None = "executed", name: str = "build"
) -> TaskReport:
    """A task of an earlier run."""
    return TaskReport(id=name, module=name.partition("[")[0], state=state, origin=origin, duration_s=duration_s)  # type: ignore[arg-type]


@clause("REP-04")
def test_20_reports_per_pipeline_are_kept_with_their_folders(tmp_path: Path) -> None:
    """History is bounded; an unfinished run, which has no report, stays whatever its age."""
    root = tmp_path / "kept"
    for number in range(25):
        keep_report(root, f"r-{number:02}", f"2026-03-{number + 1:02}T10:00:00.000Z")
    (root / "runs/r-unfinished").mkdir()

    forget_old_runs(root, "r-24", read_heads(root))

    assert sorted(path.name for path in (root / "runs").iterdir()) == [f"r-{n:02}" for n in range(5, 25)] + [
        "r-unfinished"
    ]


@clause("REP-04")
def test_200_reports_of_all_pipelines_are_kept_and_the_latest_of_each(tmp_path: Path) -> None:
    """A folder with many pipelines does not grow without end, and each can still be gone on with."""
    import os

    for pipeline in range(12):
        root = tmp_path / f".towline/p{pipeline:02}"
        for number in range(20):
            keep_report(root, f"r-{number:02}")
            os.utime(root / f"runs/r-{number:02}/report.json", (pipeline * 100 + number,) * 2)

    forget_old_runs(tmp_path / ".towline/p11", "r-19", read_heads(tmp_path / ".towline/p11"))

    left = {path.parent for path in tmp_path.glob(".towline/*/runs/*")}
    count = len(list(tmp_path.glob(".towline/*/runs/*")))
    assert count == 200
    assert len(left) == 12
    assert (tmp_path / ".towline/p00/runs/r-19").exists()
    assert not (tmp_path / ".towline/p00/runs/r-18").exists()


@clause("REP-04")
def test_a_forged_report_cannot_have_another_folder_removed(tmp_path: Path) -> None:
    """What a file says of itself is no path."""
    root = tmp_path / "kept"
    (tmp_path / "precious").mkdir()
    for number in range(20):
        keep_report(root, f"r-{number:02}", f"2026-03-{number + 1:02}T10:00:00.000Z")
    keep_report(root, "r-x", "2020-01-01T00:00:00.000Z")
    file = root / "runs/r-x/report.json"
    file.write_text(
        file.read_text()
        .replace('"r-x"', '"../../precious"')
        .replace('"schema":1,', "")
        .replace("{", '{"folder":"' + str(tmp_path / "precious") + '",', 1)
    )

    forget_old_runs(root, "r-19", read_heads(root))

    assert (tmp_path / "precious").exists()
    assert not (root / "runs/r-x").exists()


@clause("REP-05")
def test_comparison_is_with_the_latest_success_and_what_it_executed(tmp_path: Path) -> None:
    """A failed or cached run says nothing of how long the work takes."""
    root = tmp_path / "kept"
    keep_report(
        root,
        "r-1",
        "2026-03-01T10:00:00.000Z",
        tasks=(took(3.0), took(0.1, origin="cached", name="lint")),
        duration_s=5.0,
    )
    keep_report(root, "r-2", "2026-03-02T10:00:00.000Z", tasks=(took(9.0),), status="failed", exit_code=1)

    previous, seconds = previous_of(read_heads(root))

    assert previous is not None
    assert (previous.run_id, previous.duration_s) == ("r-1", 5.0)
    assert seconds == {"build": 3.0}


@clause("REP-08")
def test_an_estimate_is_the_median_of_the_last_five_executed_successes(tmp_path: Path) -> None:
    """One slow day does not change a plan's forecast; what is older than 90 days no longer counts."""
    root, now = tmp_path / "kept", 1_772_359_200.0
    for number, duration in enumerate([100.0, 1.0, 2.0, 3.0, 4.0, 50.0]):
        keep_report(root, f"r-{number}", moment(now - 1000 + number), tasks=(took(duration, name="test[a]"),))
    keep_report(root, "r-failed", moment(now), tasks=(took(999.0, state="failed", origin=None, name="test[a]"),))
    keep_report(root, "r-cached", moment(now), tasks=(took(0.0, origin="cached", name="test[a]"),))
    keep_report(root, "r-old", moment(now - ESTIMATE_AGE_S - 1), tasks=(took(7.0, name="gone"),))

    assert estimates_of(root, now) == {"test[a]": 3.0, "test": 3.0}
    assert estimates_of(tmp_path / "nowhere", now) == {}


def test_signals_are_those_of_the_system() -> None:
    """The cancel of a folder is the same signal that Ctrl-C sends."""
    from towline.pipeline.signals import EXIT_CODES

    assert EXIT_CODES == {signal.SIGINT: 130, signal.SIGTERM: 143}
