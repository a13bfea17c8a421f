"""State roots as they are seen from outside: which are meant, their plans, reports and logs (PLAN-27)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from towline.cli.failing import say
from towline.cli.owners import living_owner
from towline.cli.plan_reading import plan_in
from towline.cli.reachability import without_password
from towline.cli.servers import elsewhere
from towline.errors.configuration import ConfigurationError, NothingHereError, UnknownNameError
from towline.errors.state import StateError
from towline.execution.report import RunReport
from towline.identity import suggestion
from towline.state.opening import open_store

if TYPE_CHECKING:
    from towline.planning.records import PlanDocument

STATE_FOLDER = ".towline"
NOT_PIPELINES = ("cache", "history")


class Where(NamedTuple):
    """Which states are meant, by the flags: a folder or a URL, and a pipeline; both ``None``: all below ``.towline``."""

    state: str | None = None
    pipeline: str | None = None

    @property
    def is_url(self) -> bool:
        """Whether a server is named."""
        return self.state is not None and "://" in self.state


def roots(where: Where) -> list[Path]:
    """Find the state roots that are meant: the one that is named, or every pipeline's below ``.towline``.

    Raises:
        NothingHereError: There is none.
        UnknownNameError: There is none of the pipeline.
        ConfigurationError: A URL was named: history lies in folders. Or a folder, and a pipeline as well.
    """
    state, pipeline = where
    if state is not None and where.is_url:
        advice = (
            "logs and reports lie in .towline/<pipeline> of the machine that was the master: look there, without "
            "--state. `towline why` and `towline plan --resume` read what is on a server"
        )
        raise ConfigurationError("state", without_password(state), "given", advice)
    if state is not None:
        if pipeline is not None:
            advice = f"a folder is the state of one pipeline: give --state {state} alone"
            raise ConfigurationError("--pipeline", pipeline, "beside a folder", advice)
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
    if pipeline is None:
        return found
    names = [one.name for one in found]
    if pipeline not in names:
        hint = suggestion(pipeline, names) or f"It has {', '.join(names)}."
        raise UnknownNameError("pipeline", pipeline, str(base), hint)
    return [base / pipeline]


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
    """Read the plan of a state root as it stands now, on a server where that has it; ``None`` when there is none.

    Raises:
        StateError: It cannot be read.
    """
    server = elsewhere(root)
    if server is not None:
        return server.plan()

    async def read() -> PlanDocument | None:
        store = open_store(str(root))
        try:
            return await plan_in(store)
        finally:
            await store.close()

    return asyncio.run(read())


def is_living(root: Path) -> bool:
    """Say whether somebody runs the pipeline of a state root now.

    Raises:
        StateError: Its lock cannot be read, or the server that has the state cannot be asked.
    """
    server = elsewhere(root)
    return living_owner(root) is not None if server is None else server.is_owned()


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
