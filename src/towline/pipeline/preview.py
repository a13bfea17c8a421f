"""``towline plan`` and ``towline check``: what a run would do, without writing or running anything (PLAN-11, CLI-11)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from towline.clock import SystemClock
from towline.errors.planning import PlanBuildError
from towline.errors.root import TowlineError
from towline.errors.state import StateError
from towline.execution.forecast import forecast
from towline.execution.node import Node, known_skips, unmet_words
from towline.modules.outcomes import Reason
from towline.modules.spec import ModuleRef
from towline.pipeline.durations import estimates_of
from towline.pipeline.found import look
from towline.pipeline.lost_artifacts import with_lost_artifacts
from towline.pipeline.module_problems import limited_threads
from towline.pipeline.module_rules import limits_of, rules_of
from towline.pipeline.stores import artifact_store, history_root, open_state, state_url
from towline.planning.deciding import Wanted, decide
from towline.planning.plan import Plan, shown_plan
from towline.planning.reconcile import reconcile
from towline.planning.records import FINAL_STATES
from towline.planning.resume import carry_on, unstored_and_needed
from towline.planning.selection import Choice, select
from towline.state.planfile import PlanFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from towline.execution.forecast import Forecast
    from towline.execution.run_request import RunRequest
    from towline.pipeline.program import Program
    from towline.planning.built import BuiltPlan
    from towline.planning.plan import Verdict
    from towline.planning.records import PlannedTask
    from towline.planning.selection import Selection


async def preview(program: Program, request: RunRequest) -> Plan:
    """Plan what a run with this request would do.

    A start that would be refused for what lies in the state is shown too, as a new plan with the refusal.

    Raises:
        TowlineError: There is no plan to show: of declarations, parameters or a damaged state.
    """
    params = program.params_for(request.params)
    built = program.build(params, request.options, must_travel=request.values_travel)
    node = Node(params, request.workdir or Path.cwd(), os.environ, request.capabilities)
    rows, reconciled, refused = await _rows(program, request, built)
    choice = Choice(modules=request.modules, skips=request.skip, categories=request.categories, phases=request.phases)
    selection = select(rows, built.specs, built.phases, choice)
    known = known_skips(built, node, is_routed=request.is_spread)
    skips = {place: outcome.reason for place, outcome in known.items() if outcome.reason is not None}
    root = history_root(program, request)
    estimates = estimates_of(root, SystemClock().now()) if root is not None else {}
    seen = forecast(
        rows,
        rules_of(built.specs),
        limits_of(request.options),
        estimates,
        selection=selection.chosen,
        skips={place: reason.text for place, reason in skips.items()},
    )
    verdicts, reasons = _verdicts(rows, built, selection, skips, seen)
    if not request.options.no_cache:
        reasons |= _asked_of_the_cache(rows, built, verdicts)
    return shown_plan(
        program.name,
        rows,
        phases=built.phases,
        decisions=verdicts,
        reasons=reasons,
        estimates=estimates,
        reconciled=reconciled,
        refused=None if refused is None else str(refused),
    )


async def _rows(
    program: Program, request: RunRequest, built: BuiltPlan
) -> tuple[Sequence[PlannedTask], dict[str, tuple[str, ...]], TowlineError | None]:
    """The rows as a start would find or make them, what became of an earlier plan, and why a run would be refused.

    The state is only read. Of a refused run the rows are those of a new plan.
    """
    url = state_url(program, request)
    is_folder = request.options.state_store is None and ":" not in url[2:]
    if is_folder and not os.path.exists(url):  # noqa: ASYNC240 - one look at a local folder
        return built.tasks, {}, None
    store = open_state(program, request, SystemClock())
    try:
        plan_file = PlanFile(store)
        found, plan, _ = await look(store, plan_file, may_resume=True)
        found = await with_lost_artifacts(found, built, artifact_store(program, request, store))
        wanted = Wanted(
            program=program.id,
            run_id=request.run_id or "",
            params_digest=built.params_digest,
            param_digests=built.param_digests,
            graph_digest=built.graph_digest,
            flag=request.earlier,
            option=program.resume,
            failed=request.failed or "default",
        )
        await plan_file.close()
        try:
            decision = decide(found, wanted)
        except StateError:
            raise
        except TowlineError as error:  # other parameters, another program, cursors that have moved: a flag is missing
            return built.tasks, {}, error
    finally:
        await store.close()
    if decision.action == "build" or plan is None:
        return built.tasks, {}, None
    rows, classes = reconcile(plan.snapshot().tasks, built)
    failed = request.failed or "default"
    carried = carry_on(rows, failed, found.missing | unstored_and_needed(rows, failed))
    if decision.action != "reconcile" and not carried.reset:
        return rows, {}, None
    names = ("changed", "stale", "added", "removed", "code_changed", "kept")
    classed = {name: tuple(getattr(classes, name)) for name in names} | {"reset": tuple(carried.reset)}
    return rows, classed, None


def _verdicts(
    rows: Sequence[PlannedTask],
    built: BuiltPlan,
    selection: Selection,
    skips: Mapping[int, Reason],
    seen: Forecast,
) -> tuple[dict[str, Verdict], dict[str, Reason]]:
    """Say of each task what is known before anything runs: kept, skip with its reason, run, or unknown.

    A condition that needs a result, or only a node can answer, is unknown; so is what depends on it by value or
    order (PLAN-11). An ``each`` runs, over however many items there will be.
    """
    verdicts: dict[str, Verdict] = {}
    reasons: dict[str, Reason] = {}
    for place, row in enumerate(rows):
        settled = seen.skipped.get(place)
        if selection.chosen is not None and place not in selection.chosen:
            verdicts[row.id] = "skip"
            reasons[row.id] = Reason(code="deselected", text="not part of this run")
        elif place in selection.deselected:
            verdicts[row.id] = "skip"
            reasons[row.id] = Reason(code="deselected", text="left out by --skip")
        elif row.state in FINAL_STATES:
            verdicts[row.id] = "kept"
        elif place in skips:
            verdicts[row.id], reasons[row.id] = "skip", skips[place]
        elif settled is not None:
            verdicts[row.id] = "skip"
            reasons[row.id] = Reason(code=settled.code, text=settled.text, blocked_by=settled.blocked_by)
        elif _is_open(row, built) or any(
            verdicts.get(one) == "unknown" and (row.edges or {}).get(one, "value") in ("value", "order")
            for one in row.depends_on
        ):
            verdicts[row.id] = "unknown"
        else:
            verdicts[row.id] = "run"
    return verdicts, reasons


def _asked_of_the_cache(
    rows: Sequence[PlannedTask], built: BuiltPlan, verdicts: Mapping[str, Verdict]
) -> dict[str, Reason]:
    """Say which tasks the cache may answer for: what counts for them is known when their turn comes (CACHE-02)."""
    reason = Reason(code="cached", text="unless the cache has it, which is asked when its turn comes")
    return {
        row.id: reason
        for row in rows
        if verdicts[row.id] == "run" and not row.join and built.specs[row.module].settings.cache is not None
    }


def _is_open(row: PlannedTask, built: BuiltPlan) -> bool:
    settings = built.specs[row.module].settings
    return any(callable(condition) for condition in (*settings.run_if, *settings.skip_if))


def problems_of(program: Program, request: RunRequest) -> tuple[list[str], list[str]]:
    """Find what is wrong without running a body, hook or condition of the user's (CLI-11).

    Returns:
        What a run would be refused for, and what is allowed but hardly meant; each sorted.
    """
    try:
        params = program.params_for(request.params)
        built = program.build(params, request.options, must_travel=request.values_travel)
    except PlanBuildError as error:
        return sorted(error.problems), []
    except TowlineError as error:
        return [str(error)], []
    node = Node(params, request.workdir or Path.cwd(), os.environ, request.capabilities)
    unmet = [] if request.is_spread else _unmet_requirements(built, node)
    limits = [
        f"{spec.name} has timeout={spec.settings.timeout_s:g} and runs in a thread, which cannot be killed: at its "
        f'timeout it is given up, and may go on working. isolation="process" ends it.'
        for spec in limited_threads(built.specs.values())
    ]
    return [], sorted([*_pairs_that_skip(built), *limits, *unmet])


def _unmet_requirements(built: BuiltPlan, node: Node) -> list[str]:
    """Warn of what this machine cannot do, which a run of it alone skips without failing (RUN-15, DIST-28)."""
    return [
        f"{spec.name} {unmet}: a run of this machine alone skips it, and what needs it, and succeeds; a run with "
        f"workers fails where no worker has it. --capability NAME declares what this machine has."
        for spec in built.specs.values()
        if (unmet := unmet_words(spec, node))
    ]


def _pairs_that_skip(built: BuiltPlan) -> list[str]:
    """Warn of results that are read of a module whose failure is ignored: the reader would be skipped (MOD-14)."""
    return [
        f"{spec.name} reads result_of({edge.to.name}), whose failure is ignored: {spec.name} would "
        f"be skipped then. Read maybe_result_of or outcome_of."
        for spec in built.specs.values()
        for edge in spec.edges
        if edge.use == "value" and isinstance(edge.to, ModuleRef) and edge.to.spec.settings.ignore_failure
    ]
