"""A worker's own copy of the plan: grows as tasks come, and gets the outcomes that they need (DIST-17)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from towline.distributed.data_loss import ride_out
from towline.distributed.outcomes import outcome_of_record, payload_of
from towline.errors.root import TowlineError
from towline.pipeline.large_values import with_value
from towline.planning.live import LivePlan
from towline.planning.records import FINAL_STATES, PlanDocument, PlannedTask

if TYPE_CHECKING:
    from towline.coordination.contract import WorkerCoordinator
    from towline.coordination.records import Assignment, DependencyRef, OutcomeRecord
    from towline.pipeline.run_node import NodeFacts, RunNode

OWN_OUTCOMES = 256
"""Outcomes of this node that are kept, the latest; older ones are fetched like those of other nodes."""


def own_plan(facts: NodeFacts) -> LivePlan:
    """Return the plan that follows from the program, without what has become of its tasks elsewhere."""
    fields = facts.built.document_fields(plan_id=facts.plan_id, run_id=facts.run_id, now="", owner=None)
    return LivePlan(PlanDocument(**cast("dict[str, Any]", fields), tasks=list(facts.built.tasks)))


class WorkerPlan:
    """Finds the place of a task that comes, and brings what it depends on."""

    def __init__(self, node: RunNode, coordinator: WorkerCoordinator) -> None:
        self._node, self._coordinator = node, coordinator
        self._plan, self._values = node.plan, node.values
        self._fetched: dict[str, asyncio.Future[OutcomeRecord]] = {}
        self._own: dict[str, OutcomeRecord] = {}

    def ended_here(self, outcome: OutcomeRecord) -> None:
        """Keep the latest outcomes from here for what depends on them."""
        self._own[outcome.task_id] = outcome
        if len(self._own) > OWN_OUTCOMES:
            del self._own[next(iter(self._own))]

    async def prepare(self, assignment: Assignment) -> int:
        """Bring the dependencies of a task; returns its place.

        Raises:
            UnknownTaskError: This program has no such task, or not one that it depends on.
            CoordinationError: An outcome could not be fetched; the next task that needs it tries again.
        """
        for dependency in assignment.dependencies:
            await self._bring(dependency)
        return self._place_of(
            assignment.task_id,
            assignment.module,
            assignment.key,
            assignment.parent,
            assignment.item,
            assignment.item_digest,
        )

    async def _bring(self, dependency: DependencyRef) -> None:
        """Take a dependency's outcome, from here when it ended here or came along with a lease."""
        task_id = dependency.task_id
        position = self._place_of(
            task_id, dependency.module or "", dependency.key, dependency.parent, dependency.item, None
        )
        if position in self._values.outcomes:
            return
        if dependency.state not in FINAL_STATES:
            # A gate that blocks has run and is pending again: its outcome does not count (PLAN-51, PLAN-52).
            self._plan.document.tasks[position].reason = "blocked"
            return
        record = self._own.get(task_id)
        if record is None or record.value_ref is not None:
            record = await self._fetched_once(task_id)
        codec = self._node.kinds[self._plan.document.tasks[position].module].codec
        outcome = outcome_of_record(
            record, lambda data: None if codec is None else codec.decode(data, workdir=self._node.workdir)
        )
        self._values.keep(position, outcome, payload_of(record))

    async def _fetched_once(self, task_id: str) -> OutcomeRecord:
        """Fetch an outcome once per run; a fetch that failed is tried again by the next task (DIST-17)."""
        fetching = self._fetched.get(task_id)
        if fetching is None:
            fetching = asyncio.ensure_future(self._fetch(task_id))
            self._fetched[task_id] = fetching
        try:
            return await asyncio.shield(fetching)
        except Exception:
            self._fetched.pop(task_id, None)
            raise

    async def _fetch(self, task_id: str) -> OutcomeRecord:
        """Return an outcome; a server that lost it gets it again from the master, which opens the run anew."""

        async def nothing() -> None:
            return None

        record = self._own.get(task_id)
        if record is None:
            wait = partial(self._coordinator.wait_for_outcome, task_id)
            limit_s = self._node.facts.request.distributed.master_timeout_s
            record = await ride_out(wait, limit_s=limit_s, then=nothing)
        return await with_value(record, self._node.artifacts)

    def _place_of(
        self, task_id: str, module: str, key: str | None, parent: str | None, item: int | None, item_digest: str | None
    ) -> int:
        """Return the place of a task; a child of an ``each`` module gets its row here."""
        position = self._plan.index.get(task_id)
        tasks = self._plan.document.tasks
        if position is None:
            if parent is None or parent not in self._plan.index:
                raise UnknownTaskError(task_id)
            position = self._plan.index[task_id] = len(tasks)
            tasks.append(PlannedTask(id=task_id, module=module, key=key, parent=parent, item=item))
            join = self._plan.index[parent]
            siblings = sorted((*self._values.children_of(join), position), key=lambda one: tasks[one].item or 0)
            self._values.grown(join, siblings)
        if item_digest is not None:
            tasks[position].item_digest = item_digest
        return position

    def close(self) -> None:
        """Wait for no more outcomes; twice without harm."""
        for fetching in self._fetched.values():
            fetching.cancel()


class UnknownTaskError(TowlineError):
    """The run has a task that this program does not have: another version of it runs elsewhere."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id

    def __str__(self) -> str:
        return f"{self.task_id!r} is no task of this program. Deploy one version of it to all nodes."
