"""What a start makes of an earlier run: the tables of planning.md 4.3, row by row, through Pipeline."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from engine.stores import Moments, World, run_state_in, tasks_in, use_store
from towline import Context, Options, Pipeline, SyncContext, module, result_of
from towline.errors.coordination import RunIdUsedError
from towline.errors.planning import OtherProgramError, ParamsChangedError, PlanMissingError, UnfinishedPlanError
from towline.errors.state import PlanCorruptError, PlanOwnedError, StateLostError
from towline.state.memory import MemoryStore
from towline.testing import SeenRun, clause, run_in_mode

pytestmark = pytest.mark.virtual_time

Resume = Literal["crash", "auto", "never"]


@dataclass(frozen=True)
class Params:
    """Parameters of the runs here."""

    region: str = "eu"


class Case:
    """One program, one state, several starts. ``broken`` fails while its name is in ``bad``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, resume: Resume = "crash", **options: Any) -> None:
        self.world, self.bad = World(), {"broken"}
        self.store = Moments(self.world)
        self.resume: Resume = resume
        self.options = Options(keep_going=True, **options)
        use_store(monkeypatch, self.store)

    def pipeline(self, *more: Any, name: str = "case") -> Pipeline[Params]:
        world, bad = self.world, self.bad

        @module
        async def good(ctx: Context) -> int:
            world.enter("good")
            return 1

        @module
        async def broken(ctx: Context) -> int:
            world.enter("broken")
            if "broken" in bad:
                raise ValueError("broken")
            return 2

        @module(after=[broken])
        async def behind(ctx: Context) -> None:
            world.enter("behind")

        @module(ignore_failure=True)
        async def shrugged(ctx: Context) -> None:
            world.enter("shrugged")
            raise ValueError("whatever")

        @module(at_most_once=True)
        async def once(ctx: Context) -> None:
            world.enter("once")
            if "once" in bad:
                raise ValueError("sent or not?")

        @module(run_if=lambda task: "condition" not in bad)
        async def wanted(ctx: Context) -> None:
            world.enter("wanted")

        @module(always_run=True, after=[broken])
        async def clean(ctx: Context) -> None:
            world.enter("clean")

        modules = [good, behind, shrugged, once, wanted, clean, *more]
        return Pipeline(name, modules, params=Params, resume=self.resume, options=self.options)

    async def start(self, pipeline: Pipeline[Params] | None = None, **request: Any) -> SeenRun:
        self.world.entered.clear()
        return await run_in_mode(pipeline or self.pipeline(), **request)

    @property
    def entered(self) -> set[str]:
        return set(self.world.entered)


ALL = {"good", "broken", "behind", "shrugged", "once", "wanted", "clean"}


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


# -------------------------------------------------------------------- without a flag


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


# -------------------------------------------------------------------- refused starts


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


# -------------------------------------------------------------------- a program that was edited


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


# -------------------------------------------------------------------- at most once, gates, each


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


# -------------------------------------------------------------------- a store that fails


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
