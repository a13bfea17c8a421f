"""The door through which the master of a run asks and tells the session around it (``distributed.master_host.MasterHost``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from towline.coordination.records import LeaseRef
from towline.distributed.outcomes import record_of_outcome
from towline.modules.outcomes import Succeeded
from towline.pipeline.large_values import by_reference, with_value_or_failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from towline.coordination.records import EventBatch, OutcomeRecord
    from towline.distributed.dispatch import Dispatch, Sent
    from towline.execution.taskrun import TaskRun
    from towline.modules.outcomes import Outcome
    from towline.pipeline.session import Session
    from towline.planning.records import PlannedTask


class SessionHost:
    """Answers from the plan, the values and the cache of the master's node; what it is told goes to the run's log.

    ``look_up`` asks the cache of this node for the outcome of a task.
    """

    dispatch: Dispatch
    """Set by whoever composes both: the tasks that are with workers."""

    def __init__(self, session: Session, look_up: Callable[[TaskRun], Awaitable[Outcome[Any] | None]]) -> None:
        self._session, self._node, self._look_up = session, session.node, look_up

    # -------------------------------------------------------------- outcomes

    async def outcome_record_of(self, task_id: str) -> OutcomeRecord | None:
        """Give the outcome of a task that no worker of this run has published."""
        position = self._node.plan.index[task_id]
        return await self._record_of(self._node.values.task(position), await self._node.values.load(position))

    async def cached(self, sent: Sent) -> OutcomeRecord | None:
        """Give the outcome that this node's cache has for a task (DIST-37)."""
        outcome = await self._look_up(sent.run)
        return None if outcome is None else await self._record_of(sent.run.row, outcome)

    async def _record_of(self, row: PlannedTask, outcome: Outcome[Any]) -> OutcomeRecord:
        node, facts = self._node, self._node.facts
        codec = node.kinds[row.module].codec
        payload = None
        if isinstance(outcome, Succeeded) and outcome.value is not None and codec is not None:
            payload = codec.encode(outcome.value, workdir=node.workdir)
        reference = LeaseRef(task_id=row.id, epoch=row.epoch, worker_id=row.worker or facts.worker_id)
        record = record_of_outcome(outcome, reference, payload, facts.clock.now())
        return await by_reference(record, node.artifacts, facts.run_id)

    async def with_value(self, record: OutcomeRecord) -> OutcomeRecord:
        """Give an outcome its value back, or a failure that says why there is none."""
        return await with_value_or_failed(record, self._node.artifacts)

    async def make_durable(self) -> None:
        """Return once the journal has what was heard from the feed so far."""
        await self._session.engine.make_durable()  # type: ignore[attr-defined]

    # -------------------------------------------------------------- what workers say

    def take_events(self, batch: EventBatch) -> None:
        """Write a worker's events into the run's log, under this log's numbers (DIST-60)."""
        events, shown = self._session.events, []
        for event in batch.events:
            data = event.data
            if event.kind == "progress" and event.task is not None:
                self._progress(event.task, data)
                if data.get("checkpoint"):
                    continue
            if event.kind in ("log", "output"):
                said = data.get("level") or data.get("stream") or ""
                line = f"{event.at} {event.attempt or 0} {said} {data.get('text', '')}\n"
                self._session.folder.log_line(event.task, line)
            shown.append(events.event(event.kind, event.at, data, event.task, event.epoch, event.attempt))
        if shown:
            events.emit(shown)

    def _progress(self, task_id: str, data: dict[str, Any]) -> None:
        sent = self.dispatch.sent.get(task_id)
        if sent is None:
            return
        row = sent.run.row
        row.done, row.total = data.get("done"), data.get("total")
        if data.get("checkpoint"):
            self._session.engine.checkpoint(sent.run, data["done"], data.get("total"))

    # -------------------------------------------------------------- the operator

    def note(self, sent: Sent, text: str) -> None:
        """Write it where ``towline show --task`` finds it, and into the log of events."""
        self._node.output.log(sent.run.attempt, "warning", text)

    def warn(self, text: str) -> None:
        """Tell the operator."""
        self._session.warn(text)

    def is_lost(self, error: Exception) -> None:
        """End the run: it is another master's now, or nobody can be reached (DIST-56)."""
        self._session.state_is_lost(error)
