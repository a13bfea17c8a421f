"""What a run will do, by simulating its own scheduler with estimated times (SCHED-23, PLAN-11, CTL-19)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import msgspec

from towline.execution.ordering import UNKNOWN_ESTIMATE_S
from towline.execution.scheduler import Scheduler
from towline.execution.scheduling import (
    Begin,
    Complete,
    Dispatch,
    Expand,
    Finished,
    Settle,
    Stuck,
    Tick,
    WakeAt,
)
from towline.planning.records import FINAL_STATES

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from towline.execution.limits import ModuleRules, RunLimits
    from towline.execution.scheduling import Decision, SchedulerEvent
    from towline.planning.records import PlannedTask, TaskState

LEAST_LEFT: Final = 0.1
"""A running task that has outlived its estimate is taken to need a tenth of it still (CTL-19)."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated run. Tasks are named by their place in the plan; seconds count from its begin.

    ``order``: as they start. ``skipped``: code, text and cause of each skip. ``critical_path``: the longest
    chain by estimates, first task first. ``makespan_s``: until the last end.
    """

    makespan_s: float
    order: tuple[int, ...]
    started_at_s: dict[int, float]
    finished_at_s: dict[int, float]
    skipped: dict[int, Settle]
    critical_path: tuple[int, ...]


def forecast(
    tasks: Sequence[PlannedTask],
    rules: Mapping[str, ModuleRules],
    limits: RunLimits,
    estimates: Mapping[str, float],
    *,
    selection: Container[int] | None = None,
    skips: Mapping[int, str] | None = None,
    durations: Mapping[int, float] | None = None,
) -> Forecast:
    """Simulate a run in which every body succeeds in its estimated time.

    A join without children is taken as one body of its module: how many there will be is not known.

    Args:
        tasks, rules, limits, estimates, selection: As the scheduler takes them. Rows are not changed.
        skips: Tasks that a condition is known to skip, with its words.
        durations: Seconds by place that stand in for estimates: what is left of running tasks.
    """
    simulation = _Simulation(tasks, Scheduler(tasks, rules, limits, estimates, selection=selection), estimates)
    simulation.skips, simulation.durations = skips or {}, durations or {}
    return simulation.run()


class _Simulation:
    def __init__(self, tasks: Sequence[PlannedTask], scheduler: Scheduler, estimates: Mapping[str, float]) -> None:
        self._tasks, self._scheduler, self._estimates = tasks, scheduler, estimates
        self.skips: Mapping[int, str] = {}
        self.durations: Mapping[int, float] = {}
        self._coming: list[tuple[float, int, SchedulerEvent]] = []
        self._count = 0
        self._order: list[int] = []
        self._started: dict[int, float] = {}
        self._finished: dict[int, float] = {}
        self._skipped: dict[int, Settle] = {}
        self._makespan_s = 0.0

    def run(self) -> Forecast:
        """Go from event to event until the scheduler says that nothing more will start."""
        for place, row in enumerate(self._tasks):
            if row.state == "running" and not row.join:
                self._start(place, 0.0)
        self._schedule(0.0, Begin())
        while self._coming:
            now, _, event = heappop(self._coming)
            if type(event) is Finished:
                self._finished[event.task] = self._makespan_s = now
            if self._is_over(self._scheduler.on(event, now), now):
                break
        return Forecast(
            makespan_s=self._makespan_s,
            order=tuple(self._order),
            started_at_s=self._started,
            finished_at_s=self._finished,
            skipped=self._skipped,
            critical_path=tuple(self._scheduler.critical_path()),
        )

    def _schedule(self, at: float, event: SchedulerEvent) -> None:
        self._count += 1
        # The begin comes before the ends of tasks that are left no time.
        heappush(self._coming, (at, 0 if type(event) is Begin else self._count, event))

    def _is_over(self, decisions: Sequence[Decision], now: float) -> bool:
        for decision in decisions:
            if type(decision) is Dispatch:
                self._order.append(decision.task)
                self._start(decision.task, now)
            elif type(decision) is Settle:
                if decision.state == "skipped":
                    self._skipped[decision.task] = decision
            elif type(decision) is Expand:
                self._start(decision.join, now)
            elif type(decision) is WakeAt:
                self._schedule(decision.at, Tick())
            elif type(decision) in (Complete, Stuck):
                return True
        return False

    def _start(self, place: int, now: float) -> None:
        self._started[place] = now
        state: TaskState = "succeeded"
        duration_s = self.durations.get(place)
        if place in self.skips:
            text = self.skips[place]
            self._skipped[place] = Settle(task=place, state="skipped", code="condition", text=text)
            state, duration_s = "skipped", 0.0
        if duration_s is None:
            row = self._tasks[place]
            duration_s = self._estimates.get(row.id, self._estimates.get(row.module, UNKNOWN_ESTIMATE_S))
        self._schedule(now + duration_s, Finished(place, state))


# ------------------------------------------------------------------ time left of a run under way


class Eta(msgspec.Struct, frozen=True, kw_only=True):
    """When a run will be over: seconds from now, and how many open tasks this does not count (CTL-20)."""

    left_s: float
    unknown: int
    known: int

    def __str__(self) -> str:
        if self.unknown and not self.known:
            return "unknown"
        words = _in_words(self.left_s)
        return f"at least {words} ({self.unknown} unknown)" if self.unknown else words


def left_of_running_s(estimate_s: float, elapsed_s: float, done: int | None, total: int | None) -> float:
    """Estimate what is left of a running task, in seconds (CTL-19).

    By its own count once there is one: ``elapsed / done`` for each that is left. Else by its estimate.
    """
    if done and total is not None:
        return elapsed_s / done * max(0, total - done)
    return max(estimate_s - elapsed_s, estimate_s * LEAST_LEFT)


def eta(
    tasks: Sequence[PlannedTask],
    rules: Mapping[str, ModuleRules],
    limits: RunLimits,
    estimates: Mapping[str, float],
    elapsed_s: Mapping[int, float],
    *,
    selection: Container[int] | None = None,
) -> Eta:
    """Simulate the open tasks of a run under way and say when it will be over.

    ``elapsed_s``: seconds since the start of each running task, by place. Tasks without history, count or
    known expansion count as nothing, so that the figure is a lower bound.
    """
    durations: dict[int, float] = {}
    known = unknown = 0
    expanded = {row.parent for row in tasks if row.parent is not None}
    for place, row in enumerate(tasks):
        if row.state in FINAL_STATES or (selection is not None and place not in selection):
            continue
        estimate_s = estimates.get(row.id, estimates.get(row.module))
        counts = place in elapsed_s and bool(row.done) and row.total is not None
        if row.join:
            durations[place] = 0.0
            unknown += row.id not in expanded and row.state == "pending"
        elif estimate_s is None and not counts:
            durations[place] = 0.0
            unknown += 1
        else:
            known += 1
            if place in elapsed_s:
                durations[place] = left_of_running_s(estimate_s or 0.0, elapsed_s[place], row.done, row.total)
    simulated = forecast(tasks, rules, limits, estimates, selection=selection, durations=durations)
    return Eta(left_s=simulated.makespan_s, unknown=unknown, known=known)


def _in_words(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
