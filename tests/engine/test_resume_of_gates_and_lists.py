"""Resuming behind a gate that blocked, and over tasks that were made on the way."""

from __future__ import annotations

import pytest

from engine.stores import Moments, World, run_state_in, use_store
from towline import Context, Options, Pipeline, SyncContext, module, result_of
from towline.testing import clause, run_in_mode

pytestmark = pytest.mark.virtual_time


@clause("PLAN-53")
async def test_blocked_gate_runs_again_and_lets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator answered: the same command goes on, and exports nothing a second time."""
    world = World()
    store = Moments(world)
    use_store(monkeypatch, store)
    answered: list[bool] = []

    @module(phase="export")
    async def export(ctx: Context) -> int:
        world.enter("export")
        return 1

    @module(phase="prepare", gate=True)
    async def judge(ctx: Context, value: int = result_of(export)) -> None:
        world.enter("judge")
        await ctx.step("look", lambda: world.entered.append("looked"))
        if not answered:
            ctx.finding("ASK", "which one?", severity="blocking")

    @module(phase="import")
    async def load(ctx: Context) -> None:
        world.enter("load")

    pipeline = Pipeline("gates", [judge, load], phases=("export", "prepare", "import"))
    assert (await run_in_mode(pipeline)).status == "blocked"
    assert await run_state_in(store) == "blocked"
    assert (await run_in_mode(pipeline)).status == "blocked"
    answered.append(True)
    seen = await run_in_mode(pipeline)
    assert seen.status == "succeeded"
    assert world.entered == ["export", "judge", "looked", "judge", "looked", "judge", "looked", "load"]
    assert seen.report.findings == ()


@clause("PLAN-61")
async def test_children_are_kept_when_their_list_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One file more on the share: the others are not packed again."""
    world = World()
    store = Moments(world)
    use_store(monkeypatch, store)
    files = ["a", "b"]
    version = ["1"]

    def pipeline() -> Pipeline[None]:
        @module(version="1")
        async def look(ctx: Context) -> list[str]:
            world.enter("look")
            if version[0] == "fails":
                raise OSError("share is gone")
            return list(files)

        @module(each=result_of(look))
        async def pack(ctx: Context, item: str) -> str:
            world.enter(f"pack {item}")
            if item == "b" and version[0] == "1":
                raise ValueError("b is open")
            return item

        @module
        def merge(ctx: SyncContext, packed: list[str] = result_of(pack)) -> list[str]:
            return packed

        return Pipeline("each", [merge], options=Options(keep_going=True))

    await run_in_mode(pipeline())
    version[0] = "2"
    world.entered.clear()
    seen = await run_in_mode(pipeline(), earlier="resume")
    assert world.entered == ["pack b"]
    assert seen.status == "succeeded"
    assert seen.states["merge"] == "succeeded"


@clause("PLAN-58")
async def test_a_failed_expansion_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list was wrong, somebody repairs the module that makes it, and the same plan goes on."""
    store = Moments(World())
    use_store(monkeypatch, store)
    keys = ["a", "a"]

    def pipeline(version: str) -> Pipeline[None]:
        @module(version=version)
        async def look(ctx: Context) -> list[str]:
            return list(keys)

        @module(each=result_of(look))
        async def pack(ctx: Context, item: str) -> str:
            return item

        return Pipeline("each", [pack], options=Options(keep_going=True))

    assert (await run_in_mode(pipeline("1"))).states["pack"] == "failed/expansion_failed"
    assert (await run_in_mode(pipeline("1"), earlier="resume")).states["pack"] == "failed/expansion_failed"
    keys[1] = "b"
    seen = await run_in_mode(pipeline("2"), earlier="resume")
    assert seen.status == "succeeded"
    assert set(seen.states) == {"look", "pack", "pack[a]", "pack[b]"}
