"""The scheduler: an event and the time go in, decisions come out; nothing else is touched (SCHED-01)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Literal

from towline.execution.occupancy import Claim, Occupancy
from towline.execution.ordering import PLACE_MASK, Ordering, place_of
from towline.execution.scheduler_states import (
    BLOCKED,
    DISPATCHED,
    EXPANDED,
    EXPANDING,
    FINAL,
    OUTSIDE,
    READY,
    RUNNING,
    UNEXPANDED,
    WAITING,
)
from towline.execution.scheduling import (
    Begin,
    Blocked,
    Cancel,
    Complete,
    Dispatch,
    Finished,
    Grown,
    Refused,
    RightFreed,
    Settle,
    Started,
    StopAsked,
    Stuck,
    Tick,
    WakeAt,
    Withdraw,
)
from towline.execution.standing import Standing
from towline.execution.stops import Stop
from towline.execution.tiers import Tiers
from towline.execution.waits import waits_for

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from towline.execution.limits import ModuleRules, RunLimits
    from towline.execution.scheduling import Decision, SchedulerEvent
    from towline.planning.records import PlannedTask

STUCK_AFTER_S: Final = 0.1
"""How long nothing may move, with something pending, before it is called stuck (SCHED-17)."""

_STUCK_SHOWN: Final = 20
_NOT_STARTED: Final = (WAITING, READY, DISPATCHED, UNEXPANDED)


class Scheduler:
    """Decide what starts, what is skipped or cancelled, and when a run is over.

    It is the hot path of a run: tasks are places in the plan, their state lies in arrays, and the end of
    one looks only at its dependents and at the head of the queue (SCHED-25).

    Args:
        tasks: The plan in topological order; rows that are final count as ended, ``running`` ones as
            running already (PLAN-36, PLAN-46).
        rules: Scheduling settings by module name; a module without an entry has none.
        limits: Rights that exist, and policies.
        estimates: Seconds by task id or module name; 120 where neither is known (REP-08).
        selection: Places of the tasks that belong to this run; ``None``: all (PLAN-48).
        starts_at_once: A dispatched task runs, as on one node. Else it is queued until ``Started`` comes,
            and a stop withdraws it.

    Raises:
        ValueError: A module wants more tickets than exist.
    """

    def __init__(
        self,
        tasks: Sequence[PlannedTask],
        rules: Mapping[str, ModuleRules],
        limits: RunLimits,
        estimates: Mapping[str, float],
        *,
        selection: Container[int] | None = None,
        starts_at_once: bool = True,
    ) -> None:
        self._dispatched = RUNNING if starts_at_once else DISPATCHED
        self._keep_going = limits.keep_going
        self._standing = Standing(tasks, selection)
        self._states = self._standing.states
        self._ready: list[int] = []
        self._occupancy = Occupancy(rules, limits, self._is_ready, self._put_forward)
        self._ordering = Ordering(rules, estimates)
        self._place_new_tasks()
        self._tiers = Tiers(self._standing) if limits.schedule == "tiers" else None
        self._started = 0
        self._ready_count = 0
        self._stop = Stop(limits.always_run_budget_s)
        self._cancelled_alone = False
        self._idle_since: float | None = None
        self._wake_at: float | None = None
        self._is_over = False
        self.late_finishes = 0
        """Ends that came for tasks which were final already; the first one counts (SCHED-18)."""
        self._handlers: dict[type, Callable[[Any, float, list[Decision]], None]] = {
            Begin: self._on_begin,
            Started: self._on_started,
            Refused: self._on_refused,
            Finished: self._on_finished,
            Blocked: self._on_blocked,
            Grown: self._on_grown,
            StopAsked: self._on_stop_asked,
            RightFreed: self._on_right_freed,
            Tick: self._on_tick,
        }

    def on(self, event: SchedulerEvent, now: float) -> list[Decision]:
        """Take one event and return what is to be done, in order.

        ``now`` is monotonic seconds and never goes back. After ``Complete`` or ``Stuck`` nothing is
        decided any more, but that a late start is answered by ``Cancel``.
        """
        out: list[Decision] = []
        self._handlers[type(event)](event, now, out)
        if self._is_over:
            return out
        while True:
            self._start_ready(now, out)
            if self._occupancy.active and not self._occupancy.retention.tasks and not self._stop.has_budget:
                self._idle_since = None
                return out
            if not self._look_after_idleness(now, out):
                return out

    def waits_for(self, task: int) -> str:
        """Say what a task waits for: ``waits for export.airports``, ``waits for lock db``; empty if it does not."""
        at_exclusive = self._occupancy.exclusive
        if at_exclusive is None and self._ready:
            first = place_of(self._ready[0])
            need = self._occupancy.needs[first]
            at_exclusive = first if need is not None and need.exclusive and self._states[first] == READY else None
        return waits_for(
            task,
            self._standing,
            self._occupancy.rights.waited_for(task),
            at_exclusive,
            self._tiers is not None and self._tiers.is_parked(task),
        )

    @property
    def extra_slots(self) -> int:
        """Slots that were opened because abandoned bodies hold all others (RUN-23)."""
        return self._occupancy.retention.extra_slots

    @property
    def abandoned(self) -> list[int]:
        """The tasks whose abandoned bodies still hold a slot and their rights."""
        return list(self._occupancy.retention.tasks)

    def critical_path(self) -> list[int]:
        """Return the longest chain of tasks by estimates, first task first (SCHED-04)."""
        return self._ordering.longest_chain(self._standing.links, self._standing.joins.parents)

    def critical_path_s(self, task: int) -> float:
        """Return the estimate of a task and the longest chain behind it, in seconds (SCHED-04)."""
        return self._ordering.critical_path_s(task)

    # -------------------------------------------------------------- events

    def _on_begin(self, _event: Begin, _now: float, out: list[Decision]) -> None:
        for place, row in enumerate(self._standing.rows):
            if row.state == "running" and self._states[place] == WAITING:
                self._states[place] = RUNNING
                self._started += 1
                self._occupancy.find_running(place)
        self._standing.begin(out)

    def _on_started(self, event: Started, _now: float, out: list[Decision]) -> None:
        task = event.task
        state = self._states[task]
        if state == DISPATCHED:
            self._states[task] = RUNNING
            self._started += 1
        elif state == FINAL and (code := self._standing.cancel_codes.get(task)) is not None:
            out.append(Cancel(task, code))

    def _on_refused(self, event: Refused, _now: float, _out: list[Decision]) -> None:
        task = event.task
        if self._states[task] in (DISPATCHED, RUNNING):
            self._leave(task)
            self._states[task] = READY
            self._standing.ready.append(task)

    def _on_finished(self, event: Finished, now: float, out: list[Decision]) -> None:
        task = event.task
        state = self._states[task]
        if state == RUNNING:
            self._started -= 1
            self._occupancy.leave(task, now if event.abandoned else None)
        elif state == DISPATCHED:
            self._occupancy.leave(task, now if event.abandoned else None)
        elif state in (FINAL, OUTSIDE):
            self.late_finishes += 1
            return
        elif state == READY:
            self._drop(task)
        ended = event.state
        self._standing.finish(task, ended, event.ignored, out)
        if ended == "succeeded":
            return
        if ended == "cancelled" and self._standing.cancel_codes.get(task) == "operator":
            self._cancelled_alone = True
        if ended in ("failed", "timed_out") and not event.ignored:
            self._stop_after(task, out)

    def _on_blocked(self, event: Blocked, _now: float, out: list[Decision]) -> None:
        if self._states[event.task] in (DISPATCHED, RUNNING):
            self._leave(event.task)
            self._standing.block(event.task, out)

    def _on_grown(self, event: Grown, _now: float, out: list[Decision]) -> None:
        join = event.join
        if self._states[join] != EXPANDING:
            return
        self._standing.grow(join, event.tasks, out)
        self._place_new_tasks()
        if self._tiers is not None:
            self._tiers.extend()
        if self._stop.reason is not None:
            self._cancel_open(out)
        elif (code := self._standing.cancel_codes.get(join)) is not None:
            for child in self._standing.joins.children[join]:
                self._cancel_one(child, code, out)

    def _on_stop_asked(self, event: StopAsked, now: float, out: list[Decision]) -> None:
        if event.task is not None:
            self._cancel_one(event.task, event.reason, out)
        elif self._stop.ask(event.reason, event.always_run_too):
            self._cancel_open(out)

    def _on_right_freed(self, event: RightFreed, _now: float, _out: list[Decision]) -> None:
        self._occupancy.end_abandoned(event.task)

    def _on_tick(self, _event: Tick, _now: float, _out: list[Decision]) -> None:
        """Nothing: what is due is looked at after every event."""

    # -------------------------------------------------------------- starting

    def _is_ready(self, task: int) -> bool:
        return self._states[task] == READY

    def _put_forward(self, key: int) -> None:
        heappush(self._ready, key)

    def _place_new_tasks(self) -> None:
        standing = self._standing
        first = len(self._occupancy.needs)
        self._ordering.extend(standing.rows, standing.links, standing.joins.parents, first)
        self._occupancy.extend(standing.rows[first:])

    def _start_ready(self, now: float, out: list[Decision]) -> None:
        if self._standing.ready:
            self._queue_ready()
        if self._tiers is not None:
            for task in self._tiers.advance():
                heappush(self._ready, self._ordering.keys[task])
        if self._ready:
            self._dispatch(now, out)

    def _queue_ready(self) -> None:
        """Queue the tasks that became ready; they stand in the states already."""
        ready, queue, keys, tiers = self._standing.ready, self._ready, self._ordering.keys, self._tiers
        self._ready_count += len(ready)
        for task in ready:
            if tiers is None or tiers.admit(task):
                heappush(queue, keys[task])
        ready.clear()

    def _dispatch(self, now: float, out: list[Decision]) -> None:
        """Start ready tasks in order while there are slots.

        An exclusive task that is first stops all behind it, so that the run drains for it (SCHED-09).
        """
        ready, states, occupancy = self._ready, self._states, self._occupancy
        needs, dispatched = occupancy.needs, self._dispatched
        if occupancy.rights.to_reserve:
            occupancy.rights.reserve_overdue(now)
        while ready and occupancy.free_slots > 0 and occupancy.exclusive is None:
            key = heappop(ready)
            task = key & PLACE_MASK  # `place_of`, in the one place where its call would count
            if states[task] != READY:
                continue
            need = needs[task]
            if need is not None:
                claim = occupancy.claim(key, need, now)
                if claim is Claim.DRAINS:
                    heappush(ready, key)
                    return
                if claim is Claim.WAITS:
                    continue
            states[task] = dispatched
            self._ready_count -= 1
            occupancy.active += 1
            occupancy.free_slots -= 1
            if dispatched == RUNNING:
                self._started += 1
            out.append(Dispatch(task))

    # -------------------------------------------------------------- leaving

    def _leave(self, task: int, abandoned_at: float | None = None) -> None:
        if self._states[task] == RUNNING:
            self._started -= 1
        self._occupancy.leave(task, abandoned_at)

    def _drop(self, task: int) -> None:
        self._ready_count -= 1
        self._occupancy.drop(task)

    # -------------------------------------------------------------- stopping

    def _stop_after(self, task: int, out: list[Decision]) -> None:
        """Stop the run for a failure: skip what needs it, cancel the rest, keep always-run tasks (RUN-50)."""
        if self._keep_going or not self._stop.ask("pipeline_failed", False):
            return
        standing = self._standing
        join = standing.joins.parents.get(task)
        if join is not None and self._states[join] == EXPANDED:
            standing.skip_behind(join, task, out)
        self._cancel_open(out)

    def _cancel_open(self, out: list[Decision]) -> None:
        """Withdraw what is queued and cancel what runs, in one list (SCHED-15)."""
        reason = self._stop.reason
        assert reason is not None
        spared = not self._stop.always_run_too
        rows, states = self._standing.rows, self._states
        self._queue_ready()
        waiting: list[int] = []
        for task, state in enumerate(states):
            if spared and rows[task].always_run:
                continue
            if state in _NOT_STARTED or (state == BLOCKED and reason != "pipeline_failed"):
                waiting.append(task)
            elif state == RUNNING:
                self._standing.cancel_codes[task] = reason
                out.append(Cancel(task, reason))
        self._cancel_waiting(waiting, reason, out)

    def _cancel_waiting(self, tasks: Iterable[int], code: str, out: list[Decision]) -> None:
        ended = list(tasks)
        for task in ended:
            if self._states[task] == DISPATCHED:
                out.append(Withdraw(task))
                self._leave(task)
            elif self._states[task] == READY:
                self._drop(task)
        self._standing.cancel_all(ended, code, out)

    def _cancel_one(self, task: int, code: str, out: list[Decision]) -> None:
        """Cancel one task at somebody's request; the run goes on without it."""
        state = self._states[task]
        if state == EXPANDED:
            for child in list(self._standing.joins.children[task]):
                self._cancel_one(child, code, out)
        elif state == EXPANDING:
            self._standing.cancel_codes[task] = code
        elif state == RUNNING:
            self._standing.cancel_codes[task] = code
            out.append(Cancel(task, code))
        elif state in _NOT_STARTED or state == BLOCKED:
            self._queue_ready()
            self._cancelled_alone = True
            self._cancel_waiting([task], code, out)

    # -------------------------------------------------------------- idleness and its ends

    def _look_after_idleness(self, now: float, out: list[Decision]) -> bool:
        """See what is due when little or nothing runs; returns whether something may start because of it."""
        before = len(out)
        wake_at: list[float] = []
        if self._stop.has_budget:
            left_s = self._stop.count(now, is_idle=not self._started)
            if left_s <= 0.0:
                self._cancel_late_always_run(out)
            elif not self._started and self._standing.open:
                wake_at.append(now + left_s)
        if self._occupancy.retention.tasks:
            if self._occupancy.open_extra_slot(now):
                return True
            self._fail_vain_waits(now, out)
            if self._ready_count:
                wake_at.append(self._occupancy.retention.wake_at(now))
        if len(out) > before or self._standing.ready:
            return True
        if self._is_at_rest():
            if self._standing.release_behind_gates():
                return True
            self._end(now, wake_at, out)
        else:
            self._idle_since = None
        if wake_at and not self._is_over:
            self._wake(min(wake_at), now, out)
        return False

    def _is_at_rest(self) -> bool:
        if self._occupancy.active or self._standing.expanding:
            return False
        return not (self._ready_count and self._occupancy.retention.tasks)

    def _end(self, now: float, wake_at: list[float], out: list[Decision]) -> None:
        """End a run in which nothing can move: completely, or as stuck if that should not be (SCHED-16, 17)."""
        standing = self._standing
        if standing.open == len(standing.gates.held) + len(standing.gates.blocked):
            self._is_over = True
            out.append(Complete(self._status()))
        elif self._idle_since is None:
            self._idle_since = now
            wake_at.append(now + STUCK_AFTER_S)
        elif now < self._idle_since + STUCK_AFTER_S:
            wake_at.append(self._idle_since + STUCK_AFTER_S)
        else:
            self._is_over = True
            pending = [t for t, state in enumerate(self._states) if state not in (OUTSIDE, FINAL, BLOCKED)]
            out.append(Stuck(tuple((standing.ids[t], self.waits_for(t)) for t in pending[:_STUCK_SHOWN])))

    def _status(self) -> Literal["succeeded", "failed", "blocked", "cancelled"]:
        reason = self._stop.reason
        if reason is not None and reason != "pipeline_failed":
            return "cancelled"
        if reason is not None or self._standing.has_failure or self._cancelled_alone:
            return "failed"
        return "blocked" if self._standing.gates.blocked else "succeeded"

    def _cancel_late_always_run(self, out: list[Decision]) -> None:
        """End the always-run tasks that did not come to start in time (RUN-56)."""
        rows = self._standing.rows
        self._queue_ready()
        late = [t for t, state in enumerate(self._states) if state in _NOT_STARTED and rows[t].always_run]
        self._cancel_waiting(late, "always_run_budget", out)

    def _fail_vain_waits(self, now: float, out: list[Decision]) -> None:
        """Fail tasks that need what only abandoned bodies can give back (RUN-24)."""
        retention = self._occupancy.retention
        is_idle = not self._occupancy.active and not self._standing.expanding
        if not retention.must_look(now, is_idle):
            return
        for task, state in enumerate(self._states):
            if state != READY or self._states[task] != READY:
                continue
            holder = self._occupancy.retaining(task)
            if holder is None or not (retention.waits_in_vain(task, now) or is_idle):
                continue
            name = self._standing.ids[holder]
            text = f"needs what the abandoned body of {name} still holds"
            self._drop(task)
            self._standing.settle(
                task, Settle(task=task, state="failed", code="right_abandoned", text=text, blocked_by=name), out
            )
            self._stop_after(task, out)

    def _wake(self, at: float, now: float, out: list[Decision]) -> None:
        if self._wake_at is None or self._wake_at <= now or at < self._wake_at:
            self._wake_at = at
            out.append(WakeAt(at))
