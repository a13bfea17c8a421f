"""The folder of the state is removed under a run."""

from __future__ import annotations

from pathlib import Path

from engine.programs import Program
from towline.testing import clause

REMOVES = """
import shutil

@module
def walk(ctx: SyncContext) -> None:
    for batch in ctx.cursor(key=int).batches(range(6), size=2):
        if batch[0] == 2:
            shutil.rmtree(".towline/removes")

@module(after=[walk])
def after(ctx: SyncContext) -> None:
    Path("after.txt").write_text("x")

pipeline = Pipeline("removes", [after])
"""


@clause("PLAN-18")
def test_a_run_whose_state_was_removed_leaves_no_part_of_one(tmp_path: Path) -> None:
    """Somebody cleaned up: the run stops and says so, and the next one is not refused for what it left."""
    program = Program(tmp_path, REMOVES)

    code, output = program.run()

    assert code == 4, output
    assert "gone" in output
    assert "Traceback" not in output
    assert not program.path("after.txt").exists()
    assert not list(program.path(".towline").glob("removes/*"))
