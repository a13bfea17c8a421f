"""After the run: the report, and what is kept of it for later runs (REP-01 to 05)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from towline.clock import moment
from towline.execution.report import (
    EXIT_CODES,
    FailureReport,
    RunReport,
    TaskReport,
    here,
    peak_and_mean,
)
from towline.modules.outcomes import Failed, Outcome, Succeeded, TimedOut
from towline.modules.reference import spec_of
from towline.pipeline.durations import forget_old_runs, log_tail, write_report
from towline.pipeline.stores import artifacts_server
from towline.planning.nesting import counted
from towline.serialization.error_text import format_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from towline.execution.offload_counts import OffloadCounts
    from towline.modules.outcomes import Finding
    from towline.pipeline.durations import ReportHead
    from towline.pipeline.session import Session
    from towline.planning.records import PlannedTask
    from towline.serialization.errors_record import ErrorRecord


async def finished_report(session: Session, status: str, started_at: float, duration_s: float) -> RunReport:
    """Describe how a run ended, from the plan's rows and the outcomes of this process."""
    document = session.opened.plan.document
    rows = document.tasks
    host, python, ci = here()
    root = session.opened.local_root
    earlier = session.opened.earlier
    findings: list[Finding] = []
    spans: list[tuple[float, float]] = []
    reports = []
    outcomes, commands = session.node.values.outcomes, session.node.commands
    offload = session.offload_counts
    for position, row in enumerate(rows):
        outcome = outcomes.get(position)
        if outcome is not None:
            findings += outcome.findings
            if outcome.started_at is not None:
                spans.append((outcome.started_at, outcome.finished_at))
        reports.append(
            _task_report(row, outcome, commands.get(row.id, 0), earlier.took.get(row.id), offload.get(row.id))
        )
    findings += [finding for found in session.ended_tasks.blocked_findings.values() for finding in found]
    counts = Counter(row.state for row in counted(rows))
    peak, mean = peak_and_mean(spans, duration_s)
    busy = sum(end - start for start, end in spans)
    metrics: dict[str, float] = {
        "task_seconds": round(busy, 6),
        "parallelism": round(busy / duration_s, 3) if duration_s else 0.0,
        "peak": peak,
        "mean": round(mean, 3),
        "cache_hits": sum(1 for one in reports if one.origin == "cached"),
        "retries": session.node.retry_count,
        "requeues": session.requeue_count,
    }
    code = EXIT_CODES[status] if status != "cancelled" else session.early_end.exit_code
    report = RunReport(
        run_id=session.facts.run_id,
        pipeline=document.pipeline,
        program=document.program,
        params_digest=document.params_digest,
        status=status,  # type: ignore[arg-type]
        exit_code=code,
        started_at=moment(started_at),
        finished_at=moment(session.clock.now()),
        duration_s=round(duration_s, 6),
        host=host,
        python=python,
        ci=ci,
        previous=earlier.previous,
        counts=dict(sorted(counts.items())),
        metrics=metrics,
        failures=_failures(session, rows, root),
        findings=tuple(findings),
        tasks=tuple(reports),
        commands=sum(session.node.commands.values()),
        warnings=tuple(session.warnings),
        artifacts_at=artifacts_server(session.facts.program, session.facts.request),
    )
    return _kept(session, report, root, earlier.heads).with_values(_finder(session))


def _kept(session: Session, report: RunReport, root: Path | None, heads: Sequence[ReportHead]) -> RunReport:
    """Write the report where it belongs; trouble is a warning and changes no outcome (REP-03)."""
    places = [] if root is None else [root / "runs" / report.run_id]
    path = ""
    try:
        for folder in places:
            path = write_report(folder, report)
        if root is not None:
            forget_old_runs(root, report.run_id, heads)
        if session.request.report:
            wanted = Path(session.request.report)
            wanted.parent.mkdir(parents=True, exist_ok=True)
            wanted.write_bytes(msgspec.json.encode(report))
    except OSError as error:
        session.warnings.append(f"the report could not be written: {error}")
        report = msgspec.structs.replace(report, warnings=tuple(session.warnings))
    return msgspec.structs.replace(report, path=path)


def _task_report(
    row: PlannedTask,
    outcome: Outcome[Any] | None,
    commands: int,
    previous_s: float | None,
    offload: OffloadCounts | None,
) -> TaskReport:
    duration = None
    if outcome is not None and outcome.started_at is not None:
        duration = round(outcome.finished_at - outcome.started_at, 6)
    origin, abandoned = None, False
    if type(outcome) is Succeeded:
        origin = outcome.origin
    elif outcome is not None:
        abandoned = getattr(outcome, "abandoned", False)
    if origin is None and row.state == "succeeded" and not row.join:
        origin = "kept"
    # Up to 15 keywords are cheap, more cost 1 µs for each task: of most there is nothing else to say.
    report = TaskReport(
        id=row.id,
        module=row.module,
        key=row.key,
        state=row.state,
        origin=origin,
        attempts=row.attempts,
        worker_id=row.worker,
        duration_s=duration,
        previous_s=previous_s,
        started_at=row.started_at,
        finished_at=row.finished_at,
        done=row.done,
        total=row.total,
    )
    if row.state == "succeeded" and not (row.gate or row.artifacts or commands or offload is not None):
        return report
    return msgspec.structs.replace(
        report,
        reason=row.reason,
        reason_text=row.reason_text,
        blocked_by=row.blocked_by,
        gate=row.gate,
        ignored=row.ignored,
        abandoned=abandoned,
        commands=commands,
        offload=offload,
        artifacts=row.artifacts or (),
        error=f"{row.error.type.rpartition('.')[2]}: {row.error.text}" if row.error else None,
    )


def _failures(session: Session, rows: list[PlannedTask], root: Path | None) -> tuple[FailureReport, ...]:
    """The failures that were not ignored, in journal order: the root first (RUN-49)."""
    mask = session.node.masker.mask
    failures: list[FailureReport] = []
    for position in session.ended_tasks.failed:
        outcome = session.outcome_of(position)
        if not isinstance(outcome, Failed | TimedOut) or outcome.ignored:
            continue
        error = outcome.error
        failures.append(
            FailureReport(
                task=outcome.task_id,
                state=rows[position].state,
                error_type=error.type_name,
                text=mask(error.text),
                traceback=mask(_whole_traceback(error)),
                attempt=outcome.attempts,
                worker_id=outcome.worker_id,
                notes=tuple(mask(note) for note in error.notes),
                log_tail=(
                    log_tail(root / "runs" / session.facts.run_id, outcome.task_id)
                    if root is not None and not failures
                    else ()
                ),
            )
        )
    return tuple(failures)


def _whole_traceback(error: ErrorRecord) -> str:
    """The frames of an error; with a cause or group members, the whole chain as Python shows it (SER-12)."""
    is_alone = error.cause is None and not error.members and not (error.context is not None and error.context_shown)
    return error.traceback if is_alone else format_record(error)


def _finder(session: Session) -> Callable[[Any], Any]:
    """Make what ``report.outcome_of`` asks: outcomes by module, those kept from earlier runs included."""

    def find(module: Any) -> Any:
        spec = spec_of(module)
        places = session.node.values.tasks_of(spec.name)
        if not places and not spec.is_expanded:
            raise LookupError(f"{spec.name} is not in the plan of {session.facts.run_id}")
        outcomes = [session.node.values.outcome(place) for place in places]
        return outcomes if spec.is_expanded else outcomes[0]

    return find
