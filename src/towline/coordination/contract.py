"""The coordinator contract: what any store between master and workers must do (COORD-C, decision 16).

Members are added in minor releases with default bodies (COORD-C84), so back ends *subclass* these protocols.
Every call ends promptly when cancelled and may be repeated after that (COORD-C80); all calls may run at once (COORD-C81).
The numbered clauses are in ``docs/spec/coordination.md``; ``towline.testing.coordinator_cases`` proves them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.coordination.records import (
        Assignment,
        ClaimReply,
        EventBatch,
        EventsReply,
        FeedEntry,
        HeartbeatReply,
        Lease,
        LeaseRef,
        MasterEndpoint,
        OutcomeRecord,
        PublishReply,
        RunCleanupContext,
        RunOpening,
        RunState,
        SessionRef,
        WorkerRegistration,
        WorkerStatus,
    )
    from towline.coordination.signals import Signal


class WorkerCoordinator(Protocol):
    """What a worker needs of a run."""

    async def register(self, registration: WorkerRegistration) -> RunState:
        """Open or reconnect a worker session; counts as a heartbeat.

        Raises:
            WorkerIdTakenError: A live process has the id (COORD-C03).
            ProgramMismatchError: The run's program, fingerprint or wire differs (COORD-C08).
            RunUnknownError: The run is not open (COORD-C09).
        """
        ...

    async def claim(self, worker: SessionRef, *, token: str, wait_s: float | None) -> ClaimReply:
        """Take the best task this worker can run (COORD-C30 to C39).

        ``wait_s`` 0 asks once, ``None`` waits until a lease or ``Closed``. The same ``token`` gives the same
        lease again while it is held, so that a lost reply loses no task.

        Raises:
            SessionReplacedError, SessionEndedError: Register again, or stop (COORD-C01, C04).
            CoordinationError: The session is claiming already (COORD-C35).
        """
        ...

    async def wait_for_work(self, *, seen: int) -> int:
        """Return the work version once it differs from ``seen``: enqueue, requeue, release, signal, completion raise it."""
        ...

    async def release(self, worker: SessionRef, lease: LeaseRef, *, started: bool) -> bool:
        """Give a lease back now; false when it is no longer held. ``started``: the body may have run (COORD-C45, C49)."""
        ...

    async def heartbeat(self, status: WorkerStatus) -> HeartbeatReply:
        """Record the status, renew the listed leases that this session holds, and name those that it does not."""
        ...

    async def publish_outcome(
        self, outcome: OutcomeRecord, *, lease: LeaseRef | None, events: EventBatch | None = None
    ) -> PublishReply:
        """Store the last events and the final outcome and end the lease, in one step.

        The first accepted outcome of a task stays (COORD-C51). Only the master may pass no lease.
        """
        ...

    async def publish_and_claim(
        self,
        outcome: OutcomeRecord,
        *,
        lease: LeaseRef,
        events: EventBatch | None = None,
        worker: SessionRef,
        token: str,
    ) -> tuple[PublishReply, ClaimReply]:
        """Publish, then ask once for the next task; a back end may do both in one round trip.

        ``NoWork``: call :meth:`claim` with the same ``token`` to go on waiting. A back end may grant a lease to that
        token meanwhile, so another claim comes after a call with it, and leaving after :meth:`withdraw_claim`.
        """
        published = await self.publish_outcome(outcome, lease=lease, events=events)
        return published, await self.claim(worker, token=token, wait_s=0)

    async def withdraw_claim(self, worker: SessionRef, *, token: str) -> None:
        """Grant nothing more to this token, and queue again, unbegun, what was granted to it unheard; bounded by 1 s.

        A back end whose claims do not stand after :meth:`publish_and_claim` has nothing to do.
        """
        return

    async def wait_for_outcome(self, task_id: str) -> OutcomeRecord:
        """Return a task's final outcome once there is one (COORD-C50)."""
        ...

    async def wait_for_signal(self, *, seen: Signal) -> Signal:
        """Return the run's signal once it is above ``seen`` (COORD-C60)."""
        ...

    async def run_state(self) -> RunState:
        """Say how the run stands; a run that is not open is ``unknown``, no error."""
        ...

    async def send_events(self, batch: EventBatch) -> EventsReply:
        """Hand events to the master's log (COORD-C71, C73)."""
        ...

    async def aclose(self) -> None:
        """Close connections; twice without harm. Pending calls raise ``CoordinatorClosedError``."""
        ...


class MasterCoordinator(WorkerCoordinator, Protocol):
    """What the master needs besides. From ``beat`` on every call of a replaced owner epoch raises ``MasterReplacedError``."""

    async def open_run(self, opening: RunOpening) -> RunState:
        """Become the master of the run, new or adopted.

        Raises:
            MasterAliveError: Another master may still lead it (COORD-C64).
            ProgramMismatchError: Another program opened it.
            RunIdUsedError: It has ended.
        """
        ...

    async def beat(self) -> int:
        """Renew mastership and the life of the run's data; returns the epoch jumps in force, which the master journals."""
        ...

    async def enqueue(self, assignments: Sequence[Assignment]) -> Sequence[bool]:
        """Queue each task once, in order, in one round trip.

        False for one that is queued, leased or final already: nothing changed (COORD-C36).
        """
        ...

    async def withdraw(self, task_ids: Sequence[str]) -> frozenset[str]:
        """Remove queued tasks and return those removed; leased and final ones are left alone (COORD-C37)."""
        ...

    async def active_leases(self) -> Sequence[Lease]:
        """Return the leases that workers hold, sorted by task."""
        ...

    async def requeue_expired(self) -> Sequence[FeedEntry]:
        """Queue again, or fail (COORD-C44, C45), every task whose lease ran out; end silent sessions."""
        ...

    async def expel(self, worker_id: str) -> bool:
        """End a worker's session at once, as if silent; false when there is none (COORD-C11)."""
        ...

    async def workers(self) -> Sequence[WorkerRegistration]:
        """Return the sessions that are alive or ended with a final status, sorted by id."""
        ...

    async def worker_statuses(self) -> Sequence[WorkerStatus]:
        """Return the latest status of each of them, the final ones included."""
        ...

    async def feed(self, *, after: int, limit: int, wait_s: float) -> Sequence[FeedEntry]:
        """Return entries with ``seq`` above ``after``, in order; waits up to ``wait_s`` for the first (COORD-C70)."""
        ...

    async def trim_feed(self, *, up_to: int) -> None:
        """Drop feed entries that the master has made durable; keeping them is allowed."""

    async def receive_events(self, *, limit: int, wait_s: float) -> Sequence[EventBatch]:
        """Return unacknowledged batches, per session in order; waits up to ``wait_s`` for the first (COORD-C72)."""
        ...

    async def acknowledge_events(self, worker: SessionRef, n: int) -> None:
        """Drop the events of a session up to ``n``: they are in the master's log."""
        ...

    async def send_signal(self, signal: Signal) -> Signal:
        """Raise the run's signal; a lower one changes nothing. Returns the signal now in force (COORD-C61)."""
        ...

    async def complete(self) -> None:
        """Say durably that there will be no more work; twice without harm (COORD-C62)."""
        ...


class CoordinatorFactory(Protocol):
    """Makes the coordinators of one process; called lazily, once per role (COORD-C82)."""

    async def create_master(self, run_id: str) -> MasterCoordinator:
        """Make the master's coordinator of a run."""
        ...

    async def create_worker(self, run_id: str) -> WorkerCoordinator:
        """Make a worker's coordinator of a run."""
        ...

    async def live_runs(self, program: str) -> Sequence[str]:
        """Return the ids of a program's live runs, oldest first, for fleet workers (DIST-09)."""
        ...


class MasterDiscovery(Protocol):
    """Where workers learn how to reach a master (COORD-C87)."""

    async def publish(self, endpoint: MasterEndpoint) -> None:
        """Make the endpoint known, over an older one."""
        ...

    async def withdraw(self) -> None:
        """Remove what this object published."""
        ...

    async def find(self, run_id: str) -> MasterEndpoint | None:
        """Return the endpoint of a run's master, if it is known."""
        ...


@runtime_checkable
class RunCleanup(Protocol):
    """Optional, by structure: a coordinator or store that can remove the data of one run (DIST-70, 71)."""

    async def clean_up_run(self, context: RunCleanupContext) -> None:
        """Remove everything stored under ``context.run_id``, whoever stored it, and nothing else."""
        ...
