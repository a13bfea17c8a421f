"""What a run leaves of its plan when it ends: little to read for the next one."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path
from typing import Any

import pytest

from towline import Context, Options, Pipeline, RunReport, module
from towline.state.files import SystemFiles
from towline.testing import clause


def run(root: Path, *, good: bool, entered: list[int] | None = None) -> RunReport:
    """Run 600 tasks, whose journal has more than 1,000 records, and one that fails unless it is ``good``."""

    @module(matrix={"n": list(range(600))}, version="1")
    async def part(ctx: Context, n: int) -> None:
        if entered is not None:
            entered.append(n)

    @module(after=[part], version="1")
    async def last(ctx: Context) -> None:
        if not good:
            raise RuntimeError("not yet")

    options = Options(state=str(root), raise_on_failure=False)
    return asyncio.run(Pipeline("many", [last], resume="auto", options=options).run())


def plan_of(root: Path) -> dict[str, Any]:
    return json.loads((root / "plan.json").read_bytes())  # type: ignore[no-any-return]


@clause("PLAN-23")
def test_a_run_that_will_be_resumed_leaves_a_plan_without_journal(tmp_path: Path) -> None:
    """The start of the next run would otherwise read two records for each task that is done."""
    assert run(tmp_path, good=False).exit_code == 1
    plan = plan_of(tmp_path)
    assert plan["run_state"] == "failed"
    assert [task["state"] for task in plan["tasks"]].count("succeeded") == 600
    assert len((tmp_path / "plan.journal").read_text().splitlines()) == 1

    entered: list[int] = []
    assert run(tmp_path, good=True, entered=entered).counts == {"succeeded": 601}
    assert not entered


@clause("PLAN-23")
def test_a_run_that_succeeded_keeps_its_journal(tmp_path: Path) -> None:
    """Nobody resumes it: writing its plan once more would be for nothing."""
    assert run(tmp_path, good=True).exit_code == 0
    assert plan_of(tmp_path)["tasks"][0].get("state", "pending") == "pending"
    assert (tmp_path / "plan.journal").read_bytes().count(b'"seq":') == 2 * 601 + 1


@clause("PLAN-23")
def test_a_disk_that_is_full_at_the_end_changes_no_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the run is in its journal: what cannot be written is a comfort for the next one."""
    rename = SystemFiles.rename
    plans = 0

    def full(self: SystemFiles, source: str, target: str) -> None:
        nonlocal plans
        plans += target.endswith("plan.json")
        if plans == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(self, source, target)

    monkeypatch.setattr(SystemFiles, "rename", full)
    report = run(tmp_path, good=False)
    assert report.exit_code == 1
    assert report.counts == {"failed": 1, "succeeded": 600}
    assert [text for text in report.warnings if "keeps its journal" in text and "ENOSPC" in text]

    monkeypatch.undo()
    entered: list[int] = []
    assert run(tmp_path, good=True, entered=entered).counts == {"succeeded": 601}
    assert not entered
