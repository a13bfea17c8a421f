"""What the ledger remembers of one run. Plain JSON-able records: a document store holds all of it (COORD-C86)."""

from __future__ import annotations

from typing import Literal

import msgspec

from towline.coordination.records import (
    Assignment,
    Clauses,
    EventBatch,
    FeedEntry,
    FeedKind,
    Lease,
    LostLease,
    OutcomeRecord,
    RunOpening,
    WorkerRegistration,
    WorkerStatus,
)
from towline.coordination.signals import Signal
from towline.errors.coordination import MasterReplacedError, RunUnknownError

Place = tuple[int, int, int, str]
"""Place in a bucket's queue: 999 - priority, -critical path, enqueue number, task id. Lower comes first (COORD-C31)."""


class TaskRow(msgspec.Struct, kw_only=True):
    """A task that was ever enqueued. ``absent``: withdrawn; its epoch and losses are kept."""

    assignment: Assignment
    state: Literal["queued", "leased", "final", "absent"]
    bucket: int
    place: Place
    last_epoch: int = 0
    lost_workers: list[str] = []
    avoid: str = ""
    avoid_until_ms: int = 0


class LeaseRow(msgspec.Struct, kw_only=True):
    """Who holds a task. ``token`` is the claim's."""

    epoch: int
    worker_id: str
    session: str
    token: str
    claimed_ms: int
    expires_ms: int


class LastClaim(msgspec.Struct, frozen=True):
    """The claim that a session made last: asked again, it is answered alike (COORD-C35)."""

    token: str
    task_id: str
    epoch: int


class SessionRow(msgspec.Struct, kw_only=True):
    """The session that a worker id belongs to. ``ended``: swept as silent, or expelled."""

    registration: WorkerRegistration
    alive_until_ms: int
    capabilities: tuple[str, ...]
    """Casefolded and sorted: a set would be stored in another order by each process."""
    fits: list[int]
    """Numbers of the buckets whose requirement the worker meets."""
    status: WorkerStatus | None = None
    final: bool = False
    ended: Literal["", "silent", "expelled"] = ""
    last_claim: LastClaim | None = None
    unknown_held: list[LostLease] = []

    def is_live(self, now_ms: int) -> bool:
        """Whether the session may be given work."""
        return not self.final and not self.ended and self.alive_until_ms > now_ms


class Bucket(msgspec.Struct, kw_only=True):
    """The queue of one requirement, always-run tasks apart. ``queue`` is sorted."""

    clauses: Clauses
    always_run: bool
    queue: list[Place] = []


class LedgerState(msgspec.Struct, kw_only=True):
    """One run. Empty until ``open_run``."""

    opening: RunOpening | None = None
    master_beat_ms: int = 0
    epoch_jumps: int = 0
    requeue_after_ms: int = 0
    signal: Signal = Signal.RUNNING
    completed: bool = False
    work_version: int = 0
    next_place: int = 1
    tasks: dict[str, TaskRow] = {}
    leases: dict[str, LeaseRow] = {}
    buckets: list[Bucket] = []
    bucket_numbers: dict[str, int] = {}
    outcomes: dict[str, OutcomeRecord] = {}
    sessions: dict[str, SessionRow] = {}
    feed: list[FeedEntry] = []
    feed_seq: int = 0
    events: list[EventBatch] = []
    events_stored: dict[str, int] = {}
    events_pending: int = 0


class Effects(msgspec.Struct):
    """What an operation did for others: which waiters to wake, and the leases to make durable before it is answered."""

    wake: list[str] = []
    claims: list[Lease] = []


WORK, SIGNAL, FEED, EVENTS = "work", "signal", "feed", "events"


def outcome_key(task_id: str) -> str:
    """The wake key of those who wait for a task's outcome."""
    return f"outcome:{task_id}"


class Step:
    """One operation being applied: the state, the moment, and what it causes."""

    __slots__ = ("effects", "now_ms", "state")

    def __init__(self, state: LedgerState, now_ms: int) -> None:
        self.state, self.now_ms = state, now_ms
        self.effects = Effects([], [])

    @property
    def run(self) -> RunOpening:
        """The opening in force.

        Raises:
            RunUnknownError: Nobody has opened the run here.
        """
        if self.state.opening is None:
            raise RunUnknownError("")
        return self.state.opening

    def require_run(self) -> None:
        """Refuse the operation when the run is not open here."""
        _ = self.run

    def require_master(self, owner_epoch: int) -> RunOpening:
        """Return the opening if it is of this master (COORD-C65)."""
        run = self.run
        if owner_epoch != run.owner_epoch:
            raise MasterReplacedError(run.run_id, owner_epoch, run.owner_epoch)
        return run

    def wake(self, key: str) -> None:
        """Wake those who wait for ``key``."""
        if key not in self.effects.wake:
            self.effects.wake.append(key)

    def raise_work_version(self) -> None:
        """Say that there may be work now, or none ever more."""
        self.state.work_version += 1
        self.wake(WORK)

    def feed(
        self,
        kind: FeedKind,
        *,
        task_id: str | None = None,
        epoch: int | None = None,
        worker_id: str | None = None,
        why: str | None = None,
    ) -> FeedEntry:
        """Append to the feed; outcomes are filled in when it is read."""
        state = self.state
        state.feed_seq += 1
        entry = FeedEntry(
            seq=state.feed_seq,
            kind=kind,
            task_id=task_id,
            epoch=epoch,
            worker_id=worker_id,
            why=why,
            at_ms=self.now_ms,
            has_events=state.events_pending > 0,
        )
        state.feed.append(entry)
        self.wake(FEED)
        return entry
