"""What becomes of a body whose task has gone to another worker, and of a body that would lose it (RUN-29, RUN-47)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pytest

from distributed.fleet import Fleet
from distributed.together import run_together
from towline import Context, LeaseLostError, module
from towline.distributed.keeper import Keeper
from towline.testing import clause, run_virtual
from towline.testing.redis_server import RedisTestServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

SILENT_FROM_S, SILENT_TO_S = 5.0, 50.0
"""Longer than the lease of 30 s; then the worker hears that it is lost."""

met: dict[str, str] = {}


async def noted(name: str, call: Callable[[], Awaitable[object]]) -> None:
    """Note what a use of the context raises."""
    try:
        await call()
        met[name] = "let through"
    except BaseException as error:
        met[name] = type(error).__name__


@module
async def works(ctx: Context) -> str:
    if ctx.worker_id != "w-1":
        await asyncio.sleep(60)  # until the first holder has heard of its loss, and gone on
        return "second"
    cursor: Any = await ctx.cursor(key=lambda item: item)
    await cursor.commit(1)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(10_000)
    met["heard"] = "cancelled"

    async def progress() -> None:
        ctx.progress(1, 2)

    async def finding() -> None:
        ctx.finding("late", "too late")

    await noted("progress", progress)
    await noted("finding", finding)
    await noted("step", lambda: ctx.step("one", lambda: 1))
    await noted("cursor", lambda: cursor.commit(2))
    await noted("artifact", lambda: ctx.artifacts.put("more", "page.txt"))
    return "first"


@clause("RUN-47")
def test_a_body_that_lost_its_task_can_write_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """It is cancelled; should it go on, each write says why not, and what it returns concerns nobody."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.txt").write_text("page")
    met.clear()
    beat = Keeper._once

    async def silent_for_a_while(self: Keeper, coordinator: Any) -> Any:
        now = asyncio.get_running_loop().time()
        if self._registration.worker_id == "w-1" and SILENT_FROM_S <= now < SILENT_TO_S:
            return None
        return await beat(self, coordinator)

    monkeypatch.setattr(Keeper, "_once", silent_for_a_while)

    with caplog.at_level(logging.INFO, logger="towline"):
        seen = run_virtual(run_together([works], minimum_workers=2, options={"parallelism": 1}))

    assert seen.report.status == "succeeded"
    assert seen.report.outcome_of(works).value == "second"
    assert seen.workers == {"works": "w-2"}
    assert seen.report.metrics["requeues"] == 1, "an operator sees that a node was lost (REP-02)"
    writes = ("progress", "finding", "step", "cursor", "artifact")
    assert met == {"heard": "cancelled", **dict.fromkeys(writes, "LeaseLostError")}
    assert seen.report.findings == ()
    assert any("the lease of works (epoch 1) is lost" in record.getMessage() for record in caplog.records)
    assert "lease_lost" not in str(seen.report.tasks)


def test_the_error_says_what_is_known() -> None:
    """The holder of a lost lease does not know who has the task now."""
    text = str(LeaseLostError("build", 3, 0, "w-1"))
    assert text.startswith("w-1 no longer holds the lease of 'build' (epoch 3): it went back to the queue")


@clause("RUN-29")
def test_a_body_that_blocks_the_loop_longer_than_its_lease_keeps_it(tmp_path: Path) -> None:
    """Heartbeats have a thread and a connection of their own: bad manners cost a warning, not the work."""
    with RedisTestServer() as server:
        fleet = Fleet(tmp_path, server.url, "run-1", program="blocking.py", worker_timeout_s=1.0, heartbeat_s=0.2)
        try:
            fleet.worker("w-1", parallelism=1)
            fleet.worker("w-2", parallelism=1)
            result = fleet.result(fleet.start("master", minimum_workers=2))
        finally:
            fleet.close()

    assert result["status"] == "succeeded"
    assert [name for name, _ in fleet.starts()] == ["blocks"]
