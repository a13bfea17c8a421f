"""The plan as a document: header, one row per task, journal records. All of it is JSON (``planning.md`` section 2)."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from towline.artifacts.records import ArtifactRef

TaskState: TypeAlias = Literal[
    "pending", "queued", "running", "succeeded", "failed", "timed_out", "skipped", "cancelled"
]
RunStatus: TypeAlias = Literal["planning", "running", "cancelling", "succeeded", "failed", "blocked", "cancelled"]
EdgeUse: TypeAlias = Literal["value", "order", "optional", "outcome"]

FINAL_STATES: frozenset[str] = frozenset({"succeeded", "failed", "timed_out", "skipped", "cancelled"})

SCHEMA = 1

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A number as JSON readers everywhere can hold it; others are refused with their path."""


class TaskError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error of a task as the plan shows it: masked, ``text`` cut at 4,000 characters."""

    type: str
    text: str
    where: str | None = None


class PlannedTask(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One row of the plan. Only ``planning.apply`` changes one; what leaves the engine is a copy.

    ``depends_on``: ids it waits for, sorted, without ``gates``. ``edges``: kinds other than ``value``.
    ``tier``: longest path from a root, gates included, from 0. ``attempts`` and ``epoch`` count over the
    life of the plan. ``join``: an ``each`` module, which has no body and stands for its children;
    ``source`` is its items' task; a child has ``parent``, ``item`` (its index) and ``item_digest``.
    """

    id: str
    module: str
    key: str | None = None
    phase: str | None = None
    tier: Count = 0
    depends_on: tuple[str, ...] = ()
    edges: dict[str, EdgeUse] | None = None
    gates: tuple[str, ...] | None = None
    state: TaskState = "pending"
    reason: str | None = None
    reason_text: str | None = None
    blocked_by: str | None = None
    error: TaskError | None = None
    attempts: Count = 0
    epoch: Count = 0
    worker: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    done: Count | None = None
    total: Count | None = None
    checkpoint_at: str | None = None
    findings: dict[str, Count] | None = None
    result_digest: str | None = None
    result_at: Count | None = None
    """Offset of the result's line in ``results.jsonl``; absent: it has a file of its own (STATE-12)."""
    unstored: bool = False
    """It gave a value that could not be stored: a resume that needs it runs the task again (SER-03)."""
    artifacts: tuple[ArtifactRef, ...] | None = None
    own_digest: str = ""
    closure_digest: str = ""
    code_digest: str = ""
    always_run: bool = False
    gate: bool = False
    at_most_once: bool = False
    ignored: bool = False
    join: bool = False
    source: str | None = None
    source_digest: str | None = None
    parent: str | None = None
    item: Count | None = None
    item_digest: str | None = None


class PlanOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The process that may write the plan; ``epoch`` is its fence."""

    id: str
    host: str
    pid: Count
    epoch: Count
    since: str


class PlanDocument(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``plan.json``: the snapshot.

    ``tasks`` stand in topological order, ties by id; children of ``each`` modules behind them, as they came.
    """

    schema: int = SCHEMA
    pipeline: str
    plan_id: str
    program: str
    graph_digest: str
    params_digest: str
    param_digests: dict[str, str] = {}
    generation: Count = 0
    applied_seq: Count = 0
    owner: PlanOwner | None = None
    run_id: str
    run_state: RunStatus = "planning"
    phases: tuple[str, ...] = ()
    created_at: str
    updated_at: str
    tasks: list[PlannedTask] = []

    def __post_init__(self) -> None:
        if self.schema > SCHEMA:
            raise ValueError(f"schema {self.schema} is newer than {SCHEMA}")


# ------------------------------------------------------------------ journal records


class StateRecord(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="state"
):
    """A transition of one task. A field that is absent leaves the row as it was, but for the reason,
    error and moments, which belong to the state they came with."""

    seq: Count
    at: str
    task: str
    state: TaskState
    reason: str | None = None
    reason_text: str | None = None
    blocked_by: str | None = None
    error: TaskError | None = None
    epoch: Count | None = None
    attempts: Count | None = None
    worker: str | None = None
    done: Count | None = None
    total: Count | None = None
    findings: dict[str, Count] | None = None
    result_digest: str | None = None
    result_at: Count | None = None
    unstored: bool = False
    artifacts: tuple[ArtifactRef, ...] | None = None
    ignored: bool = False


class ExpandRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="expand"):
    """The children of an ``each`` module became known (PLAN-57)."""

    seq: Count
    join: str
    source_digest: str
    keys: tuple[str, ...]
    items: tuple[str, ...]


class ProgressRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="progress"):
    """Counts of a task at a durable checkpoint of its cursor."""

    seq: Count
    at: str
    task: str
    done: Count
    total: Count | None = None


class ReconcileRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="reconcile"):
    """What a resume made of an older graph (PLAN-35); the snapshot after it holds the new tasks."""

    seq: Count
    at: str
    kept: tuple[str, ...] = ()
    code_changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    reset: tuple[str, ...] = ()


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="run"):
    """The run as a whole changed its state."""

    seq: Count
    at: str
    run_id: str
    run_state: RunStatus


JournalRecord: TypeAlias = StateRecord | ExpandRecord | ProgressRecord | ReconcileRecord | RunRecord
