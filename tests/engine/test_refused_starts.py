"""Starts that are refused, and what of an earlier run does not count."""

from __future__ import annotations

import asyncio

import pytest

from engine.resume_case import Case, Params
from towline import Context, Pipeline, module
from towline.errors.coordination import RunIdUsedError
from towline.errors.declaration import DeclarationError
from towline.errors.planning import OtherProgramError, ParamsChangedError, PlanMissingError
from towline.errors.state import PlanCorruptError, PlanOwnedError
from towline.testing import clause

pytestmark = pytest.mark.virtual_time


async def test_other_parameters_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a migration for `eu` and half for `us` would be no migration."""
    case = Case(monkeypatch)
    await case.start()
    with pytest.raises(ParamsChangedError, match="region"):
        await case.start(earlier="resume", params=Params("us"))
    seen = await case.start(earlier="fresh", params=Params("us"))
    assert seen.status == "failed"


async def test_another_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One state root is one program's."""
    case = Case(monkeypatch)
    await case.start()
    with pytest.raises(OtherProgramError, match="other"):
        await case.start(case.pipeline(name="other"))


@clause("PLAN-32")
async def test_of_two_starts_at_once_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two terminals, one state: the second is told who has it."""
    case = Case(monkeypatch)
    results = await asyncio.gather(case.start(), case.start(earlier="fresh"), return_exceptions=True)
    kinds = sorted(type(one).__name__ for one in results)
    assert kinds == ["PlanOwnedError", "SeenRun"]
    refused = next(one for one in results if isinstance(one, PlanOwnedError))
    assert refused.exit_code == 4


async def test_a_used_run_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run id names one doing."""
    case = Case(monkeypatch)
    await case.start(run_id="night-1")
    with pytest.raises(RunIdUsedError, match="night-1"):
        await case.start(run_id="night-1", earlier="resume")
    await case.start(run_id="night-2", earlier="resume")
    for earlier in ("resume", "fresh"):
        with pytest.raises(RunIdUsedError, match="night-1"):
            await case.start(run_id="night-1", earlier=earlier)


async def test_cursors_without_a_plan_are_not_guessed_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deleted plan.json: whether the rest may be trusted is not ours to decide."""
    case = Case(monkeypatch)

    @module
    async def walk(ctx: Context) -> None:
        await ctx.step("one", lambda: 1)

    await case.start(case.pipeline(walk))
    del case.store.documents["plan.json"]
    del case.store.documents["plan.journal"]
    with pytest.raises(PlanMissingError):
        await case.start(case.pipeline(walk), earlier="resume")
    await case.start(case.pipeline(walk), earlier="fresh")
    assert "good" in case.entered


async def test_a_damaged_plan_is_refused_and_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never silently rebuilt: the operator decides, with the bytes still there."""
    case = Case(monkeypatch)
    await case.start()
    damaged = bytes(case.store.documents["plan.json"])[:100]
    case.store.documents["plan.json"] = damaged
    with pytest.raises(PlanCorruptError) as refused:
        await case.start(earlier="resume")
    assert refused.value.exit_code == 4
    assert case.store.documents["plan.json"] == damaged
    await case.start(earlier="fresh")
    kept = [key for key, data in case.store.documents.items() if "/replaced/" in key and bytes(data) == damaged]
    assert kept


@clause("PLAN-22")
@pytest.mark.parametrize("journal", [None, b"", b"no journal\n"])
@pytest.mark.parametrize("left", ["events", "results", "steps"])
async def test_a_lost_journal_is_not_taken_for_an_empty_one(
    journal: bytes | None, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was done stands in it: going on without it would silently do all of it again."""
    case = Case(monkeypatch)

    @module
    async def walk(ctx: Context) -> None:
        if left == "steps":
            await ctx.step("one", lambda: 1)

    await case.start(case.pipeline(walk))
    documents = case.store.documents
    del documents["plan.journal"]
    if journal is not None:
        documents["plan.journal"] = bytearray(journal)
    folders = {"events": "runs/", "results": "results", "steps": "steps/"}
    for key in [key for key in documents if key.startswith(("runs/", "results", "steps/", "cursors/"))]:
        if not key.startswith(folders[left]):
            del documents[key]
    before = dict(documents)

    with pytest.raises(PlanCorruptError, match="journal"):
        await case.start(case.pipeline(walk), earlier="resume")
    assert dict(documents) == before
    await case.start(case.pipeline(walk), earlier="fresh")
    assert "good" in case.entered


@clause("PLAN-20", "PLAN-22")
async def test_a_start_that_was_killed_before_its_journal_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was done yet, and nothing shows that anything was."""
    case = Case(monkeypatch)
    await case.start()
    for key in [key for key in case.store.documents if key != "plan.json"]:
        del case.store.documents[key]

    await case.start(earlier="resume")

    assert "good" in case.entered


@clause("PLAN-39")
async def test_files_of_runs_never_steer_a_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    """History may be deleted or forged: the plan decides."""
    case = Case(monkeypatch)
    await case.start()
    for key in [key for key in case.store.documents if key.startswith("runs/")]:
        case.store.documents[key] = b'{"status": "succeeded"}'
    case.bad.clear()
    await case.start(earlier="resume")
    assert case.entered == {"broken", "behind", "clean"}


@clause("MOD-04")
def test_a_pipeline_name_that_is_too_long_is_told_the_limit() -> None:
    """Three hundred letters are all allowed ones: a text that lists the letters alone explains nothing."""
    with pytest.raises(DeclarationError, match="up to 120 characters"):
        Pipeline("p" * 300, [])
