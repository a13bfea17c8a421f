"""Every write that precedes a run: a new plan in the place of older ones, or an earlier plan taken on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.clock import moment
from towline.planning.document import encode_slices
from towline.planning.live import LivePlan
from towline.planning.records import PlanDocument, PlanOwner, ReconcileRecord
from towline.planning.selection import Choice, select
from towline.state.cleaning import archive, drop_older_documents, drop_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.execution.run_request import RunRequest
    from towline.planning.built import BuiltPlan
    from towline.planning.deciding import Decision, Found
    from towline.planning.reconcile import Reconciled
    from towline.planning.records import PlannedTask
    from towline.planning.resume import Carried
    from towline.planning.selection import Selection
    from towline.state.planfile import PlanFile
    from towline.state.store import Ownership, StateStore

IDS_SHOWN = 1_000
"""Most ids of one class in a ``reconciled`` event (``planning.md`` section 2)."""


class PlanStart:
    """Carries out what was decided of an earlier plan. ``now``: when the run began, in wall time."""

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

    def _check_selection(self, rows: Sequence[PlannedTask]) -> None:
        """Refuse a mistyped name while the earlier plan still stands: a typo must not replace it (CLI-02)."""
        request = self._request
        if request.modules or request.skip or request.categories or request.phases:
            selected(rows, self._built, request)

    async def new_plan(self, decision: Decision) -> LivePlan:
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

    async def go_on(
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


def selected(rows: Sequence[PlannedTask], built: BuiltPlan, request: RunRequest) -> Selection:
    """Find what of a plan the request wants to run (PLAN-48).

    Raises:
        SelectionError: A name is in no task of the plan.
    """
    choice = Choice(modules=request.modules, skips=request.skip, categories=request.categories, phases=request.phases)
    return select(rows, built.specs, built.phases, choice)


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
