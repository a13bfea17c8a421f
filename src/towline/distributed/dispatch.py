"""What the master does with a dispatched task: queue it, follow it through the feed, bring back its outcome.

To the engine this is its runner: ``start`` and ``stop``. Nothing here waits; the shell in ``master.py`` carries out
what is gathered in ``to_look_up``, ``to_enqueue``, ``to_withdraw`` and ``to_signal``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from towline.coordination.ledger.queue import fits
from towline.coordination.losses import LOSS_CODES
from towline.coordination.signals import Signal
from towline.distributed.outcomes import outcome_of_record, payload_of
from towline.errors.coordination import TaskUnroutableError
from towline.errors.values import SerializationError
from towline.modules.outcomes import Cancelled, Failed, Outcome, Reason
from towline.serialization.exceptions import record_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    from towline.clock import Clock
    from towline.coordination.records import Assignment, Clauses, FeedEntry, OutcomeRecord, WorkerRegistration
    from towline.execution.taskrun import ModuleKind, TaskRun

RUN_WIDE = {"pipeline_failed": Signal.PIPELINE_FAILED, "interrupted": Signal.STOPPED, "stopped": Signal.STOPPED}
"""Reasons for which every task of the run is being cancelled: told to all workers at once by the signal."""


BACKLOG_ROUNDS = 16
"""Tasks per slot that are queued or running while workers cannot run dry within a batch."""

GONE_NAMED = 5
"""Workers that were here, the latest, that are named where none of those here fits."""


class DispatchHost(Protocol):
    """The engine, as far as dispatch tells it something."""

    def moved(self, run: TaskRun, state: Literal["queued", "running"]) -> None:
        """A task was queued, or a worker has taken it."""
        ...

    def ended(self, run: TaskRun, outcome: Outcome[Any]) -> None:
        """A task has its final outcome."""
        ...


class Sent:
    """A task on its way: its engine's side, when it was first without a route, by when its worker must be done.

    ``lost_by``: the workers that had it and are gone, in order.
    """

    __slots__ = ("assignment", "backstop_at", "holder", "lost_by", "run", "stop", "unrouted_since")

    def __init__(self, run: TaskRun, assignment: Assignment) -> None:
        self.run, self.assignment = run, assignment
        self.stop: str | None = None
        self.holder: tuple[str, int] | None = None
        self.lost_by: list[str] = []
        self.unrouted_since: float | None = None
        self.backstop_at: float | None = None


class Dispatch:
    """The tasks that the master has given away, by id."""

    def __init__(
        self,
        host: DispatchHost,
        assignment_of: Callable[[TaskRun], Assignment],
        *,
        clock: Clock,
        master_id: str,
        now: Callable[[], float],
        result_margin_s: float,
        keeps_always_run: bool,
        wake: Callable[[], None],
    ) -> None:
        self._host, self._assignment_of, self._clock, self._master_id = host, assignment_of, clock, master_id
        self._now, self._result_margin_s, self._wake = now, result_margin_s, wake
        self._keeps_always_run = keeps_always_run
        self.sent: dict[str, Sent] = {}
        self.to_look_up: deque[Sent] = deque()
        """What may be in the master's cache: only tasks without conditions, which a node might decide (DIST-37)."""
        self.to_enqueue: list[Sent] = []
        self.to_withdraw: list[Sent] = []
        self.to_signal: Signal = Signal.RUNNING
        self.workers: dict[str, WorkerRegistration] = {}
        self.gone: Callable[[], Sequence[WorkerRegistration]] = tuple
        """Tells who was here and is not any more."""
        self.coming: set[str] = set()
        """Workers that are being started again: what waits for them is not without a route."""
        self.internal: frozenset[str] = frozenset()
        """Capabilities that no module asks for: they steer the claims, and are not spoken of."""
        self.requeue_count = 0
        """How often a task of this run came back from a worker, lost or released (REP-02)."""

    # ------------------------------------------------------------------ what the engine asks

    def start(self, run: TaskRun, loop: asyncio.AbstractEventLoop) -> None:
        """Give a task away."""
        sent = self.sent[run.row.id] = Sent(run, self._assignment_of(run))
        (self.to_look_up if may_be_cached(run.kind) else self.to_enqueue).append(sent)
        self._wake()

    def is_wanted(self, sent: Sent) -> bool:
        """Whether a task has not ended, and nobody has asked to take it back."""
        return sent.stop is None and self.sent.get(sent.run.row.id) is sent

    def stop(self, run: TaskRun, code: str) -> None:
        """Take a task back, wherever it is; its outcome follows."""
        sent = self.sent.get(run.row.id)
        if sent is None:
            return
        sent.stop = code
        self.to_withdraw.append(sent)
        signal = RUN_WIDE.get(code)
        if signal is Signal.STOPPED and self._keeps_always_run:
            signal = Signal.PIPELINE_FAILED
        if signal is not None and signal > self.to_signal:
            self.to_signal = signal
        self._wake()

    # ------------------------------------------------------------------ routes (DIST-28, DIST-29)

    def can_route(self, assignment: Assignment) -> bool:
        """Whether a worker that is known fits the task."""
        return any(fits(assignment.requires, capabilities_of(worker)) for worker in self.workers.values())

    def take_routed(self) -> list[Sent]:
        """Return what may be enqueued now; the rest waits for a worker that fits."""
        now = self._now()
        ready: list[Sent] = []
        waiting: list[Sent] = []
        for sent in self.to_enqueue:
            if self.sent.get(sent.run.row.id) is not sent:
                continue
            if self.can_route(sent.assignment):
                sent.unrouted_since = None
                ready.append(sent)
            else:
                sent.unrouted_since = now if sent.unrouted_since is None else sent.unrouted_since
                waiting.append(sent)
        self.to_enqueue = waiting
        return ready

    def unrouted_in_queue(self, limit_s: float) -> tuple[list[Sent], list[Sent]]:
        """Return the queued tasks that no worker fits any more: those found just now, and those of ``limit_s`` (DIST-29)."""
        now = self._now()
        unsent = {id(sent) for sent in (*self.to_enqueue, *self.to_look_up)}
        routes: dict[Clauses, bool] = {}
        found: list[Sent] = []
        overdue: list[Sent] = []
        for sent in self.sent.values():
            if sent.holder is not None or id(sent) in unsent:
                continue
            requires = sent.assignment.requires
            if requires not in routes:
                routes[requires] = self.can_route(sent.assignment)
            if routes[requires]:
                sent.unrouted_since = None
            elif sent.unrouted_since is None:
                if not self.coming:
                    sent.unrouted_since = now
                    found.append(sent)
            elif now - sent.unrouted_since >= limit_s:
                overdue.append(sent)
        return found, overdue

    def without_route(self, after_s: float) -> list[Sent]:
        """Return what has waited so long for a worker that fits."""
        now = self._now()
        return [
            sent for sent in self.to_enqueue if sent.unrouted_since is not None and now - sent.unrouted_since >= after_s
        ]

    def holders(self) -> dict[str, list[str]]:
        """Return the workers that hold tasks, each with these."""
        found: dict[str, list[str]] = {}
        for task_id, sent in self.sent.items():
            if sent.holder is not None:
                found.setdefault(sent.holder[0], []).append(task_id)
        return found

    def fail_without_route(self, sent: Sent) -> None:
        """End a task that was taken back from the queue because nobody can run it."""
        self.fail(sent, self.unroutable(sent.assignment), "no_capable_worker")

    def fail_unroutable(self, limit_s: float) -> None:
        """End what has had no worker that fits for the registration timeout."""
        for sent in self.without_route(limit_s):
            self.to_enqueue.remove(sent)
            self._fail(sent, self.unroutable(sent.assignment), "no_capable_worker")

    def unroutable(self, assignment: Assignment) -> TaskUnroutableError:
        """Say what a task needs, and what the workers have that were seen."""
        here = tuple(self._seen(worker) for worker in self.workers.values())
        gone = tuple(f"{self._seen(worker)}, gone" for worker in self.gone() if worker.worker_id not in self.workers)
        return TaskUnroutableError(assignment.task_id, self.required(assignment), (*here, *gone[-GONE_NAMED:]))

    def required(self, assignment: Assignment) -> str:
        """Say what a task asks of its worker."""
        asked = [clause for clause in assignment.requires if not self.internal.issuperset(clause)]
        return " and ".join("|".join(clause) for clause in asked) or "any worker"

    def _seen(self, worker: WorkerRegistration) -> str:
        named = [one for one in worker.capabilities if one not in self.internal]
        return f"{worker.worker_id} ({', '.join(named) or 'none'})"

    # ------------------------------------------------------------------ what the feed tells

    def heard(self, entries: Iterable[FeedEntry]) -> bool:
        """Follow the ledger; says whether the workers have changed."""
        workers_changed = False
        for entry in entries:
            if entry.kind in ("registered", "worker_gone"):
                workers_changed = True
                if entry.kind == "registered":
                    self.coming.discard(entry.worker_id or "")
            sent = self.sent.get(entry.task_id or "")
            if sent is None:
                continue
            if entry.kind == "claimed":
                self.claimed(sent, entry.worker_id or "", entry.epoch or 0)
            elif entry.kind in ("requeued", "released"):
                self.requeue_count += 1
                if entry.kind == "requeued":
                    sent.lost_by.append(entry.worker_id or "")
                self._came_back(sent, entry.epoch or 0)
            elif entry.kind == "finished" and entry.outcome is not None:
                self.finished(sent, entry.outcome)
        return workers_changed

    def claimed(self, sent: Sent, worker_id: str, epoch: int) -> None:
        """A worker has the task; its backstop starts anew (DIST-32). A claim may be told before the feed tells it."""
        if sent.holder is not None and sent.holder[1] >= epoch:
            return
        sent.holder = (worker_id, epoch)
        attempt = sent.run.attempt
        attempt.worker_id, attempt.epoch = worker_id, epoch
        sent.backstop_at = self._backstop(sent)
        self._host.moved(sent.run, "running")

    def _backstop(self, sent: Sent) -> float | None:
        assignment, kind = sent.assignment, sent.run.kind
        if not assignment.timeout_ms or not self._result_margin_s:
            return None
        pauses = assignment.attempts_allowed * kind.retry.max_s if assignment.attempts_allowed > 1 else 0.0
        attempts_s = assignment.attempts_allowed * assignment.timeout_ms / 1000
        return self._now() + attempts_s + pauses + self._result_margin_s

    def _came_back(self, sent: Sent, epoch: int) -> None:
        if sent.holder is not None and sent.holder[1] > epoch:
            return  # it has been claimed anew since
        sent.holder = sent.backstop_at = None
        self._host.moved(sent.run, "queued")
        if sent.stop is not None:
            self.to_withdraw.append(sent)
            self._wake()

    def finished(self, sent: Sent, record: OutcomeRecord) -> None:
        """Hand the accepted outcome to the engine."""
        run = sent.run
        del self.sent[run.row.id]
        codec = run.kind.codec
        run.payload = payload_of(record)
        if record.reason in LOSS_CODES and not record.attempts:  # nobody was left who could count: each loss was one
            record = msgspec.structs.replace(record, attempts=run.first_attempt + len(sent.lost_by) + 1)
        run.tries = max(1, record.attempts - run.first_attempt)
        run.attempt.worker_id, run.attempt.epoch = record.worker_id, record.epoch
        run.artifacts = record.artifacts
        if record.done is not None:
            run.row.done, run.row.total = record.done, record.total
        try:
            outcome = outcome_of_record(
                record, lambda data: None if codec is None else codec.decode(data, workdir=run.attempt.workdir)
            )
        except SerializationError as error:
            run.error, run.payload = error, None
            outcome = self._failed(run, error, "error")
        if record.error is not None:
            run.error = record.error.rebuild()
        if isinstance(outcome, Cancelled):
            # A cancel that nobody asked for would count as an interruption of the run (RUN-40).
            run.stop = sent.stop or record.reason or "stopped"
        self._host.ended(run, outcome)

    def withdrawn(self, sent: Sent) -> None:
        """A task that nobody had taken was taken back."""
        run = sent.run
        if self.sent.pop(run.row.id, None) is not None:
            run.stop = sent.stop or "stopped"
            reason = Reason(code=run.stop)
            self._host.ended(run, Cancelled(reason=reason, task_id=run.row.id, finished_at=self._clock.now()))

    def drop_all(self) -> None:
        """Nothing will be heard of these tasks any more: whoever waits for them goes on without (DIST-56)."""
        sent, self.sent = self.sent, {}
        for one in sent.values():
            one.run.stop = "stopped"
            reason = Reason(code="stopped")
            cancelled = Cancelled(reason=reason, task_id=one.run.row.id, finished_at=self._clock.now())
            self._host.ended(one.run, cancelled)

    @property
    def is_backlogged(self) -> bool:
        """Whether more tasks are queued than all workers can hold at once, so that none of them runs out of work soon."""
        slots = sum(worker.parallelism for worker in self.workers.values())
        return len(self.sent) - len(self.to_enqueue) - len(self.to_look_up) >= BACKLOG_ROUNDS * slots > 0

    def overdue(self) -> Sequence[Sent]:
        """Return the tasks whose worker should have been done long ago."""
        now = self._now()
        return [sent for sent in self.sent.values() if sent.backstop_at is not None and now >= sent.backstop_at]

    # ------------------------------------------------------------------ failures of dispatch itself

    def _fail(self, sent: Sent, error: Exception, code: str) -> None:
        del self.sent[sent.run.row.id]
        sent.run.error = error
        self._host.ended(sent.run, self._failed(sent.run, error, code))

    def fail(self, sent: Sent, error: Exception, code: str) -> None:
        """End a task that cannot be sent."""
        if self.sent.get(sent.run.row.id) is sent:
            self._fail(sent, error, code)

    def _failed(self, run: TaskRun, error: Exception, code: str) -> Failed:
        return Failed(
            record_of(error, self._master_id),
            reason=Reason(code=code, text=str(error)),
            task_id=run.row.id,
            finished_at=self._clock.now(),
            attempts=run.row.attempts,
            epoch=run.row.epoch,
        )


def may_be_cached(kind: ModuleKind) -> bool:
    """Whether the master may answer a task from its cache before it sends it (DIST-37)."""
    settings = kind.spec.settings
    return settings.cache is not None and not settings.run_if and not settings.skip_if


def capabilities_of(worker: WorkerRegistration) -> tuple[str, ...]:
    """Return a worker's capabilities as requirements are matched with them."""
    return tuple(name.casefold() for name in worker.capabilities)
