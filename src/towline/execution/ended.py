"""From the outcome of a task to its stored result, its journal record and its event."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from towline.execution.values import ResultDocument, encode_document
from towline.modules.outcomes import Cancelled, Failed, Finding, Outcome, Skipped, Succeeded, TimedOut
from towline.planning.records import StateRecord, TaskError
from towline.serialization.frames import last_own_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.execution.scheduling import Settle
    from towline.execution.taskrun import TaskRun
    from towline.execution.values import Values
    from towline.planning.records import PlannedTask, TaskState
    from towline.serialization.errors_record import ErrorRecord
    from towline.state.results import ResultFile

TEXT_LIMIT = 4_000
"""Characters of an error text in the plan (``planning.md`` section 2)."""

STATES: dict[type, TaskState] = {
    Succeeded: "succeeded",
    Failed: "failed",
    TimedOut: "timed_out",
    Skipped: "skipped",
    Cancelled: "cancelled",
}


class EndedTasks:
    """Makes records of outcomes and keeps what later tasks need of them.

    ``mask`` removes secrets from every text that the plan or an event shows.
    """

    def __init__(self, values: Values, results: ResultFile, mask: Callable[[str], str]) -> None:
        self._values, self._results, self._mask = values, results, mask
        self._errors: list[BaseException] = []
        self.failed: list[int] = []
        """Places of failed and timed out tasks in the order of the journal."""
        self.blocked_findings: dict[int, tuple[Finding, ...]] = {}

    def _keep(self, position: int, outcome: Outcome[Any], run: TaskRun | None) -> None:
        """Remember an outcome for dependents and the report."""
        self._values.keep(position, outcome, None if run is None else run.payload)
        if not isinstance(outcome, Failed | TimedOut) or (self._values.task(position).join and not _is_own(outcome)):
            return
        self.failed.append(position)
        if not outcome.ignored:
            error = None if run is None else run.error
            self._errors.append(error if error is not None else outcome.error.rebuild())

    def root_error(self) -> BaseException | None:
        """The exception of the first failure that counts (RUN-49, RUN-53)."""
        return self._errors[0] if self._errors else None

    def record(
        self,
        next_seq: Callable[[], int],
        at: str,
        position: int,
        row: PlannedTask,
        outcome: Outcome[Any],
        run: TaskRun | None,
    ) -> tuple[StateRecord, dict[str, Any]]:
        """Keep an outcome, store the result, and describe the transition, for the journal and for whoever looks."""
        state = STATES[type(outcome)]
        if (
            type(outcome) is Succeeded
            and run is not None
            and outcome.value is None
            and not outcome.findings
            and not outcome.artifacts
        ):
            self._values.outcomes[position] = outcome
            return _plain_success(next_seq(), at, row, outcome, run)
        digest, offset = self._store(row, outcome, run)
        reason = outcome.reason
        error = self._shown(outcome.error) if isinstance(outcome, Failed | TimedOut) else None
        record = StateRecord(
            seq=next_seq(),
            at=at,
            task=row.id,
            state=state,
            reason=_code(outcome),
            reason_text=self._mask(reason.text) if reason is not None and reason.text else None,
            blocked_by=None if reason is None else reason.blocked_by,
            error=error,
            attempts=outcome.attempts if run is not None else None,
            epoch=outcome.epoch if run is not None else None,
            worker=outcome.worker_id if run is not None else None,
            findings=_counts(outcome),
            result_digest=digest,
            result_at=offset,
            unstored=isinstance(outcome, Succeeded)
            and run is not None
            and run.payload is None
            and outcome.value is not None,
            artifacts=outcome.artifacts or None,
            ignored=isinstance(outcome, Failed | TimedOut) and outcome.ignored,
            done=row.done,
            total=row.total,
        )
        self._keep(position, outcome, run)
        return record, _event_data(row, record)

    def blocked(
        self,
        next_seq: Callable[[], int],
        at: str,
        row: PlannedTask,
        outcome: Succeeded[Any],
        run: TaskRun,
    ) -> tuple[StateRecord, dict[str, Any]]:
        """Describe a gate that blocks: pending again, its findings stored and counted (PLAN-51)."""
        self.blocked_findings[run.position] = outcome.findings
        found = Counter(one.code for one in outcome.findings if one.severity == "blocking")
        listed = ", ".join(f"{code} {count}" if len(found) > 1 else code for code, count in sorted(found.items()))
        total = sum(found.values())
        text = f"{total} blocking finding{'s' if total > 1 else ''}: {listed}"
        digest, offset = self._store(row, outcome, run)
        record = StateRecord(
            seq=next_seq(),
            at=at,
            task=row.id,
            state="pending",
            reason="blocked",
            reason_text=text,
            attempts=outcome.attempts,
            epoch=outcome.epoch,
            findings=_counts(outcome),
            result_digest=digest,
            result_at=offset,
        )
        return record, _event_data(row, record)

    def held(self, seq: int, at: str, row: PlannedTask, decision: Settle) -> tuple[StateRecord, dict[str, Any]]:
        """Describe a task that waits for a blocked gate: still pending, and now it says why (PLAN-51)."""
        record = StateRecord(
            seq=seq,
            at=at,
            task=row.id,
            state="pending",
            reason=decision.code,
            reason_text=decision.text or None,
            blocked_by=decision.blocked_by,
        )
        return record, _event_data(row, record)

    def _store(self, row: PlannedTask, outcome: Outcome[Any], run: TaskRun | None) -> tuple[str | None, int | None]:
        if run is None or (run.payload is None and not outcome.findings):
            return None, None
        value = msgspec.Raw(b"null" if run.payload is None else run.payload)
        document = encode_document(ResultDocument(value=value, findings=outcome.findings))
        place = self._results.append(row.id, document)
        return place.digest, place.offset

    def _shown(self, error: ErrorRecord) -> TaskError:
        text = self._mask(error.text)[:TEXT_LIMIT]
        return TaskError(error.type_name, text, last_own_frame(error.traceback))

    def settled(self, state: TaskState, facts: dict[str, Any], *, ignored: bool = False) -> Outcome[Any]:
        """Make the outcome of a task that ends without a body."""
        from towline.serialization.errors_record import ErrorRecord

        if state == "succeeded":
            return Succeeded(None, **facts)
        if state == "skipped":
            return Skipped(**facts)
        if state == "cancelled":
            return Cancelled(**facts)
        reason = facts["reason"]
        error = ErrorRecord(type_name="TowlineError", text=reason.text or reason.code)
        kind = Failed if state == "failed" else TimedOut
        return kind(error, ignored=ignored, **facts)


def _plain_success(
    seq: int, at: str, row: PlannedTask, outcome: Outcome[Any], run: TaskRun
) -> tuple[StateRecord, dict[str, Any]]:
    """The commonest end by far: nothing to store, nothing to explain."""
    record = StateRecord(
        seq=seq,
        at=at,
        task=row.id,
        state="succeeded",
        attempts=outcome.attempts if run.tries > 1 else None,
        done=row.done,
        total=row.total,
    )
    data: dict[str, Any] = {"from": row.state, "to": "succeeded", "plan_seq": seq}
    if row.done is not None:
        data["done"], data["total"] = row.done, row.total
    return record, data


def _is_own(outcome: Failed | TimedOut) -> bool:
    """Say whether a join failed by itself, and not because one of its children did."""
    return outcome.reason is not None and outcome.reason.code == "expansion_failed"


def _code(outcome: Outcome[Any]) -> str | None:
    if type(outcome) is Succeeded:
        return "cached" if outcome.origin == "cached" else None
    return None if outcome.reason is None else outcome.reason.code


def _counts(outcome: Outcome[Any]) -> dict[str, int] | None:
    if not outcome.findings:
        return None
    return dict(sorted(Counter(one.severity for one in outcome.findings).items()))


def _event_data(row: PlannedTask, record: StateRecord) -> dict[str, Any]:
    data: dict[str, Any] = {"from": row.state, "to": record.state, "plan_seq": record.seq}
    for name in ("reason", "reason_text", "blocked_by", "worker", "done", "total"):
        value = getattr(record, name)
        if value is not None:
            data[name] = value
    if record.ignored:
        data["ignored"] = True
    if record.error is not None:
        data["error"] = {"type": record.error.type, "text": record.error.text, "where": record.error.where}
    return data
