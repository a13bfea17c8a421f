"""The flight log move: stopped, answered, killed, broken, edited, repeated; always the same target."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import answer
from examples.runs import EXAMPLES, count, kill_when, run, start, tasks_of
from examples.sizes import FLIGHTS, LIMIT_S, PIPELINE, STATE
from move.target import Target

PROGRAM = EXAMPLES / "flight_log_move"


class Move:
    """One folder in which flights are moved. ``program``: the folder of the program that moves it."""

    def __init__(self, folder: Path, legacy: Path, program: Path = PROGRAM) -> None:
        self.folder, self.program = folder, program
        self.arguments = (
            "run",
            f"{program / 'flight_log_move.py'}:{PIPELINE}",
            "--plain",
            "--param",
            f"legacy={legacy}",
        )
        self.legacy = legacy
        self.target = folder / "target.sqlite"

    def answer(self) -> None:
        """Write what the operator would."""
        answer.main(str(self.legacy), str(self.folder / "mapping.json"))

    def run(self, *flags: str, exit_code: int = 0) -> str:
        """Run the move as it stands."""
        return run(self.folder, *self.arguments, *flags, exit_code=exit_code, timeout_s=LIMIT_S)

    def edit(self, file: str, *changes: tuple[str, str]) -> None:
        """Replace text in a file of the program, each of which stands there once."""
        path = self.program / file
        text = path.read_text(encoding="utf-8")
        for before, after in changes:
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")

    def digest(self) -> str:
        """Return the digest of the target, computed here."""
        with Target(str(self.target)) as target:
            return target.digest()


@pytest.fixture
def move(tmp_path: Path, legacy_file: Path) -> Move:
    """A folder with nothing in it."""
    return Move(tmp_path, legacy_file)


@pytest.fixture
def edited(tmp_path: Path, legacy_file: Path) -> Move:
    """A move whose program is a copy that a test may edit; answered, not started."""
    program = tmp_path / "program"
    shutil.copytree(PROGRAM, program, ignore=shutil.ignore_patterns("__pycache__"))
    move = Move(tmp_path, legacy_file, program)
    move.answer()
    return move


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, legacy_file: Path) -> Move:
    """A move that stopped at its gate, was answered, and met no other trouble."""
    move = Move(tmp_path_factory.mktemp("undisturbed"), legacy_file)
    output = move.run(exit_code=3)
    assert "AIRPORT_AMBIGUOUS" in output
    stopped = tasks_of(move.folder)
    assert len(stopped) == 43
    assert stopped["prepare.airports"]["findings"] == {"blocking": 38, "warning": 4, "info": 113}
    assert stopped["prepare.airports"]["reason"] == "blocked"
    assert stopped["import.carriers"]["state"] == "pending"
    move.answer()
    move.run()
    return move


def test_gate_opens_and_nothing_is_exported_again(undisturbed: Move) -> None:
    """An operator's answer must not cost the export."""
    tasks = tasks_of(undisturbed.folder)
    assert {task["state"] for task in tasks.values()} == {"succeeded"}
    exports = [task for name, task in tasks.items() if name.startswith(("capture", "analyse", "export"))]
    assert len(exports) == 22
    assert {task["attempts"] for task in exports} == {1}
    assert tasks["prepare.airports"]["attempts"] == 2
    report = json.loads((undisturbed.folder / "package" / "validation.json").read_bytes())
    assert report["digest"] == undisturbed.digest()
    assert report["rows"]["flights"] + report["skipped"] == FLIGHTS
    assert report["wrong"] == []


MOMENTS: dict[str, Callable[[Move], bool]] = {
    "plan": lambda move: (move.folder / ".towline" / STATE / "plan.json").exists(),
    "export": lambda move: (move.folder / "package" / "flights" / "01.jsonl.gz.part").exists(),
    "artifacts": lambda move: len(list((move.folder / ".towline").glob("*/artifacts/*"))) >= 3,
    "gate": lambda move: (move.folder / "package" / "received" / "prepare.airports").exists(),
    "sheets": lambda move: count(move.target, "sheets") >= 300,
    "flights": lambda move: count(move.target, "flights") >= 3_000,
    "links": lambda move: count(move.target, "links") >= 5_000,
    "validation": lambda move: (move.folder / "package" / "received" / "validate.parity").exists(),
}
"""Where a kill hits, and how a watcher outside sees that it is there."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_anywhere_it_ends_the_same(moment: str, move: Move, undisturbed: Move) -> None:
    """The promise of the whole: a kill -9 costs at most one batch, and no finished task is entered again."""
    move.answer()
    process = start(move.folder, *move.arguments)
    kill_when(process, lambda: MOMENTS[moment](move), timeout_s=LIMIT_S)
    finished = {name for name, task in tasks_of(move.folder).items() if task["state"] == "succeeded"}
    move.run()
    assert move.digest() == undisturbed.digest()
    tasks = tasks_of(move.folder)
    assert {task["state"] for task in tasks.values()} == {"succeeded"}
    assert {tasks[name]["attempts"] for name in finished} <= {1}
    assert all(task["done"] <= task["total"] for task in tasks.values() if task.get("total") is not None)
    assert len(finished) > {"plan": -1, "export": 5, "artifacts": 5, "gate": 20}.get(moment, 25)


def test_failed_import_skips_what_needs_it_and_resumes(move: Move, undisturbed: Move) -> None:
    """With --keep-going everything that can be done is done, and the rest names its cause."""
    move.answer()
    with Target(str(move.target)) as target:
        target.create_tables()
    with closing(sqlite3.connect(move.target)) as broken:
        broken.execute("create trigger no_planes before insert on planes begin select raise(abort, 'no room'); end")
        broken.commit()
    move.run("--keep-going", exit_code=1)
    tasks = tasks_of(move.folder)
    assert tasks["import.planes"]["state"] == "failed"
    assert {tasks[f"import.{name}"]["state"] for name in ("carriers", "airports", "sheets")} == {"succeeded"}
    skipped = [name for name, task in tasks.items() if task["state"] == "skipped"]
    assert len(skipped) == 14
    assert {tasks[name]["blocked_by"] for name in skipped} == {"import.planes"}
    with closing(sqlite3.connect(move.target)) as mended:
        mended.execute("drop trigger no_planes")
    move.run("--resume")
    assert move.digest() == undisturbed.digest()


def test_fresh_with_the_target_kept_changes_nothing(undisturbed: Move) -> None:
    """Every write may be repeated, so starting over is safe."""
    once = undisturbed.digest()
    undisturbed.run("--fresh")
    assert undisturbed.digest() == once


def test_changed_parameters_are_refused(undisturbed: Move) -> None:
    """A plan of another question must not be gone on with by accident."""
    output = undisturbed.run("--resume", "--param", "origin=JFK", exit_code=2)
    assert "origin" in output


BEFORE_FLIGHTS = '@module(\n    name="import.flights",'
IMPORT_GATES = """@module(name="import.gates", phase="import", after=[import_airports], pools="target")
def import_gates(ctx: SyncContext) -> int:
    with Target(ctx.params(Move).target) as target:
        return target.count("airports")


"""


def test_program_that_changed_between_runs_is_reconciled(edited: Move, undisturbed: Move) -> None:
    """Migrations are edited while they are under way: what is done and untouched stays done, the rest is listed."""
    kill_when(start(edited.folder, *edited.arguments), lambda: MOMENTS["links"](edited), timeout_s=LIMIT_S)
    before = tasks_of(edited.folder)
    edited.edit(
        "flight_log_move.py",
        *((f", prepare_flights], params={params}", f"], params={params}") for params in ("Move", "SmallMove")),
    )
    edited.edit(
        "move/load.py",
        (BEFORE_FLIGHTS, IMPORT_GATES + BEFORE_FLIGHTS),
        ("after=[import_flights], pools", "after=[import_flights, import_gates], pools"),
    )

    said = run(edited.folder, "plan", *edited.arguments[1:2], *edited.arguments[3:], "--resume")
    assert tasks_of(edited.folder) == before, "looking wrote something"
    classes = [
        "changed: import.links",
        "stale: validate.parity",
        "added: import.gates",
        "removed: prepare.flights",
    ]
    assert said.splitlines()[1:6] == [*classes, "unchanged: 40 tasks"]
    said = edited.run("--resume")
    assert said.splitlines()[1:6] == [*classes, "unchanged: 40 tasks"]

    tasks = tasks_of(edited.folder)
    assert {task["state"] for task in tasks.values()} == {"succeeded"}
    assert "prepare.flights" not in tasks
    assert {task["attempts"] for task in tasks.values()} == {1}, "a kept task was entered, or a changed one went on"
    assert tasks["import.links"]["done"] == tasks["import.links"]["total"] > 20_000
    assert edited.digest() == undisturbed.digest()


def test_changed_import_does_not_go_on_where_the_old_one_stopped(edited: Move, undisturbed: Move) -> None:
    """The cursor in the target belongs to the old body: rows that the new one would write otherwise come again."""
    edited.edit("move/load.py", ("((c.code, c.name) for", "((c.code, c.name.upper()) for"))
    edited.run()
    assert edited.digest() != undisturbed.digest()
    edited.edit(
        "move/load.py",
        ("((c.code, c.name.upper()) for", "((c.code, c.name) for"),
        ('name="import.carriers", phase', 'name="import.carriers", version="2", phase'),
    )
    assert "changed: import.carriers" in edited.run("--resume")
    assert edited.digest() == undisturbed.digest()


def test_changed_query_is_refused(edited: Move) -> None:
    """A place in one list means nothing in another: both queries are named by their digests."""
    january = "flights where date < '2013-02'"
    kill_when(start(edited.folder, *edited.arguments), lambda: MOMENTS["flights"](edited), timeout_s=LIMIT_S)
    written = count(edited.target, january)
    edited.edit("move/legacy.py", ("order by day, origin, carrier, flight,", "order by day, carrier, origin, flight,"))
    assert "QueryChangedError" in edited.run("--resume", exit_code=1)
    [error] = [task["error"] for task in tasks_of(edited.folder).values() if task.get("error")]
    assert len(set(re.findall(r"sha256:[0-9a-f]{64}", error["text"]))) == 2
    assert count(edited.target, january) == written


def test_cursor_in_a_file_gives_the_same(move: Move, undisturbed: Move) -> None:
    """Where the cursor lies is a choice, not a difference."""
    move.answer()
    move.run("--param", "cursor=file")
    assert move.digest() == undisturbed.digest()


def test_damaged_sheet_stops_before_the_import(move: Move, legacy_file: Path) -> None:
    """A flipped byte in the source is found in prepare, and nothing is written."""
    damaged = move.folder / "damaged.sqlite"
    shutil.copy(legacy_file, damaged)
    with closing(sqlite3.connect(damaged)) as connection:
        connection.execute(
            "update sheets set content = zeroblob(9) where (origin, date) = (select origin, date from sheets limit 1)"
        )
        connection.commit()
    move.answer()
    output = move.run("--param", f"legacy={damaged}", exit_code=1)
    assert "damaged" in output
    assert count(move.target, "flights") == 0


def test_postgres_as_target_gives_the_same(move: Move, undisturbed: Move, postgres_url: str) -> None:
    """The same rows in another database have the same digest, also after a kill in the middle."""
    move.answer()
    arguments = (*move.arguments, "--param", f"target={postgres_url}")

    def written() -> int:
        with Target(postgres_url) as target:
            [found] = next(target.query("select to_regclass('flights') is not null"))
            return target.count("flights") if found else 0

    kill_when(start(move.folder, *arguments), lambda: written() >= 3_000, timeout_s=LIMIT_S)
    run(move.folder, *arguments, timeout_s=LIMIT_S)
    with Target(postgres_url) as target:
        assert target.digest() == undisturbed.digest()
