"""The one ordered log of a run, as it lies in ``events.jsonl`` (EVT-01 to 08, 18)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from towline import Context, Options, Pipeline, SyncContext, module, result_of
from towline.events.log import EventLog
from towline.events.records import Event
from towline.testing import clause

KILLED = """
import os, signal
from towline import Context, Options, Pipeline, module

@module
async def first(ctx: Context) -> int:
    return 1

@module(after=[first])
async def second(ctx: Context) -> int:
    if os.environ.get("KILL"):
        os.kill(os.getpid(), signal.SIGKILL)
    return 2

pipeline = Pipeline("log", [second])
if __name__ == "__main__":
    pipeline.main()
"""


def logged(root: Path) -> list[dict[str, Any]]:
    """Read the log of the only run of a state root."""
    (log,) = root.glob("runs/*/events.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


@module
def talk(ctx: SyncContext) -> int:
    ctx.log.info("in the log")
    print("on the screen")
    for done in range(1, 201):
        ctx.progress(done, 200)
    return 3


@module
async def listen(ctx: Context, heard: int = result_of(talk)) -> int:
    ctx.finding("HEARD", "something", evidence={"n": str(heard)})
    return heard


def run(tmp_path: Path, **options: Any) -> list[dict[str, Any]]:
    Pipeline("events", [listen], options=Options(state=str(tmp_path / "state"), **options)).run_sync()
    return logged(tmp_path / "state")


@clause("EVT-01", "EVT-02")
def test_numbers_have_no_gap(tmp_path: Path) -> None:
    """Who has read up to a number has read everything before it."""
    events = run(tmp_path)

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert len({(event["source"], event["session"]) for event in events}) == 1


@clause("EVT-03")
def test_all_tasks_are_listed_before_the_first_moves(tmp_path: Path) -> None:
    """An operator sees the whole plan, all of it pending, before any body runs."""
    events = run(tmp_path)

    kinds = [event["kind"] for event in events]
    assert kinds.index("plan") < kinds.index("task_state")
    plan = next(event for event in events if event["kind"] == "plan")
    assert {task["id"]: task["state"] for task in plan["data"]["tasks"]} == {"talk": "pending", "listen": "pending"}


@clause("EVT-04")
def test_each_transition_is_told_once_with_its_journal_number(tmp_path: Path) -> None:
    """The log can be held against the journal, record by record."""
    events = run(tmp_path)

    journal = (tmp_path / "state" / "plan.journal").read_text().splitlines()[1:]
    records = [record for line in journal for record in json.loads(line[9:])["records"]]
    states = [(record["seq"], record["task"], record["state"]) for record in records if record["kind"] == "state"]
    told = [(one["data"]["plan_seq"], one["task"], one["data"]["to"]) for one in events if one["kind"] == "task_state"]
    assert told == states
    assert len(told) == 4


@clause("EVT-04", "EVT-18")
def test_the_next_owner_logs_what_a_crash_kept_from_the_log(tmp_path: Path) -> None:
    """A kill -9 may cost the last half second of the log, never a transition."""
    (tmp_path / "log.py").write_text(KILLED)
    command = [sys.executable, "log.py", "--plain"]

    killed = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"KILL": "1"}, capture_output=True, timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    (run_folder,) = (tmp_path / ".towline" / "log" / "runs").iterdir()
    log = run_folder / "events.jsonl"
    assert [json.loads(line)["kind"] for line in log.read_text().splitlines()] == ["run_started", "plan"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=True)

    told = [json.loads(line) for line in log.read_text().splitlines()]
    states = [(one["task"], one["data"]["to"]) for one in told if one["kind"] == "task_state"]
    assert states == [("first", "running"), ("first", "succeeded"), ("second", "running")]


@clause("EVT-05")
def test_what_a_task_says_precedes_its_end(tmp_path: Path) -> None:
    """A view that stops at the end of a task has shown everything of it; the end of the run is last."""
    events = run(tmp_path)

    of_talk = [event["kind"] for event in events if event.get("task") == "talk"]
    assert of_talk[-1] == "task_state"
    assert {"log", "output", "progress"} <= set(of_talk[:-1])
    assert events[-1]["kind"] == "run_ended"


@clause("EVT-06")
def test_progress_is_thinned_and_its_last_value_is_told(tmp_path: Path) -> None:
    """Two hundred steps in a moment are one or two lines, and the end says 200 of 200."""
    events = run(tmp_path)

    shown = [event["data"] for event in events if event["kind"] == "progress"]
    assert 1 <= len(shown) < 20
    end = next(one for one in events if one["kind"] == "task_state" and one["data"]["to"] == "succeeded")
    assert (end["data"]["done"], end["data"]["total"]) == (200, 200)


@clause("EVT-07")
def test_a_full_log_drops_talk_and_keeps_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that prints for ever cannot push the states of the tasks out of the log."""
    monkeypatch.setattr("towline.events.log.COUNT_LIMIT", 3)
    kept: list[Event] = []

    def keep(batch: Any) -> int:
        kept.extend(batch)
        return 0

    log = EventLog(source="m", session="s", keep=keep)
    for kind in ("plan", "log", "task_state", "log", "output", "task_state"):
        log.emit([log.event(kind, "now", {})])
    log.close("now")

    assert [event.kind for event in kept] == ["plan", "log", "task_state", "task_state", "truncated"]
    assert kept[-1].data == {"kinds": ["log", "output"], "dropped": 2}


@clause("REP-13")
def test_a_view_that_raises_is_dropped_and_the_others_hear_on() -> None:
    """A broken console must not stop the run between a transition and the task that it starts."""
    heard: list[str] = []
    broken: list[Exception] = []

    def breaks(batch: Any) -> None:
        raise RuntimeError(f"cannot show {len(batch)} events")

    log = EventLog(source="m", session="s", keep=None, broken=broken.append)
    log.subscribe(breaks)
    log.subscribe(lambda batch: heard.extend(event.kind for event in batch))
    for kind in ("plan", "task_state"):
        log.emit([log.event(kind, "now", {})])

    assert heard == ["plan", "task_state"]
    assert [str(error) for error in broken] == ["cannot show 1 events"]


@module
async def tell_secret(ctx: Context) -> None:
    ctx.log.info("the word is %s", ctx.secret("WORD").reveal())
    raise ValueError(f"cannot use {ctx.secret('WORD').reveal()}")


@clause("EVT-08", "SEC-04")
def test_no_secret_reaches_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are copied, mailed and kept: a secret in one is a secret lost."""
    monkeypatch.setenv("WORD", "abracadabra-77")
    options = Options(state=str(tmp_path / "state"), raise_on_failure=False)

    report = asyncio.run(Pipeline("secret", [tell_secret], options=options).run())

    for file in (tmp_path / "state").rglob("*"):
        if file.is_file():
            assert b"abracadabra" not in file.read_bytes(), file
    assert "***" in report.failures[0].text
