"""What the offload room tells its user: views, decisions, outcomes, counters (spec section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NewType, TypeAlias

import msgspec

from towline.offload.summary import CallExplanation, summarise

CallId = NewType("CallId", int)
"""Index of a call in its graph."""
CallNumber = NewType("CallNumber", int)
"""Number of one execution of a call; one counter per runtime, never reused."""
WorkerId = NewType("WorkerId", str)

Param: TypeAlias = (
    bool
    | int
    | float
    | str
    | bytes
    | Sequence[bool]
    | Sequence[int]
    | Sequence[float]
    | Sequence[str]
    | Sequence[bytes]
)
"""What travels with a call beside arrays: a scalar of a fixed type, or a flat list of one."""

Place: TypeAlias = Literal["auto", "local", "remote"]
OutcomeState: TypeAlias = Literal["succeeded", "failed", "timed_out", "skipped", "cancelled"]
SessionState: TypeAlias = Literal["joining", "probing", "live", "suspect", "draining", "dead", "gone"]

DeclineReason: TypeAlias = Literal[
    "not_clustered",
    "host_only",
    "place_local",
    "below_min_bytes",
    "unregistered_buffer",
    "dtype_unsupported",
    "no_live_worker",
    "kernel_unsupported",
    "numeric_mismatch",
    "no_memory",
    "all_busy",
    "local_faster",
    "pinned_local",
    "policy_declined",
    "policy_error",
]

WARNED_REASONS = frozenset(
    {"kernel_unsupported", "unregistered_buffer", "numeric_mismatch", "policy_error", "dtype_unsupported"}
)
"""Reasons that look like a mistake: warned about once per kernel (OFF-954)."""


class Decline(msgspec.Struct, frozen=True):
    """Why a call stays in this process. A policy may give a reason of its own."""

    reason: str
    detail: str = ""


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """What the master knows of one worker. Seconds and bytes; 0 where nothing was measured or told."""

    worker: WorkerId
    session: int = 0
    state: SessionState = "live"
    kernels: tuple[str, ...] = ()
    host_id: str = ""
    slots: int = 1
    running: int = 0
    queued: int = 0
    in_flight: int = 0
    mem_free: int = 0
    mem_total: int = 0
    cache_bytes: int = 0
    rtt_s: float = 0.0
    up_bytes_per_s: float = 0.0
    down_bytes_per_s: float = 0.0
    load: float = 0.0
    backlog_s: float = 0.0
    recent_failures: int = 0
    last_seen_at: float = 0.0
    resident: int = 0
    devices: tuple[str, ...] = ("cpu",)
    numeric: Mapping[str, str] = {}
    shm: str = "off"


class CallView(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy knows of a call. ``missing_bytes`` are the inputs that each worker would have to pull."""

    call: CallNumber
    kernel: str
    payload_bytes: int
    output_bytes: int = 0
    missing_bytes: Mapping[WorkerId, int] = {}
    attempt: int = 1
    failed_on: tuple[WorkerId, ...] = ()
    expected_s: float = 0.5


class LocalView(msgspec.Struct, frozen=True, kw_only=True):
    """How busy this process is with kernels of its own."""

    slots: int
    running: int
    backlog_s: float
    expected_s: float = 0.5


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one call ended. ``ran_on`` is the worker whose bytes were committed, or ``local``."""

    id: CallId
    number: CallNumber
    state: OutcomeState
    ran_on: WorkerId | Literal["local"] = "local"
    attempts: int = 0
    queued_s: float = 0.0
    transfer_s: float = 0.0
    kernel_s: float = 0.0
    bytes_out: int = 0
    bytes_in: int = 0
    decline: Decline | None = None
    kernel: str = ""
    skipped_because: str | None = None


class GraphResult(msgspec.Struct, frozen=True, kw_only=True):
    """What ``execute`` did. ``declined`` counts the calls that stayed local, by reason."""

    calls: tuple[CallOutcome, ...]
    offloaded: int
    declined: Mapping[str, int]
    redispatched: int
    elapsed_s: float
    graph: str = "graph"
    workers: int = 0

    def summary(self) -> str:
        """Return one screen of text: how many calls went where, and why those at home stayed."""
        return summarise(self)


class OffloadStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the runtime began, and gauges of now (OFF-951).

    ``offloaded`` counts calls shipped at least once, ``declined`` calls that ran here, ``redispatched``
    dispatches after the first of a call. ``high_water`` is the largest size each bounded queue had.
    """

    offloaded: int = 0
    declined: int = 0
    declined_by_reason: Mapping[str, int] = {}
    redispatched: int = 0
    stale_write_backs: int = 0
    committed: int = 0
    local_runs: int = 0
    alive_workers: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    resent_results: int = 0
    rejected_frames: int = 0
    in_flight: int = 0
    queued: int = 0
    high_water: Mapping[str, int] = {}
    shared_refused: str | None = None


class VersionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One committed version of one buffer (OFF-512)."""

    buffer_id: int
    version: int
    made_by: CallNumber | Literal["register", "bump", "edit", "join"]
    fence: int | None = None
    worker: WorkerId | None = None
    digest: str | None = None
    committed_at: float = 0.0


class OffloadEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened (OFF-956). ``at`` is in the seconds of the runtime's loop."""

    at: float
    kind: str
    worker: WorkerId | None = None
    session: int | None = None
    call: CallNumber | None = None
    kernel: str | None = None
    detail: Mapping[str, object] = {}


class AgentEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Why an agent stopped serving, and the exit code that says so."""

    code: int
    reason: str


__all__ = [
    "WARNED_REASONS",
    "AgentEnd",
    "CallExplanation",
    "CallId",
    "CallNumber",
    "CallOutcome",
    "CallView",
    "Decline",
    "DeclineReason",
    "GraphResult",
    "LocalView",
    "OffloadEvent",
    "OffloadStats",
    "OutcomeState",
    "Param",
    "Place",
    "SessionState",
    "VersionEntry",
    "WorkerId",
    "WorkerView",
]
