"""Which task a worker gets: buckets by requirement, sorted by the order of claims (COORD-C31, C32, C46)."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from towline.coordination.ledger.state import Bucket, TaskRow
from towline.coordination.signals import Signal
from towline.errors.coordination import TooManyRequirementsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from towline.coordination.ledger.state import LedgerState, Place, SessionRow, Step
    from towline.coordination.operations import Enqueue, Withdraw
    from towline.coordination.records import Assignment, Clauses

BUCKET_LIMIT = 256
"""Distinct requirements of one run (COORD-R05)."""

AVOID_DEPTH = 8
"""How many entries of a bucket a claim looks at to pass over what this worker lost lately (COORD-C46)."""


def fits(clauses: Clauses, capabilities: Sequence[str]) -> bool:
    """Say whether every clause shares a name with the capabilities (COORD-C21)."""
    return all(any(name in capabilities for name in clause) for clause in clauses)


def bucket_key(clauses: Clauses, always_run: bool) -> str:
    """Return the canonical text of a requirement, by which buckets are told apart."""
    return "&".join("|".join(clause) for clause in clauses) + ("!" if always_run else "")


def enqueue(step: Step, operation: Enqueue) -> tuple[bool, ...]:
    """Queue each task once, in order; entries of a batch are decided alone (COORD-C36)."""
    step.require_master(operation.owner_epoch)
    _check_bucket_count(step.state, operation.assignments)
    queued = tuple(_enqueue_one(step, assignment) for assignment in operation.assignments)
    if any(queued):
        step.raise_work_version()
    return queued


def _check_bucket_count(state: LedgerState, assignments: Iterable[Assignment]) -> None:
    keys = {bucket_key(assignment.requires, assignment.always_run) for assignment in assignments}
    count = len(state.bucket_numbers.keys() | keys)
    if count > BUCKET_LIMIT:
        raise TooManyRequirementsError(count, BUCKET_LIMIT)


def _enqueue_one(step: Step, assignment: Assignment) -> bool:
    state, task_id = step.state, assignment.task_id
    row = state.tasks.get(task_id)
    if task_id in state.outcomes or (row is not None and row.state != "absent"):
        return False
    place = (999 - assignment.priority, -assignment.critical_path_ms, state.next_place, task_id)
    state.next_place += 1
    bucket = _bucket_number(state, assignment)
    if row is None:
        row = state.tasks[task_id] = TaskRow(
            assignment=assignment, state="queued", bucket=bucket, place=place, lost_workers=[]
        )
    row.assignment, row.bucket, row.place = assignment, bucket, place
    put_back(state, row)
    return True


def _bucket_number(state: LedgerState, assignment: Assignment) -> int:
    key = bucket_key(assignment.requires, assignment.always_run)
    number = state.bucket_numbers.get(key)
    if number is None:
        number = state.bucket_numbers[key] = len(state.buckets)
        state.buckets.append(Bucket(clauses=assignment.requires, always_run=assignment.always_run, queue=[]))
        for session in state.sessions.values():
            if fits(assignment.requires, session.capabilities):
                session.fits.append(number)
    return number


def withdraw(step: Step, operation: Withdraw) -> frozenset[str]:
    """Remove queued tasks; what is leased or final is left alone (COORD-C37)."""
    step.require_master(operation.owner_epoch)
    removed: list[str] = []
    for task_id in operation.task_ids:
        row = step.state.tasks.get(task_id)
        if row is not None and row.state == "queued":
            take_out(step.state, row)
            row.state = "absent"
            removed.append(task_id)
    return frozenset(removed)


def put_back(state: LedgerState, row: TaskRow) -> None:
    """Queue a task at its own place."""
    insort(state.buckets[row.bucket].queue, row.place)
    row.state = "queued"


def take_out(state: LedgerState, row: TaskRow) -> None:
    """Take a queued task out of its bucket; the caller sets its new state."""
    queue = state.buckets[row.bucket].queue
    del queue[bisect_left(queue, row.place)]


def best_task(step: Step, session: SessionRow) -> TaskRow | None:
    """Return the task that this worker should get, by COORD-C31, or none."""
    state = step.state
    only_always_run = state.signal is Signal.PIPELINE_FAILED
    worker_id = session.registration.worker_id
    best: tuple[tuple[int, int, int, int, int], TaskRow] | None = None
    for number in session.fits:
        bucket = state.buckets[number]
        if not bucket.queue or (only_always_run and not bucket.always_run):
            continue
        live = live_fits(state, number, step.now_ms)
        row = _head(step, bucket, worker_id, others_fit=live > 1)
        if row is None:
            continue
        rank, critical, order, _ = row.place
        key = (rank, live, -len(bucket.clauses), critical, order)
        if best is None or key < best[0]:
            best = key, row
    return None if best is None else best[1]


def live_fits(state: LedgerState, bucket: int, now_ms: int) -> int:
    """Count the live workers that fit a bucket."""
    return sum(1 for session in state.sessions.values() if bucket in session.fits and session.is_live(now_ms))


def _head(step: Step, bucket: Bucket, worker_id: str, *, others_fit: bool) -> TaskRow | None:
    """Return the first entry that the worker is not passed over for (COORD-C46)."""
    for place in _first(bucket.queue, AVOID_DEPTH if others_fit else 1):
        row = step.state.tasks[place[3]]
        if not (others_fit and row.avoid == worker_id and row.avoid_until_ms > step.now_ms):
            return row
    return None


def _first(queue: list[Place], count: int) -> list[Place]:
    return queue[:count]
