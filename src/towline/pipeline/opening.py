"""Before anything runs: take the state, decide what to do with an earlier plan, make the plan durable."""

from __future__ import annotations

import os
import platform
import random
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from towline.clock import moment
from towline.errors.run import RequirementsError
from towline.execution.node import Node, known_skips
from towline.identity import new_run_id
from towline.modules.outcomes import Outcome, Reason, Skipped
from towline.pipeline.durations import estimates_of
from towline.pipeline.found import look
from towline.pipeline.lost_artifacts import with_lost_artifacts
from towline.pipeline.run_files import FolderRunFiles, RunFiles
from towline.pipeline.stores import artifact_store, history_root, open_state, state_id
from towline.planning.deciding import UNENDED, Wanted, decide
from towline.planning.document import encode_slices
from towline.planning.live import LivePlan
from towline.planning.records import PlanDocument, PlanOwner, ReconcileRecord
from towline.planning.selection import Choice, select
from towline.state.cleaning import archive, drop_older_documents, drop_task, has_events
from towline.state.planfile import PlanFile
from towline.state.store import Fence, Owner, Ownership, StateStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from towline.clock import Clock
    from towline.execution.run_request import RunRequest
    from towline.pipeline.program import Program
    from towline.planning.built import BuiltPlan
    from towline.planning.deciding import Decision, Found
    from towline.planning.reconcile import Reconciled
    from towline.planning.records import PlannedTask
    from towline.planning.resume import Carried
    from towline.planning.selection import Selection

IDS_SHOWN = 1_000
"""Most ids of one class in a ``reconciled`` event (``planning.md`` section 2)."""


class OpenedPlan(msgspec.Struct, kw_only=True):
    """A durable plan that is ours, and everything that was decided on the way to it."""

    plan: LivePlan
    plan_file: PlanFile
    store: StateStore
    ownership: Ownership
    run_id: str
    owner_id: str
    words: str
    """What the start did with an earlier plan, and why: the first line of the run."""
    resumed_from: str | None = None
    announcements: list[tuple[str, dict[str, Any]]] = []
    warnings: list[str] = []
    local_root: Path | None = None
    """The folder of this machine where reports and logs lie."""
    run_files: RunFiles
    """Where logs and events are written as they come."""
    state_id: str = ""
    """What names the state alike on every machine (DIST-34)."""
    estimates: Mapping[str, float] = {}
    selection: Container[int] | None = None
    decisions: Mapping[int, Outcome[Any]] = {}

    def decided(self, position: int) -> Outcome[Any] | None:
        """What was decided about a task before the run: a skip, or nothing."""
        return self.decisions.get(position)

    def append_for(self, run_id: str) -> Callable[[str, bytes], Awaitable[None]]:
        """Give the run's folder its way into the store."""
        fence = Fence(self.ownership.epoch)

        async def append(name: str, data: bytes) -> None:
            await self.run_files.append(f"runs/{run_id}/{name}", data, fence)

        return append

    async def close(self) -> None:
        """Give everything back."""
        await self.plan_file.close()
        await self.ownership.release()
        await self.store.close()


async def open_run(program: Program, request: RunRequest, built: BuiltPlan, params: Any, clock: Clock) -> OpenedPlan:
    """Open the state of a program for one run, and store its plan.

    Raises:
        PlanOwnedError: Another run owns the state; nothing was written.
        TowlineError: See ``planning.deciding.decide``.
    """
    root = request.workdir or Path.cwd()
    node = Node(params, root, os.environ, request.capabilities)
    _check_requirements(request, node)
    skips = known_skips(built, node, is_routed=request.distributed is not None)
    store = open_state(program, request, clock)
    try:
        return await _take(store, program, request, built, skips, clock)
    except BaseException:
        await store.close()
        raise


def _check_requirements(request: RunRequest, node: Node) -> None:
    """Refuse a run whose ``Options.require`` does not hold, all of them together (RUN-11)."""
    unmet = []
    for check in request.options.require:
        words = check.__name__ if callable(check) else check.words
        try:
            holds = check() if callable(check) else check.holds(node)
        except Exception as error:  # noqa: BLE001 - a check that cannot be told is unmet, and says why
            unmet.append(f"{words} cannot be told: {error}")
            continue
        if not holds:
            unmet.append(f"{words} does not hold")
    if unmet:
        raise RequirementsError(tuple(unmet))


async def _take(
    store: StateStore,
    program: Program,
    request: RunRequest,
    built: BuiltPlan,
    skips: dict[int, Outcome[Any]],
    clock: Clock,
) -> OpenedPlan:
    at = moment(clock.now())
    run_id = request.run_id or new_run_id(clock.now(), random.Random())
    name = f"m-{os.getpid():x}"
    owner = Owner(id=name, host=platform.node(), pid=os.getpid(), run_id=run_id, since=at)
    ownership = await store.acquire(owner)
    root = history_root(program, request)
    run_files: RunFiles = store if root is None or os.path.isabs(store.name) else FolderRunFiles(root)
    try:
        plan_file = PlanFile(store, ownership)
        may_resume = request.earlier == "resume" or program.resume == "auto"
        found, plan, records = await look(store, plan_file, may_resume=may_resume)
        found = await with_lost_artifacts(found, built, artifact_store(program, request, store))
        if request.run_id is not None:
            found = msgspec.structs.replace(found, run_seen=await has_events(store, run_id))
        wanted = Wanted(
            program=program.id,
            run_id=run_id,
            params_digest=built.params_digest,
            param_digests=built.param_digests,
            graph_digest=built.graph_digest,
            flag=request.earlier,
            option=program.resume,
            failed=request.failed or "default",
        )
        decision = decide(found, wanted)
        if plan is not None and plan.document.run_state in UNENDED:
            from towline.pipeline.catch_up import log_missing_transitions

            await log_missing_transitions(run_files, ownership.epoch, name, plan.document, records)
        holder = PlanOwner(id=name, host=owner.host, pid=owner.pid, epoch=ownership.epoch, since=at)
        opening = _Opening(store, plan_file, ownership, built, request, run_id, holder, clock.now())
        opening.root, opening.run_files = root, run_files
        opened = await opening.carry_out(decision, found, plan, skips)
    except BaseException:
        await ownership.release()
        raise
    return opened


class _Opening:
    """Carries out what was decided: every write that precedes a run."""

    def __init__(
        self,
        store: StateStore,
        plan_file: PlanFile,
        ownership: Ownership,
        built: BuiltPlan,
        request: RunRequest,
        run_id: str,
        holder: PlanOwner,
        now: float,
    ) -> None:
        self._store, self._file, self._ownership = store, plan_file, ownership
        self._built, self._request, self._run_id = built, request, run_id
        self._holder, self._now, self._at = holder, now, moment(now)
        self.root: Path | None = None
        self.run_files: RunFiles = store

    async def carry_out(
        self, decision: Decision, found: Found, plan: LivePlan | None, skips: dict[int, Outcome[Any]]
    ) -> OpenedPlan:
        if decision.action == "build":
            live = await self._new_plan(decision)
            announcements: list[tuple[str, dict[str, Any]]] = []
        else:
            assert plan is not None
            live, announcements = await self._go_on(decision, found, plan)
        selection = self._select(live.document.tasks)
        decisions = dict(skips)
        for place in selection.deselected:
            reason = Reason(code="deselected", text="left out by --skip")
            decisions[place] = Skipped(task_id=live.document.tasks[place].id, reason=reason)
        return OpenedPlan(
            plan=live,
            plan_file=self._file,
            store=self._store,
            ownership=self._ownership,
            run_id=self._run_id,
            owner_id=self._holder.id,
            words=decision.words,
            resumed_from=plan.document.run_id if decision.action != "build" and plan else None,
            announcements=announcements,
            local_root=self.root,
            run_files=self.run_files,
            state_id=await state_id(self._store),
            estimates=estimates_of(self.root, self._now) if self.root is not None else {},
            selection=selection.chosen,
            decisions=decisions,
        )

    def _select(self, rows: Sequence[PlannedTask]) -> Selection:
        request = self._request
        choice = Choice(
            modules=request.modules, skips=request.skip, categories=request.categories, phases=request.phases
        )
        return select(rows, self._built.specs, self._built.phases, choice)

    def _check_selection(self, rows: Sequence[PlannedTask]) -> None:
        """Refuse a mistyped name while the earlier plan still stands: a typo must not replace it (CLI-02)."""
        request = self._request
        if request.modules or request.skip or request.categories or request.phases:
            self._select(rows)

    async def _new_plan(self, decision: Decision) -> LivePlan:
        """Store a new plan, then drop what belongs to older ones (PLAN-30)."""
        self._check_selection(self._built.tasks)
        if decision.archive:
            await archive(self._store, self._run_id, plan=True)
        # The second half grows as well: a target outlives a state that was deleted, and keeps its plan ids (CUR-12).
        plan_id = f"{self._ownership.epoch:08d}-{int(self._now) & 0xFFFFFFFF:08x}"
        fields: dict[str, Any] = self._built.document_fields(
            plan_id=plan_id, run_id=self._run_id, now=self._at, owner=self._holder
        )
        document = PlanDocument(**fields, tasks=list(self._built.tasks), run_state="running", generation=1)
        await self._write(document)
        if decision.remove:
            await drop_older_documents(self._store, plan_id)
            await self._file.results.compact((), force=True)
        return LivePlan(document)

    async def _go_on(
        self, decision: Decision, found: Found, plan: LivePlan
    ) -> tuple[LivePlan, list[tuple[str, dict[str, Any]]]]:
        """Carry the rows of an earlier plan into this run (PLAN-29, PLAN-34)."""
        # A first run, the one whose start a person waits for most often, needs neither.
        from towline.planning.reconcile import reconcile
        from towline.planning.resume import carry_on, unstored_and_needed

        earlier = plan.snapshot()
        rows, classes = reconcile(earlier.tasks, self._built)
        failed = self._request.failed or "default"
        missing = found.missing | unstored_and_needed(rows, failed)
        carried = carry_on(rows, failed, missing)
        self._check_selection(rows)
        document = msgspec.structs.replace(
            earlier,
            graph_digest=self._built.graph_digest,
            phases=self._built.phases,
            generation=earlier.generation + 1,
            owner=self._holder,
            run_id=self._run_id,
            run_state="running",
            updated_at=self._at,
            tasks=rows,
        )
        dropped = [*classes.dropped, *carried.started_over]
        if dropped:
            await archive(self._store, self._run_id, dropped, plan=True)
            for task in dropped:
                await drop_task(self._store, task, result=False)
        await self._write(document)
        live = LivePlan(document)
        if decision.action != "reconcile" and not carried.reset:
            return live, []
        await self._record_reconciled(live, classes, carried)
        return live, [("reconciled", _shown(classes, carried))]

    async def _record_reconciled(self, live: LivePlan, classes: Reconciled, carried: Carried) -> None:
        """Keep the outcome of a reconcile as one journal record (PLAN-35)."""
        seq = live.document.applied_seq + 1
        record = ReconcileRecord(
            seq=seq,
            at=self._at,
            code_changed=tuple(classes.code_changed),
            added=tuple(classes.added),
            removed=tuple(classes.removed),
            changed=tuple(classes.changed),
            stale=tuple(classes.stale),
            reset=tuple(carried.reset),
        )
        waiting = self._file.append([record])
        if waiting is not None:
            await waiting
        live.document.applied_seq = seq

    async def _write(self, document: PlanDocument) -> None:
        await self._file.write_snapshot(
            encode_slices(document),
            generation=document.generation,
            plan_id=document.plan_id,
            owner_epoch=self._ownership.epoch,
        )


def _shown(classes: Reconciled, carried: Carried) -> dict[str, Any]:
    """Each class with its count, its ids cut at 1,000."""
    lists = {
        "kept": classes.kept,
        "code_changed": classes.code_changed,
        "added": classes.added,
        "removed": classes.removed,
        "changed": classes.changed,
        "stale": classes.stale,
        "reset": carried.reset,
    }
    data: dict[str, Any] = {}
    for name, ids in lists.items():
        data[name] = ids[:IDS_SHOWN]
        data[f"{name}_count"] = len(ids)
    return data
