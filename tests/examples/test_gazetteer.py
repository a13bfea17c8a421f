"""The gazetteer, run as its README says."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from distributed.processes import workers_of
from examples.runs import EXAMPLES, count, kill_when, run, start, tasks_of
from towline.testing import clause

TARGET = str(EXAMPLES / "gazetteer" / "gazetteer.py")


def digest(folder: Path) -> str:
    """Return the digest that the example computes of its target."""
    from gazetteer import digest_of

    with closing(sqlite3.connect(folder / "gazetteer.sqlite")) as target:
        return digest_of(target)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the gazetteer was run without any trouble."""
    folder = tmp_path_factory.mktemp("gazetteer")
    run(folder, "run", TARGET, "--plain")
    return folder


def test_everything_arrives(undisturbed: Path) -> None:
    """The counts are those of the packages, and every parent is there."""
    with closing(sqlite3.connect(undisturbed / "gazetteer.sqlite")) as target:

        def one(query: str) -> int:
            return int(target.execute(query).fetchone()[0])

        assert one("select count(*) from countries") == 249
        assert one("select count(*) from countries where flag_sha256 is not null") == 249
        assert one("select count(*) from subdivisions") == 5_046
        assert one("select count(*) from subdivisions where parent is not null") == 1_456
        assert one("select count(*) from subdivisions a join subdivisions b on a.parent = b.code") == 1_456
    assert len(list((undisturbed / "gazetteer" / "flags").iterdir())) == 252
    tasks = tasks_of(undisturbed)
    assert tasks["pack_flags"]["findings"] == {"warning": 3}
    assert {task["state"] for task in tasks.values()} == {"succeeded"}


def test_second_resume_runs_nothing(undisturbed: Path) -> None:
    """Done is done: no body is entered again."""
    before = {name: task["attempts"] for name, task in tasks_of(undisturbed).items() if not task.get("join")}
    run(undisturbed, "run", TARGET, "--resume", "--plain")
    after = {name: task["attempts"] for name, task in tasks_of(undisturbed).items() if not task.get("join")}
    assert before == after
    assert len(after) > 250


KILLS = int(os.environ.get("TOWLINE_TEST_KILLS", "3"))


@pytest.mark.parametrize("seed", range(KILLS))
def test_killed_anywhere_and_resumed_it_ends_the_same(seed: int, undisturbed: Path, tmp_path: Path) -> None:
    """A kill -9 at a random moment costs no row and doubles none; ``TOWLINE_TEST_KILLS=200`` tries more moments."""
    reached = Random(seed).randrange(1, 240)
    process = start(tmp_path, "run", TARGET, "--plain")
    kill_when(process, lambda: count(tmp_path / "gazetteer.sqlite", "countries") >= reached)
    finished = {name for name, task in tasks_of(tmp_path).items() if task["state"] == "succeeded"}
    run(tmp_path, "run", TARGET, "--plain")
    assert digest(tmp_path) == digest(undisturbed)
    assert {task["state"] for task in tasks_of(tmp_path).values()} == {"succeeded"}
    again = {name for name in finished if tasks_of(tmp_path)[name]["attempts"] > 1}
    assert not again, "finished before the kill and entered again"


@clause("DIST-10")
def test_workers_give_what_one_process_gives(undisturbed: Path, tmp_path: Path) -> None:
    """Two worker processes, one of them killed in the middle: the same rows, each once."""
    process = start(tmp_path, "run", TARGET, "--plain", "--workers", "2")
    deadline = time.monotonic() + 60
    while count(tmp_path / "gazetteer.sqlite", "countries") < 60:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    victim = workers_of(process.pid)[0]
    os.kill(victim, signal.SIGKILL)
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0, output
    assert digest(tmp_path) == digest(undisturbed)
    done_by = {task.get("worker") for task in tasks_of(tmp_path).values() if not task.get("join")}
    assert done_by == {"instance-1", "instance-2"}


def test_json_is_one_event_per_line(tmp_path: Path) -> None:
    """A program that watches must be able to read every line."""
    lines = run(tmp_path, "run", TARGET, "--json").splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(events) > 250
    assert events[0]["kind"] == "run_started"
    assert events[-1]["kind"] == "run_ended"
