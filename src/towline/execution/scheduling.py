"""What the scheduler hears and what it decides (SCHED-01). Tasks are named by their place in the plan."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from towline.planning.records import PlannedTask, TaskState

# ------------------------------------------------------------------ events


class Begin(msgspec.Struct, frozen=True):
    """The plan is durable; decide what may start."""


class Started(msgspec.Struct, frozen=True, gc=False):
    """A dispatched task holds its node rights and has started."""

    task: int


class Refused(msgspec.Struct, frozen=True):
    """A dispatched task could not start after all; it returns to its place."""

    task: int


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A task is final, durably. ``abandoned``: its rights stay taken until ``RightFreed``."""

    task: int
    state: TaskState
    ignored: bool = False
    abandoned: bool = False


class Blocked(msgspec.Struct, frozen=True):
    """A gate ran and recorded a blocking finding; it is pending again (PLAN-51)."""

    task: int


class Grown(msgspec.Struct, frozen=True):
    """The children of a join are durable; they stand at the end of the plan."""

    join: int
    tasks: tuple[PlannedTask, ...]


class StopAsked(msgspec.Struct, frozen=True):
    """Something outside the graph wants the run to end; a stop may only escalate."""

    reason: Literal["pipeline_failed", "stopped", "interrupted", "operator"]
    always_run_too: bool = True
    task: int | None = None
    """Only this task, or the whole run."""


class RightFreed(msgspec.Struct, frozen=True):
    """An abandoned body has ended at last; its rights are free."""

    task: int


class Tick(msgspec.Struct, frozen=True):
    """Time has passed: budgets, reservations, stuck detection."""


SchedulerEvent: TypeAlias = Begin | Started | Refused | Finished | Blocked | Grown | StopAsked | RightFreed | Tick


# ------------------------------------------------------------------ decisions


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """Start this task; its run-scope rights are taken."""

    task: int


class Settle(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Record this state without running a body: a skip, a cancel of what never started, the end of a join.

    ``blocked_by`` is a task id. The scheduler already counts the task as final; no ``Finished`` follows.
    One state is not final: ``pending`` with code ``blocked``, for what waits for a blocked gate (PLAN-51).
    ``ignored``: of a join whose failed children were all ignored.
    """

    task: int
    state: TaskState
    code: str
    text: str = ""
    blocked_by: str | None = None
    ignored: bool = False


class Expand(msgspec.Struct, frozen=True):
    """The source of this join has succeeded: read its items, record them, answer with ``Grown`` or ``Finished``."""

    join: int


class Cancel(msgspec.Struct, frozen=True):
    """End this running task; a ``Finished`` follows."""

    task: int
    code: str


class Withdraw(msgspec.Struct, frozen=True):
    """Take back this dispatched task, which has not started; a ``Settle`` for it stands beside this."""

    task: int


class Complete(msgspec.Struct, frozen=True):
    """Nothing more will start. Comes exactly once."""

    status: Literal["succeeded", "failed", "blocked", "cancelled"]


class Stuck(msgspec.Struct, frozen=True):
    """Tasks are pending, none is active and none may start: a fault of the scheduler (SCHED-17)."""

    tasks: tuple[tuple[str, str], ...]
    """Up to 20 (task id, what it waits for)."""


class WakeAt(msgspec.Struct, frozen=True):
    """Send a ``Tick`` at this moment of the monotonic clock, or sooner."""

    at: float


Decision: TypeAlias = Dispatch | Settle | Expand | Cancel | Withdraw | Complete | Stuck | WakeAt
