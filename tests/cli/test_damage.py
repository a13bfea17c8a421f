"""Damaged state is told in the same words, with the same code, by whoever meets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from towline.testing import clause

if TYPE_CHECKING:
    from cli.shell import Shell

LOAD = """
from pathlib import Path
from towline import Pipeline, SyncContext, module

@module
def load(ctx: SyncContext) -> None:
    cursor = ctx.cursor(key=lambda number: number, total=3)
    for batch in cursor.batches(range(1, 4), size=1):
        if batch[0] == 2 and Path("bad").exists():
            raise ValueError("row 2 has no name")
        cursor.commit(batch)

pipeline = Pipeline("load", [load])
"""


@pytest.fixture
def half(shell: Shell) -> Shell:
    """A folder whose run failed at the second of three rows."""
    shell.write("load.py", LOAD)
    shell.write("bad", "")
    shell.run("run", "load.py", code=1)
    (shell.folder / "bad").unlink()
    return shell


@clause("PLAN-22")
@pytest.mark.parametrize("damage", ["an empty journal", "no journal", "a damaged plan"])
def test_why_and_run_tell_damage_alike(half: Shell, damage: str) -> None:
    """`why` is asked first at night: "no run has reached it yet" of a half loaded table would start it over."""
    state = half.folder / ".towline" / "load"
    if damage == "an empty journal":
        (state / "plan.journal").write_bytes(b"")
    elif damage == "no journal":
        (state / "plan.journal").unlink()
    else:
        (state / "plan.json").write_text("x")

    ran = half.run("run", "load.py", "--resume", code=4)
    asked = half.run("why", "load", code=4)

    assert "is damaged" in asked.err
    assert asked.err.strip().splitlines()[-1] == ran.err.strip().splitlines()[-1]
    half.run("runs")


@clause("CUR-13")
def test_a_damaged_cursor_fails_its_task_and_is_named(half: Shell) -> None:
    """One task is touched: the others go on, and the text says which file, and what to do with it."""
    (half.folder / ".towline" / "load" / "cursors" / "load.json").write_text("x")
    failed = half.run("run", "load.py", "--resume", code=1)
    assert "cursors/load.json of 'load' cannot be used" in failed.err + failed.out
    assert "Restore it, or remove it" in failed.err + failed.out
