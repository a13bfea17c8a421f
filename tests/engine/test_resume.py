"""What a start makes of an earlier run: the tables of planning.md 4.3, row by row, through Pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from engine.resume_case import ALL, Case, Resume
from engine.stores import Moments, use_store
from towline import Context, module
from towline.errors.planning import UnfinishedPlanError
from towline.testing import clause

pytestmark = pytest.mark.virtual_time


@clause("PLAN-29", "PLAN-33", "PLAN-46")
@pytest.mark.parametrize(
    ("failed", "again"),
    [
        (None, {"broken", "behind", "clean"}),
        ("retry", {"broken", "behind", "clean", "shrugged", "once"}),
        ("keep", set()),
    ],
)
async def test_what_a_resume_runs_again(failed: Any, again: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Done stays done; failed work is tried again unless told otherwise; clean-up belongs to each run that did something."""
    case = Case(monkeypatch)
    case.bad.add("once")
    first = await case.start()
    assert case.entered == ALL - {"behind"}
    assert first.status == "failed"
    case.bad.clear()
    second = await case.start(earlier="resume", failed=failed)
    assert case.entered == again
    if failed == "keep":
        assert second.status == "failed"
        assert second.states["behind"] == "skipped/dependency_failed"
    elif failed == "retry":
        assert second.states["once"] == "succeeded"
    else:
        assert second.states["once"] == "failed/error"
        assert second.report.exit_code == 1


async def test_lasting_skips_are_kept_and_the_others_decided_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition was answered; a dependency may be repaired."""
    case = Case(monkeypatch)
    case.bad.add("condition")
    await case.start()
    case.bad.clear()
    seen = await case.start(earlier="resume")
    assert seen.states["wanted"] == "skipped/condition"
    assert "behind" in case.entered


@clause("PLAN-48")
async def test_deselected_tasks_run_in_a_later_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--skip` and `--module` are about one run, not about the plan."""
    case = Case(monkeypatch)
    case.bad.clear()
    first = await case.start(skip=("good",), modules=())
    assert first.states["good"] == "skipped/deselected"
    await case.start(earlier="resume")
    assert case.entered == {"good"}
    case.world.entered.clear()
    third = await case.start(earlier="fresh", modules=("behind",))
    assert case.entered == {"broken", "behind"}
    assert third.states["good"] == "pending"
    assert third.status == "succeeded"
    await case.start(earlier="resume")
    assert case.entered == ALL - {"broken", "behind"}


@pytest.mark.parametrize(
    ("resume", "ended", "goes_on"),
    [
        ("crash", True, False),
        ("crash", False, True),
        ("auto", True, True),
        ("auto", False, True),
        ("never", True, False),
        ("never", False, False),
    ],
)
@clause("PLAN-31")
async def test_a_plain_start_goes_on_or_starts_anew(
    resume: Resume, ended: bool, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI starts over after a failure; a machine that lost power goes on; both without a flag."""
    case = Case(monkeypatch, resume=resume)
    words: list[str] = []
    await case.start()
    if not ended:
        moment = next(
            one for one in case.store.taken if b'"good","state":"succeeded"' in b"".join(one.documents.values())
        )
        case.store = Moments(case.world, moment)
        use_store(monkeypatch, case.store)
    seen = await case.start(greet=words.append)
    assert ("good" not in case.entered) is goes_on
    assert words[0].startswith("resuming" if goes_on else "new plan")
    assert seen.status == "failed"


@clause("PLAN-31")
async def test_moved_cursors_are_never_thrown_away_by_a_forgotten_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration of a night must not start over because somebody typed `run` again."""
    case = Case(monkeypatch)

    @module
    async def walk(ctx: Context) -> None:
        def key(item: int) -> int:
            return item

        cursor = await ctx.cursor(key=key)
        async for batch in cursor.batches([1, 2, 3], size=1):
            if batch[0] == 3 and "walk" in case.bad:
                raise ValueError("at three")
            case.world.entered.append(f"walk {batch[0]}")
            await cursor.commit(batch)

    case.bad.add("walk")
    await case.start(case.pipeline(walk))
    before = dict(case.store.documents)
    with pytest.raises(UnfinishedPlanError) as refused:
        await case.start(case.pipeline(walk))
    assert refused.value.exit_code == 2
    assert "--resume" in str(refused.value)
    assert dict(case.store.documents) == before
    case.bad.clear()
    await case.start(case.pipeline(walk), earlier="resume")
    assert {"walk 3"} == {one for one in case.entered if one.startswith("walk")}
    await case.start(case.pipeline(walk), earlier="fresh")
    assert {"walk 1", "walk 2", "walk 3"} <= case.entered


@clause("PLAN-30")
async def test_fresh_drops_everything_and_keeps_what_is_not_the_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--fresh` is a clean start, and history stays."""
    case = Case(monkeypatch)
    first = await case.start()
    seen = await case.start(earlier="fresh")
    assert case.entered == ALL - {"behind"}
    assert all(row.attempts <= 1 for row in seen.report.tasks)
    assert any(key.startswith(f"runs/{first.report.run_id}/") for key in case.store.documents)


@clause("RUN-46")
async def test_at_most_once_found_running_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mail was sent or not; only a person can look."""
    case = Case(monkeypatch)
    case.bad.clear()
    await case.start()
    moment = next(
        one
        for one in case.store.taken
        if b'"task":"once","state":"running"' in bytes(one.documents.get("plan.journal", b""))
    )
    case.store = Moments(case.world, moment)
    use_store(monkeypatch, case.store)
    seen = await case.start()
    assert seen.states["once"] == "failed/lease_lost"
    assert "once" not in case.entered
    assert seen.report.exit_code == 1
    seen = await case.start(earlier="resume", failed="retry")
    assert seen.states["once"] == "succeeded"
