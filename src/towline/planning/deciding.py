"""What a start does with what it finds in the state root: the first table of ``planning.md`` 4.3, from the top. Pure."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from towline.errors.coordination import ProgramMismatchError, RunIdUsedError
from towline.errors.planning import (
    OtherProgramError,
    ParamsChangedError,
    PlanMissingError,
    UnfinishedPlanError,
)
from towline.errors.state import PlanCorruptError, PlanOwnedError, SchemaTooNewError
from towline.planning.records import PlanDocument
from towline.planning.resume import FailedTasks, has_failure, tasks_left

ResumeFlag: TypeAlias = Literal["resume", "fresh"] | None
ResumeOption: TypeAlias = Literal["crash", "auto", "never"]

UNENDED = frozenset({"planning", "running", "cancelling", "blocked"})
"""Run states after which ``resume="crash"`` goes on: the run never came to an end of its own."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in the state root.

    ``owned``: a living owner has it. ``damage``: why plan or journal cannot be read; ``plan`` is ``None``
    then. ``documents`` and ``cursors_moved`` count cursors, steps and results, and cursors with a key.
    ``missing``: succeeded tasks whose result is gone (PLAN-37). ``torn``: a torn last journal line, or
    leftover temp files, were dropped. ``run_seen``: the wanted run id has left events here.
    """

    root: str
    owned: PlanOwnedError | None = None
    damage: PlanCorruptError | SchemaTooNewError | None = None
    plan: PlanDocument | None = None
    documents: int = 0
    cursors_moved: int = 0
    missing: frozenset[str] = frozenset()
    torn: bool = False
    run_seen: bool = False


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for: this program with these parameters under this run id, flags and options."""

    program: str
    run_id: str
    params_digest: str
    param_digests: dict[str, str]
    graph_digest: str
    flag: ResumeFlag = None
    option: ResumeOption = "crash"
    failed: FailedTasks = "default"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and the words for the first line of the run.

    ``build``: a new plan; ``archive``: copy the old one's bytes first; ``remove``: drop older cursors,
    steps and results once the new snapshot is stored (PLAN-30). ``resume``: go on with the same graph;
    ``reconcile``: with another one. ``adopt``: take over a run whose master is gone (PLAN-36).
    ``nothing``: all is done; leave with ``exit_code``.
    """

    action: Literal["build", "resume", "reconcile", "adopt", "nothing"]
    words: str
    archive: bool = False
    remove: bool = False
    exit_code: int = 0


def decide(found: Found, wanted: Wanted) -> Decision:
    """Decide what a start does; nothing is written before.

    Raises:
        PlanOwnedError: A living owner has the state.
        PlanMissingError: Cursors, steps or results without a plan, and no ``--fresh``.
        PlanCorruptError: Plan or journal cannot be read, and no ``--fresh``.
        SchemaTooNewError: A newer Towline wrote them; ``--fresh`` does not help (PLAN-26).
        OtherProgramError: The state is another program's, and no ``--fresh``.
        RunIdUsedError: The run id is that of a run that has ended, the latest or an older one, or ``--fresh``
            of a live one.
        ProgramMismatchError: A restarted master of that run has another graph (PLAN-36).
        ParamsChangedError: A resume with other parameters.
        UnfinishedPlanError: A new plan would throw away cursors that have moved (PLAN-31).
    """
    if found.owned is not None:
        raise found.owned
    fresh = wanted.flag == "fresh"
    if isinstance(found.damage, SchemaTooNewError):
        raise found.damage
    if found.damage is not None:
        if not fresh:
            raise found.damage
        if found.run_seen:
            raise RunIdUsedError(wanted.run_id, f"has left its events in {found.root}")
        return Decision(action="build", words="new plan: --fresh, the old one is damaged", archive=True, remove=True)
    plan = found.plan
    if found.run_seen and (plan is None or (plan.program, plan.run_id) != (wanted.program, wanted.run_id)):
        raise RunIdUsedError(wanted.run_id, f"has left its events in {found.root}")
    if plan is None:
        if not found.documents:
            return Decision(action="build", words="new plan: there is no earlier one")
        if not fresh:
            raise PlanMissingError(found.root, found.documents)
        return Decision(action="build", words="new plan: --fresh, earlier cursors are removed", remove=True)
    return _with_plan(found, plan, wanted)


def _with_plan(found: Found, plan: PlanDocument, wanted: Wanted) -> Decision:
    """Decide where a readable plan lies."""
    fresh = wanted.flag == "fresh"
    if plan.program != wanted.program and not fresh:
        raise OtherProgramError(found.root, plan.program, wanted.program)
    if plan.program == wanted.program and plan.run_id == wanted.run_id:
        if plan.run_state not in UNENDED:
            raise RunIdUsedError(wanted.run_id, f"ended {plan.run_state} at {plan.updated_at}")
        if fresh:
            raise RunIdUsedError(wanted.run_id, f"has not reached its end; it was seen last at {plan.updated_at}")
        _refuse_other_params(plan, wanted)
        if plan.graph_digest != wanted.graph_digest:
            raise ProgramMismatchError("graph", plan.graph_digest, wanted.graph_digest)
        return Decision(action="adopt", words=f"taking over run {plan.run_id}: its master is gone{_torn(found)}")
    if fresh:
        return Decision(action="build", words="new plan: --fresh", archive=True, remove=True)
    left = tasks_left(plan.tasks, wanted.failed, found.missing)
    why = _resumes_because(plan, wanted, left)
    if why is None:
        return _replace(found, plan, wanted, left)
    _refuse_other_params(plan, wanted)
    if plan.graph_digest != wanted.graph_digest:
        words = f"resuming: {why}; the program has changed since{_torn(found)}"
        return Decision(action="reconcile", words=words)
    if left:
        done = sum(1 for task in plan.tasks if not task.join) - left
        return Decision(
            action="resume",
            words=f"resuming: {why}; {left} {'task' if left == 1 else 'tasks'} left, {done} kept{_torn(found)}",
        )
    if has_failure(plan.tasks):
        return Decision(action="nothing", words=f"resuming: {why}; only kept failures are left", exit_code=1)
    return Decision(action="nothing", words=f"resuming: {why}; nothing is left to run")


def _resumes_because(plan: PlanDocument, wanted: Wanted, left: int) -> str | None:
    """Say why this start goes on with the plan; ``None`` when it wants a new one."""
    if wanted.flag == "resume":
        return "--resume"
    if wanted.option == "crash" and plan.run_state in UNENDED:
        if plan.run_state == "blocked":
            return f"run {plan.run_id} was blocked at a gate"
        return f"run {plan.run_id} did not reach its end"
    if wanted.option == "auto" and left:
        return f"run {plan.run_id} left work"
    return None


def _replace(found: Found, plan: PlanDocument, wanted: Wanted, left: int) -> Decision:
    """Start anew without a flag, unless that throws away work that has come part of the way (PLAN-31)."""
    if left and found.cursors_moved:
        raise UnfinishedPlanError(left, found.cursors_moved)
    how = "resume=never" if wanted.option == "never" else f"run {plan.run_id} ended {plan.run_state}"
    return Decision(action="build", words=f"new plan: {how}", archive=True, remove=True)


def _refuse_other_params(plan: PlanDocument, wanted: Wanted) -> None:
    if plan.params_digest == wanted.params_digest:
        return
    ours, theirs = wanted.param_digests, plan.param_digests
    raise ParamsChangedError(tuple(sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))))


def _torn(found: Found) -> str:
    return " (an unfinished last write was dropped)" if found.torn else ""
