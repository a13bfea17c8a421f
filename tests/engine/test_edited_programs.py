"""A resume after the program was edited, or after results were lost."""

from __future__ import annotations

from typing import Any

import pytest

from engine.resume_case import Case
from engine.stores import tasks_in
from towline import Context, module, result_of
from towline.testing import clause

pytestmark = pytest.mark.virtual_time


@clause("PLAN-34", "PLAN-35", "PLAN-38")
async def test_a_changed_program_keeps_what_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding a module must not throw a night away; changing one re-runs it and what stands on it."""
    case = Case(monkeypatch)
    case.bad.clear()

    def family(version: str, *, with_new: bool) -> list[Any]:
        @module(version=version)
        async def source(ctx: Context) -> int:
            case.world.enter("source")
            return 1

        @module
        async def uses(ctx: Context, value: int = result_of(source)) -> None:
            case.world.enter("uses")

        @module
        async def gone(ctx: Context) -> None:
            case.world.enter("gone")

        @module
        async def new(ctx: Context) -> None:
            case.world.enter("new")

        return [uses, new if with_new else gone]

    await case.start(case.pipeline(*family("1", with_new=False)))
    seen = await case.start(case.pipeline(*family("2", with_new=True)), earlier="resume")
    assert case.entered == {"source", "uses", "new"}
    [reconciled] = seen.of_kind("reconciled")
    assert reconciled.data["changed"] == ["source"]
    assert reconciled.data["stale"] == ["uses"]
    assert reconciled.data["added"] == ["new"]
    assert reconciled.data["removed"] == ["gone"]
    assert "gone" not in await tasks_in(case.store)


@clause("PLAN-37")
async def test_lost_and_cut_results_run_again_and_forged_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut may eat a result; a result that is something else is not to be trusted."""
    from towline.errors.state import ResultCorruptError

    case = Case(monkeypatch)

    @module
    async def source(ctx: Context) -> list[int]:
        case.world.enter("source")
        return [1, 2, 3]

    @module
    async def uses(ctx: Context, value: list[int] = result_of(source)) -> int:
        case.world.enter("uses")
        if "uses" in case.bad:
            raise ValueError("later")
        return sum(value)

    case.bad = {"uses"}
    await case.start(case.pipeline(uses))
    whole = dict(case.store.documents)
    case.bad.clear()
    results = bytes(case.store.documents["results.jsonl"])
    case.store.documents["results.jsonl"] = bytearray(results[: results.index(b"[1,2,3]") + 3])
    seen = await case.start(case.pipeline(uses), earlier="resume")
    assert {"source", "uses"} <= case.entered
    assert seen.value(uses) == 6

    case.store.documents.update(whole)
    case.store.documents["results.jsonl"] = bytearray(results.replace(b"[1,2,3]", b"[9,9,9]"))
    with pytest.raises(ResultCorruptError, match=r"'source'.*results\.jsonl at byte \d+.*--resume") as refused:
        await case.start(case.pipeline(uses), earlier="resume")
    assert refused.value.exit_code == 4
    assert "uses" not in case.entered
    assert (await tasks_in(case.store))["uses"].state in ("pending", "running")
    del case.store.documents["results.jsonl"]  # as the message says
    seen = await case.start(case.pipeline(uses), earlier="resume")
    assert seen.value(uses) == 6
