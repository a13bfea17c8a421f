"""Before anything runs: take the state, decide what to do with an earlier plan, make the plan durable."""

from __future__ import annotations

import os
import platform
import random
import sys
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from towline.clock import moment
from towline.errors.run import RequirementsError
from towline.execution.node import Node, known_skips
from towline.identity import new_run_id
from towline.modules.outcomes import Outcome, Reason, Skipped
from towline.pipeline.durations import Earlier, earlier_runs
from towline.pipeline.found import look
from towline.pipeline.lost_artifacts import with_lost_artifacts
from towline.pipeline.plan_start import PlanStart, selected
from towline.pipeline.run_files import FolderRunFiles, RunFiles
from towline.pipeline.stores import artifact_store, history_root, note_state, open_state, state_id
from towline.planning.deciding import UNENDED, Wanted, decide
from towline.planning.live import LivePlan
from towline.planning.records import PlanOwner
from towline.state.cleaning import has_events
from towline.state.planfile import PlanFile
from towline.state.store import RETRY_LIMIT_S, Fence, Owner, Ownership, StateStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from towline.clock import Clock
    from towline.execution.run_request import RunRequest
    from towline.pipeline.program import Program
    from towline.planning.built import BuiltPlan
    from towline.planning.records import PlannedTask
    from towline.planning.selection import Selection


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
    earlier: Earlier
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
    stop_hearing = _hear_outages(request.greet)
    try:
        return await _take(store, program, request, built, skips, clock)
    except BaseException:
        await store.close()
        raise
    finally:
        stop_hearing()


def _hear_outages(tell: Callable[[str], None] | None) -> Callable[[], None]:
    """Say that a server does not answer while the state is opened; returns what ends that."""
    if tell is None or "towline.access.outages" not in sys.modules:  # whoever connects to a server has loaded it
        return lambda: None
    from towline.pipeline.outages import START_ENDS, tell_outages

    return tell_outages(tell, RETRY_LIMIT_S, START_ENDS)


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
        start = PlanStart(store, plan_file, ownership, built, request, run_id, holder, clock.now())
        announcements: list[tuple[str, dict[str, Any]]] = []
        resumed_from = None
        if decision.action == "build":
            live = await start.new_plan(decision)
        else:
            assert plan is not None
            resumed_from = plan.document.run_id
            live, announcements = await start.go_on(decision, found, plan)
        selection = selected(live.document.tasks, built, request)
        trouble = note_state(program, request, run_id)
        return OpenedPlan(
            plan=live,
            plan_file=plan_file,
            store=store,
            ownership=ownership,
            run_id=run_id,
            owner_id=name,
            words=decision.words,
            resumed_from=resumed_from,
            announcements=announcements,
            warnings=[trouble] if trouble else [],
            local_root=root,
            run_files=run_files,
            state_id=await state_id(store),
            earlier=earlier_runs(root, clock.now()) if root is not None else Earlier(),
            selection=selection.chosen,
            decisions=skips | _left_out(selection, live.document.tasks),
        )
    except BaseException:
        await ownership.release()
        raise


def _left_out(selection: Selection, rows: Sequence[PlannedTask]) -> dict[int, Outcome[Any]]:
    """Return the outcome of each task that ``--skip`` names, by its place."""
    reason = Reason(code="deselected", text="left out by --skip")
    return {place: Skipped(task_id=rows[place].id, reason=reason) for place in selection.deselected}
