"""A state that cannot be written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.stores import use_store
from towline import Context, Options, Pipeline, module
from towline.errors.state import StateLostError
from towline.state.memory import MemoryStore
from towline.testing import clause, run_in_mode

pytestmark = pytest.mark.virtual_time


class FailingStore(MemoryStore):
    """Loses its disk after some journal lines."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.lines = lines

    def grow(self, key: str, line: bytes) -> int:
        if key == "plan.journal":
            self.lines -= 1
            if self.lines < 0:
                raise OSError(28, "No space left on device")
        return super().grow(key, line)


@clause("PLAN-18")
@clause("RUN-58")
@pytest.mark.parametrize("lines", range(5))
async def test_lost_state_stops_the_run_and_what_it_started(lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on without a record would do work twice tomorrow."""
    ended: list[str] = []
    use_store(monkeypatch, FailingStore(lines))

    @module
    async def a(ctx: Context) -> None: ...

    @module(after=[a])
    async def b(ctx: Context) -> None:
        await asyncio.sleep(1)
        ended.append("b done")

    @module
    async def long(ctx: Context) -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
            ended.append("long cancelled")
            raise
        ended.append("long done")

    @module(after=[long])
    async def last(ctx: Context) -> None: ...

    with pytest.raises(StateLostError) as lost:
        await run_in_mode(Pipeline("lost", [b, last], options=Options(state="memory:")))
    assert lost.value.exit_code == 4
    if lines:
        assert "long done" not in ended or lines >= 3
        assert ended
    await asyncio.sleep(100)
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@clause("PLAN-01")
async def test_nothing_runs_before_the_plan_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the plan cannot be written, no body was entered."""

    class NoPlan(MemoryStore):
        def plan_medium(self, ownership: Any) -> Any:
            medium = super().plan_medium(ownership)

            async def publish(*_: Any) -> None:
                raise OSError(28, "No space left on device")

            draft = medium.draft_plan

            def draft_plan() -> Any:
                made = draft()
                made.publish = publish
                return made

            medium.draft_plan = draft_plan  # type: ignore[method-assign]
            return medium

    entered: list[str] = []
    use_store(monkeypatch, NoPlan())

    @module
    async def body(ctx: Context) -> None:
        entered.append("body")

    with pytest.raises(StateLostError):
        await run_in_mode(Pipeline("unstored", [body]))
    assert entered == []
