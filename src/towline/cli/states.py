"""Reading state roots from outside: no lock, no change (PLAN-27)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from towline.cli.failing import say
from towline.cli.reachability import without_password
from towline.errors.configuration import ConfigurationError, NothingHereError
from towline.errors.state import StateError
from towline.execution.report import RunReport
from towline.planning.live import LivePlan
from towline.planning.loading import decode_document, replay
from towline.state.cleaning import refuse_lost_journal
from towline.state.opening import open_store
from towline.state.planfile import PlanFile

if TYPE_CHECKING:
    from towline.planning.records import PlanDocument
    from towline.state.store import StateStore

STATE_FOLDER = ".towline"
NOT_PIPELINES = ("cache", "history")


def roots(state: str | None) -> list[Path]:
    """Find the state roots that are meant: the one that is named, or every pipeline's below ``.towline``.

    Raises:
        NothingHereError: There is none.
        ConfigurationError: A URL was named: history lies in folders.
    """
    if state is not None and "://" in state:
        advice = (
            "logs and reports lie in .towline/<pipeline> of the machine that was the master: look there, without "
            "--state. `towline why` and `towline plan --resume` read what is on a server"
        )
        raise ConfigurationError("state", without_password(state), "given", advice)
    if state is not None:
        folder = Path(state)
        if not folder.is_dir():
            raise NothingHereError(state)
        return [folder]
    base = Path(STATE_FOLDER)
    found = (
        [one for one in sorted(base.iterdir()) if one.is_dir() and one.name not in NOT_PIPELINES]
        if base.is_dir()
        else []
    )
    if not found:
        raise NothingHereError(str(base.resolve()))
    return found


def read_plan(root: Path) -> PlanDocument | None:
    """Read the plan of a state root as it stands now, of a living run too; one that cannot be read is warned of.

    Looking back must work when a plan is damaged: that is when people look, and at the other pipelines too.
    """
    try:
        return plan_of(root)
    except StateError as error:
        say(f"warning: {error}")
        return None


def plan_of(root: Path) -> PlanDocument | None:
    """Read the plan of a state root as it stands now; ``None`` when there is none.

    Raises:
        StateError: It cannot be read.
    """

    async def read() -> PlanDocument | None:
        store = open_store(str(root))
        try:
            return await plan_in(store)
        finally:
            await store.close()

    return asyncio.run(read())


async def plan_in(store: StateStore) -> PlanDocument | None:
    """Read the plan in a store, as its journal has it; ``None`` when there is none.

    Raises:
        StateError: It cannot be read.
    """
    plan_file = PlanFile(store)
    loaded = await plan_file.load()
    await plan_file.close()
    if loaded.snapshot is None:
        return None
    plan = LivePlan(decode_document(loaded.snapshot, f"{store.name}/plan.json"))
    replay(plan, loaded.records, f"{store.name}/plan.journal")
    if loaded.without_journal:
        await refuse_lost_journal(store, plan.document.run_id)
    return plan.snapshot()


def read_reports(root: Path) -> tuple[list[RunReport], list[str]]:
    """Read the reports of a state root, newest first, and warnings about those that cannot be read (REP-04)."""
    reports: list[RunReport] = []
    warnings: list[str] = []
    for file in sorted(root.glob("runs/*/report.json")):
        try:
            report = msgspec.json.decode(file.read_bytes(), type=RunReport)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            warnings.append(f"{file} is left out: {error}")
            continue
        if report.schema != 1:
            warnings.append(f"{file} is left out: its schema is {report.schema}")
            continue
        reports.append(report)
    reports.sort(key=lambda report: report.started_at, reverse=True)
    return reports, warnings


def log_of(root: Path, run_id: str, task: str) -> str | None:
    """Read the log of a task in a run; ``None`` when it said nothing."""
    from towline.identity import segment

    file = root / "runs" / run_id / "log" / f"{segment(task)}.txt"
    try:
        return file.read_text(encoding="utf-8", errors="backslashreplace")
    except FileNotFoundError:
        return None
