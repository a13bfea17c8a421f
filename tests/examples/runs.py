"""Running the examples as an operator does: the installed command, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from structure.repository import ROOT

EXAMPLES = ROOT / "examples"
TOWLINE = Path(sys.executable).with_name("towline")


def environment() -> dict[str, str]:
    """The environment without anything of Towline set."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TOWLINE_")} | {"NO_COLOR": "1"}


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start ``towline`` in a folder."""
    return subprocess.Popen(
        [str(TOWLINE), *arguments],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(folder: Path, *arguments: str, exit_code: int = 0, timeout_s: float = 100) -> str:
    """Run ``towline`` to its end in a folder; return what it printed."""
    process = start(folder, *arguments)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == exit_code, f"towline {' '.join(arguments)}: exit {process.returncode}\n{output}"
    return output


def kill_when(process: subprocess.Popen[str], reached: Callable[[], bool], *, timeout_s: float = 60) -> None:
    """Kill with -9 as soon as something was reached."""
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline, "never reached"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.005)
            raise AssertionError(f"the run ended first:\n{process.communicate()[0]}")
    process.kill()
    process.communicate()
    assert process.returncode == -9


def tasks_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the tasks of the one plan below a folder, by id: its snapshot and the journal since, as the spec has them."""
    [plan] = folder.glob(".towline/*/plan.json")
    document = json.loads(plan.read_bytes())
    tasks = {task["id"]: {"state": "pending", "attempts": 0} | task for task in document["tasks"]}
    journal = plan.with_name("plan.journal")
    lines = journal.read_bytes().split(b"\n")[1:-1] if journal.exists() else []
    for line in lines:
        crc, _, text = line.partition(b" ")
        assert int(crc, 16) == zlib.crc32(text)
        for record in json.loads(text)["records"]:
            if record["seq"] <= document.get("applied_seq", 0):
                continue
            if record["kind"] == "expand":
                tasks.update(
                    {f"{record['join']}[{key}]": {"state": "pending", "attempts": 0} for key in record["keys"]}
                )
            if record["kind"] == "state":
                task = tasks[record["task"]]
                for name in ("reason", "blocked_by", "error"):
                    task.pop(name, None)
                task.update({name: value for name, value in record.items() if name not in ("seq", "kind", "task")})
    return tasks


def count(database: Path, table: str) -> int:
    """Count rows that someone else may be writing; 0 while there is no such table."""
    if not database.exists():
        return 0
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
        try:
            return int(connection.execute(f"select count(*) from {table}").fetchone()[0])
        except sqlite3.OperationalError:
            return 0
