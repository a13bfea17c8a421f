"""What master and workers exchange (``coordination.md`` section 2). JSON on the wire and at rest.

Integers ending in ``_ms`` are milliseconds of the back end's clock; moments ending in ``_at`` are UTC text, for people.
Unknown fields are ignored, so that a record may gain optional ones (COORD-C84).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from towline.artifacts.records import ArtifactRef
from towline.coordination.signals import Signal
from towline.events.records import Event
from towline.modules.outcomes import Finding
from towline.planning.records import TaskState
from towline.serialization.errors_record import ErrorRecord

Clauses: TypeAlias = tuple[tuple[str, ...], ...]
"""A requirement in normal form (COORD-C20): AND of ORs of capability names. Empty: any worker."""

LossReason: TypeAlias = Literal["expired", "taken", "finished", "replaced", "unknown"]
"""Why a listed lease is not held: queued again, leased again, final, of a replaced session, never heard of."""

ClosedReason: TypeAlias = Literal["completed", "stopped", "replaced", "master_lost"]
FeedKind: TypeAlias = Literal["registered", "claimed", "released", "requeued", "finished", "worker_gone"]

WIRE = 1
"""The version of these records that a worker states when it registers."""


class DependencyRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A final dependency of an assignment; its value is fetched by reference (DIST-27)."""

    task_id: str
    state: TaskState
    has_value: bool = False
    parent: str | None = None
    """Of a child of an ``each`` module: its join, key and place among the items; workers have no row of it."""
    module: str | None = None
    key: str | None = None
    item: int | None = None


class Assignment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task offered to workers. ``priority``: -999 to 999, higher first; ``epoch_floor``: last epoch the plan knows."""

    task_id: str
    module: str
    key: str | None = None
    requires: Clauses = ()
    always_run: bool = False
    at_most_once: bool = False
    priority: int = 0
    critical_path_ms: int = 0
    timeout_ms: int = 0
    attempts_allowed: int = 1
    epoch_floor: int = 0
    dependencies: tuple[DependencyRef, ...] = ()
    consumes: tuple[ArtifactRef, ...] = ()
    required_artifacts: tuple[str, ...] = ()
    params_digest: str = ""
    decided_conditions: tuple[str, ...] = ()
    offload_endpoints: tuple[str, ...] = ()
    parent: str | None = None
    item: int | None = None
    item_digest: str | None = None
    attempts_before: int = 0
    """Attempts that earlier executions of the task have made; a worker counts on."""


class SessionRef(msgspec.Struct, frozen=True):
    """One life of one worker."""

    worker_id: str
    session: str


class LeaseRef(msgspec.Struct, frozen=True, kw_only=True):
    """A lease by name: the epoch is its identity and its fence."""

    task_id: str
    epoch: int
    worker_id: str


class Lease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The right to run a task until ``expires_in_ms`` have passed without renewal."""

    task_id: str
    epoch: int
    worker_id: str
    session: str
    assignment: Assignment
    claimed_at: str
    expires_in_ms: int
    brought: tuple[OutcomeRecord, ...] = ()
    """Outcomes that the task depends on, as far as the coordinator sent them along; others are asked for."""

    @property
    def ref(self) -> LeaseRef:
        """The lease by name."""
        return LeaseRef(task_id=self.task_id, epoch=self.epoch, worker_id=self.worker_id)


class Timings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the time of a task went on its worker, in milliseconds."""

    wait_ms: int = 0
    download_ms: int = 0
    body_ms: int = 0
    upload_ms: int = 0


class OutcomeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a task ended, with its value as JSON or, when it is large, as an artifact (COORD-C57)."""

    task_id: str
    epoch: int
    worker_id: str
    state: TaskState
    reason: str | None = None
    reason_text: str | None = None
    blocked_by: str | None = None
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value_ref: ArtifactRef | None = None
    error: ErrorRecord | None = None
    artifacts: tuple[ArtifactRef, ...] = ()
    findings: tuple[Finding, ...] = ()
    origin: Literal["executed", "cached", "kept"] = "executed"
    ignored: bool = False
    abandoned: bool = False
    attempts: int = 0
    started_at: str | None = None
    timings: Timings = Timings()
    published_at: str = ""
    done: int | None = None
    total: int | None = None
    """How far the task had come by its own count, with ``done``; progress events may come later than its end."""


class WorkerRegistration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who a worker is. ``session`` is random per process; ``held``: leases that it still works on after a reconnect."""

    worker_id: str
    session: str
    run_id: str
    program: str
    fingerprint: str
    wire: int = WIRE
    capabilities: tuple[str, ...] = ()
    parallelism: int = 1
    state_id: str = ""
    host: str = ""
    pid: int = 0
    library: str = ""
    registered_at: str = ""
    held: tuple[LeaseRef, ...] = ()
    offload_endpoint: str | None = None

    @property
    def ref(self) -> SessionRef:
        """The session by name."""
        return SessionRef(self.worker_id, self.session)


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says with each heartbeat; the last one (``is_final``) keeps its counters.

    ``silent_ms``: since its last sign of life, by the clock of the back end, which fills it in when statuses are read.
    """

    worker_id: str
    session: str
    in_flight: tuple[LeaseRef, ...] = ()
    is_final: bool = False
    commands: dict[str, int] = {}
    unattributed_commands: int = 0
    rss_bytes: int | None = None
    load: float | None = None
    silent_ms: int = 0


class LostLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that its former holder must drop."""

    task_id: str
    epoch: int
    why: LossReason


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker learns with each heartbeat."""

    lost: tuple[LostLease, ...] = ()
    signal: Signal = Signal.RUNNING
    completed: bool = False


class PublishReply(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an outcome counts; else the one that does."""

    accepted: bool
    final_state: TaskState | None = None
    final_epoch: int | None = None


class NoWork(msgspec.Struct, frozen=True, tag="no_work"):
    """Nothing queued that this worker can run now."""

    work_version: int


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """There will be no more work."""

    why: ClosedReason


ClaimReply: TypeAlias = Lease | NoWork | Closed


class RunOpening(msgspec.Struct, frozen=True, kw_only=True):
    """How a master opens or takes over a run. ``replaces``: the owner epoch of a master known to be dead."""

    run_id: str
    pipeline: str
    program: str
    fingerprint: str
    params: msgspec.Raw = msgspec.Raw(b"null")
    state_id: str = ""
    master_id: str
    owner_epoch: int
    replaces: int | None = None
    epoch_jumps: int = 0
    worker_timeout_ms: int = 30_000
    master_timeout_ms: int = 60_000
    master_lease_ms: int = 15_000
    requeue_limit: int = 3
    key_life_ms: int = 3_600_000
    event_backlog: int = 100_000
    plan_id: str = ""
    """Whose cursors and steps the workers go on with."""


class RunState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as a worker sees it; ``lost``: its master has been silent for the master timeout (COORD-C63)."""

    state: Literal["unknown", "running", "completed", "lost"]
    signal: Signal = Signal.RUNNING
    owner_epoch: int = 0
    master_silent_ms: int = 0
    master_timeout_ms: int = 0
    worker_timeout_ms: int = 0
    program: str | None = None
    fingerprint: str | None = None
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    state_id: str | None = None
    plan_id: str | None = None


class FeedEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened in the ledger; ``seq`` grows without gaps from 1 (COORD-C70)."""

    seq: int
    kind: FeedKind
    task_id: str | None = None
    epoch: int | None = None
    worker_id: str | None = None
    outcome: OutcomeRecord | None = None
    why: str | None = None
    at_ms: int = 0
    has_events: bool = True
    """Whether workers' events were waiting for the master just then; a store that cannot tell says yes."""


class EventBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one worker on their way to the master's log. ``base``: highest ``n`` that the sender no longer has."""

    worker_id: str
    session: str
    run_id: str
    owner_epoch: int
    base: int = 0
    events: tuple[Event, ...] = ()


class EventsReply(msgspec.Struct, frozen=True, kw_only=True):
    """``acked``: the highest ``n`` of the session that is stored without a gap (COORD-C71)."""

    acked: int
    gap: bool = False
    superseded: bool = False


class MasterEndpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a master can be reached; ``token`` only when the master made it up itself (COORD-H29)."""

    schema: int = 1
    run_id: str
    program: str
    urls: tuple[str, ...]
    token: str | None = None
    owner_epoch: int
    expires_at: str


class RunCleanupContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a store is told when the master removes the data of a run (DIST-70)."""

    run_id: str
    pipeline: str
    outcome: Literal["succeeded", "failed", "blocked", "cancelled"]
    deadline_s: float
