"""Random but purposeful operation sequences for the ledger, and what must hold after each.

A *choice* is three numbers; :class:`LedgerDriver` makes an operation of it, aimed at what the ledger holds just now
(live leases, known sessions, tokens that were used), so that most operations do something. The same choices drive any
back end that executes operations: its replies must equal the ledger's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.coordination import operations as ops
from towline.coordination.ledger import LedgerState, apply
from towline.coordination.records import Assignment, EventBatch, LeaseRef, OutcomeRecord, SessionRef, WorkerStatus
from towline.coordination.signals import Signal
from towline.errors.coordination import CoordinationError
from towline.events.records import Event
from towline.testing.contract_cases.scene import opening_of, registration_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from towline.planning.records import TaskState

Choice = tuple[int, int, int]

CHOICE_LIMIT = 2**16
WORKER_TIMEOUT_S = 10.0
_START_MS = 1_800_000_000_000

_TASKS = ("a", "b|c", "é[3.12]", "d", "e", "f")
_REQUIREMENTS = ((), (("linux",),), (("gpu", "linux"),), (("docker",), ("gpu", "linux")))
_CAPABILITIES = (("linux",), ("LINUX", "docker"), ("gpu",), ())
_STATES: tuple[TaskState, ...] = ("succeeded", "failed", "cancelled", "skipped")


class LedgerDriver:
    """Makes operations from choices and applies them to a ledger of its own."""

    def __init__(self, run_id: str) -> None:
        self.run_id, self.worker_timeout_s = run_id, WORKER_TIMEOUT_S
        self.state = LedgerState()
        self.now_ms = _START_MS
        self.tokens = 0
        self.owner_epoch = 1
        self._epochs: dict[str, int] = {}
        self._makers: Sequence[Callable[[int, int], ops.Operation[Any]]] = (
            self._claim,
            self._claim,
            self._claim,
            self._enqueue,
            self._enqueue,
            self._publish,
            self._publish,
            self._publish_and_claim,
            self._register,
            self._heartbeat,
            self._heartbeat,
            self._release,
            self._requeue,
            self._requeue,
            self._rare,
            self._events,
        )

    def next_operation(self, choice: Choice) -> ops.Operation[Any]:
        """Let some time pass and make the operation of a choice."""
        kind, first, second = choice
        self.now_ms += (0, 1, 500, 3_000, 6_000, 10_500)[second % 6] if kind % 7 == 0 else 7
        if self.state.opening is None:
            return self._open(first, second)
        if first % 4 and any(not row.is_live(self.now_ms) for row in self.state.sessions.values()):
            return self._revive(first, second)
        return self._makers[kind % len(self._makers)](first, second)

    def apply(self, operation: ops.Operation[Any]) -> object:
        """Apply to the own ledger; returns the reply, or the refusal as (type, fields)."""
        return answer_of(lambda: apply(self.state, operation, self.now_ms)[0])

    # ------------------------------------------------------------------ operations

    def _open(self, first: int, second: int) -> ops.Operation[Any]:
        epoch = self.owner_epoch + second % 2
        opening = opening_of(
            self.run_id,
            WORKER_TIMEOUT_S,
            master_id=f"m-{first % 2}",
            owner_epoch=epoch,
            requeue_limit=1,
            event_backlog=6,
            epoch_jumps=first % 3 // 2,
            replaces=self.owner_epoch if second % 5 == 0 else None,
        )
        if self.state.opening is None or second % 5 == 0:
            self.owner_epoch = epoch
        return ops.OpenRun(opening=opening)

    def _session(self, number: int) -> SessionRef:
        """A known session mostly, sometimes one that never was."""
        known = sorted(self.state.sessions)
        if known and number % 8:
            row = self.state.sessions[known[number % len(known)]]
            return row.registration.ref
        return SessionRef(f"w{number % 3}", f"s{number % 2}")

    def _lease(self, number: int) -> LeaseRef:
        """A live lease mostly, sometimes an old or unknown one."""
        live = sorted(self.state.leases)
        if live and number % 8:
            task_id = live[number % len(live)]
            lease = self.state.leases[task_id]
            return LeaseRef(task_id=task_id, epoch=lease.epoch, worker_id=lease.worker_id)
        return LeaseRef(task_id=_TASKS[number % len(_TASKS)], epoch=number % 4, worker_id=f"w{number % 3}")

    def _register(self, first: int, second: int) -> ops.Operation[Any]:
        held = (self._lease(second),) if first % 4 == 0 else ()
        registration = registration_of(
            self,  # type: ignore[arg-type]
            f"w{first % 3}",
            f"s{second % 3}",
            capabilities=_CAPABILITIES[(first + second) % 4],
            fingerprint="sha256:f" if second % 16 else "sha256:other",
            held=held,
        )
        return ops.Register(registration=registration)

    def _revive(self, first: int, second: int) -> ops.Operation[Any]:
        """Register a session that has ended once more, as its process or as a new one."""
        ended = [row.registration for _, row in sorted(self.state.sessions.items()) if not row.is_live(self.now_ms)]
        registration = ended[second % len(ended)]
        session = registration.session if second % 3 else f"s{first % 64}"
        return ops.Register(registration=msgspec.structs.replace(registration, session=session))

    def _claim(self, first: int, second: int) -> ops.Claim:
        if second % 4:
            self.tokens += 1
        return ops.Claim(worker=self._session(first), token=f"t|{self.tokens}", waits=second % 2 == 0)

    def _enqueue(self, first: int, second: int) -> ops.Operation[Any]:
        tasks = tuple(
            Assignment(
                task_id=_TASKS[(first + step) % len(_TASKS)],
                module="m",
                requires=_REQUIREMENTS[(second + step) % 4],
                always_run=(first + step) % 5 == 0,
                at_most_once=(second + step) % 7 == 0,
                priority=(first * 7 + step) % 3 - 1,
                critical_path_ms=second % 3 * 1000,
                epoch_floor=first % 3 if second % 5 == 0 else 0,
            )
            for step in range(1 + first % 3)
        )
        return ops.Enqueue(owner_epoch=self._owner(second), assignments=tasks)

    def _owner(self, number: int) -> int:
        return self.owner_epoch if number % 16 else self.owner_epoch + 1

    def _outcome(self, first: int, second: int) -> ops.Publish:
        lease = self._lease(first)
        state = _STATES[second % 4]
        value = msgspec.Raw(msgspec.json.encode("x" * (5_000 if second % 9 == 0 else 3)))
        outcome = OutcomeRecord(
            task_id=lease.task_id,
            epoch=lease.epoch,
            worker_id=lease.worker_id,
            state=state,
            value=value if state == "succeeded" else msgspec.UNSET,
        )
        events = self._batch(first, second) if second % 3 == 0 else None
        if second % 11 == 0:
            return ops.Publish(outcome=outcome, lease=None, events=events, owner_epoch=self._owner(first))
        return ops.Publish(outcome=outcome, lease=lease, events=events)

    def _publish(self, first: int, second: int) -> ops.Operation[Any]:
        return self._outcome(first, second)

    def _publish_and_claim(self, first: int, second: int) -> ops.Operation[Any]:
        return ops.PublishAndClaim(publish=self._outcome(first, second), claim=self._claim(second, first))

    def _heartbeat(self, first: int, second: int) -> ops.Operation[Any]:
        session = self._session(first)
        own = [
            LeaseRef(task_id=task_id, epoch=lease.epoch, worker_id=lease.worker_id)
            for task_id, lease in sorted(self.state.leases.items())
            if lease.worker_id == session.worker_id and (second % 3 or lease.epoch % 2)
        ]
        listed = (*own, self._lease(second)) if second % 5 == 0 else tuple(own)
        status = WorkerStatus(
            worker_id=session.worker_id,
            session=session.session,
            in_flight=tuple(dict.fromkeys(listed)),
            is_final=second % 13 == 0,
            commands={"a": first % 5},
        )
        return ops.Heartbeat(status=status)

    def _release(self, first: int, second: int) -> ops.Operation[Any]:
        lease = self._lease(first)
        row = self.state.leases.get(lease.task_id)
        worker = SessionRef(row.worker_id, row.session) if row is not None and second % 8 else self._session(second)
        if row is not None and second % 8 == 7:
            return ops.AbandonClaim(worker=worker, token=row.token)
        return ops.Release(worker=worker, lease=lease, started=second % 2 == 0)

    def _requeue(self, first: int, second: int) -> ops.Operation[Any]:
        return ops.RequeueExpired(owner_epoch=self._owner(first))

    def _batch(self, first: int, second: int) -> EventBatch:
        session = self._session(first)
        start = self.state.events_stored.get(f"{session.worker_id}/{session.session}", 0) + second % 3
        events = tuple(
            Event(n=n, at="now", kind="log", data={"n": n}) for n in range(max(1, start), start + 1 + second % 3)
        )
        return EventBatch(
            worker_id=session.worker_id,
            session=session.session,
            run_id=self.run_id,
            owner_epoch=self.owner_epoch - (1 if second % 7 == 0 else 0),
            base=start + 1 if second % 10 == 9 else 0,
            events=events,
        )

    def _events(self, first: int, second: int) -> ops.Operation[Any]:
        if second % 3 == 0 and self.state.events:
            batch = self.state.events[first % len(self.state.events)]
            worker = SessionRef(batch.worker_id, batch.session)
            return ops.AcknowledgeEvents(owner_epoch=self._owner(second), worker=worker, n=batch.events[-1].n)
        return ops.SendEvents(batch=self._batch(first, second))

    def _rare(self, first: int, second: int) -> ops.Operation[Any]:
        owner = self._owner(first)
        match second % 12:
            case 0 | 1:
                return self._open(first, second)
            case 2:
                return ops.SendSignal(owner_epoch=owner, signal=Signal.PIPELINE_FAILED)
            case 3:
                return ops.Expel(owner_epoch=owner, worker_id=f"w{first % 4}")
            case 4 | 5:
                return ops.Withdraw(owner_epoch=owner, task_ids=(_TASKS[first % 6], _TASKS[second % 6]))
            case 6 if first % 6 == 0:
                return ops.Complete(owner_epoch=owner)
            case 7 if first % 6 == 0:
                return ops.SendSignal(owner_epoch=owner, signal=Signal.STOPPED)
            case 8:
                return ops.ReceiveEvents(owner_epoch=owner, limit=3)
            case 9:
                return ops.ReadFeed(owner_epoch=owner, after=first % 5, limit=4)
            case 10:
                return ops.ReadWorkVersion()
            case _:
                return ops.Beat(owner_epoch=owner)

    def closing_reads(self) -> list[ops.Operation[Any]]:
        """Everything that can be read of a run: two back ends that agree on these agree."""
        epoch = self.state.opening.owner_epoch if self.state.opening else 0
        reads: list[ops.Operation[Any]] = [ops.ReadOutcome(task_id=task_id) for task_id in (*_TASKS, "never")]
        return [
            *reads,
            ops.ReadRun(),
            ops.ReadWorkVersion(),
            ops.ActiveLeases(owner_epoch=epoch),
            ops.ReadWorkers(owner_epoch=epoch),
            ops.ReadStatuses(owner_epoch=epoch),
            ops.ReadFeed(owner_epoch=epoch, after=0, limit=10_000),
            ops.ReceiveEvents(owner_epoch=epoch, limit=10_000),
        ]

    # ------------------------------------------------------------------ invariants

    def check(self) -> None:
        """Assert what holds after every operation."""
        state = self.state
        queued = [place for bucket in state.buckets for place in bucket.queue]
        for bucket in state.buckets:
            assert bucket.queue == sorted(bucket.queue), "a queue is out of order"
        in_queues = [place[3] for place in queued]
        assert len(set(in_queues)) == len(in_queues), "a task is queued twice"
        for task_id, row in state.tasks.items():
            places = (task_id in in_queues, task_id in state.leases, task_id in state.outcomes, row.state == "absent")
            assert sum(places) == 1, f"{task_id} is {row.state} and in {places}"
            assert row.last_epoch >= self._epochs.get(task_id, 0), f"the epoch of {task_id} fell"
            self._epochs[task_id] = row.last_epoch
        for lease in state.leases.values():
            assert lease.worker_id in state.sessions, "a lease of nobody"
        first = state.feed_seq - len(state.feed) + 1
        assert [entry.seq for entry in state.feed] == list(range(first, state.feed_seq + 1)), "the feed has a gap"


def answer_of(call: Callable[[], object]) -> object:
    """Return a call's reply, or its refusal as something that compares."""
    try:
        return call()
    except CoordinationError as error:
        return refusal_of(error)


def refusal_of(error: CoordinationError) -> tuple[str, tuple[object, ...]]:
    """Return the type and fields of an error."""
    return type(error).__name__, tuple(error.args)
