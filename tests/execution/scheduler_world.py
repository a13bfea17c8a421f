"""A world for the scheduler: plans in a few words, and a clock that jumps from end to end."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from towline.execution.limits import ModuleRules, RunLimits
from towline.execution.scheduler import Scheduler
from towline.execution.scheduling import (
    Begin,
    Blocked,
    Cancel,
    Complete,
    Dispatch,
    Expand,
    Finished,
    Grown,
    Settle,
    Stuck,
    Tick,
    WakeAt,
    Withdraw,
)
from towline.planning.records import PlannedTask


def task(name: str, *needs: str, **fields: Any) -> PlannedTask:
    """A planned task; a need is ``name``, or ``name:kind`` for another edge than a value."""
    edges = dict(need.split(":") for need in needs if ":" in need)
    names = tuple(sorted(need.split(":")[0] for need in needs))
    fields.setdefault("module", name)
    return PlannedTask(id=name, depends_on=names, edges=edges or None, **fields)


class World:
    """Runs a plan: each body takes its time and ends as ``ends`` says, else well.

    ``ends``: task id to ``failed``, ``timed_out``, ``skipped``, ``ignored`` (a failure that is), ``blocked``,
    ``abandoned`` (a timeout whose body lives on). ``children``: join id to its rows.
    """

    def __init__(
        self,
        *rows: PlannedTask,
        rules: dict[str, ModuleRules] | None = None,
        ends: dict[str, str] | None = None,
        seconds: dict[str, float] | None = None,
        children: dict[str, list[PlannedTask]] | None = None,
        selection: set[int] | None = None,
        cancel_s: float = 0.0,
        **limits: Any,
    ) -> None:
        limits = {"parallelism": 1000, "cores": 1000, **limits}
        self.rows = list(rows)
        self.ends, self.seconds, self.children = ends or {}, seconds or {}, children or {}
        self.scheduler = Scheduler(
            rows, rules or {}, RunLimits(**limits), self.seconds, selection=selection, starts_at_once=True
        )
        self.cancel_s = cancel_s
        self.now = 0.0
        self.log: list[Any] = []
        self.states: dict[str, str] = {}
        self.codes: dict[str, str] = {}
        self.settled: dict[str, Settle] = {}
        self.started: dict[str, float] = {}
        self.finished: dict[str, float] = {}
        self.order: list[str] = []
        self.running: set[int] = set()
        self.most_running = 0
        self.status: str | None = None
        self.stuck: Stuck | None = None
        self._coming: list[tuple[float, int, Any]] = []
        self._number = 0
        self._void: set[int] = set()

    def at(self, when: float, event: Any) -> None:
        """Let an event come at a moment."""
        self._number += 1
        heappush(self._coming, (when, self._number, event))

    def place(self, name: str) -> int:
        return next(place for place, row in enumerate(self.rows) if row.id == name)

    def run(self, *, until: float = 1e12) -> World:
        """Run until complete, stuck, or nothing comes any more."""
        if not self.log:
            self._tell(Begin())
        while self._coming and self.status is None and self.stuck is None and self._coming[0][0] <= until:
            self.now, number, event = heappop(self._coming)
            if number in self._void:
                continue
            self._tell(event)
        return self

    def _tell(self, event: Any) -> None:
        if isinstance(event, Finished | Blocked):
            if event.task not in self.running and not self.rows[event.task].join:
                return  # it was cancelled first
            self.running.discard(event.task)
            name = self.rows[event.task].id
            self.finished[name] = self.now
            if isinstance(event, Finished):
                self.states.setdefault(name, event.state)
        if isinstance(event, Grown):
            self.rows.extend(row for row in event.tasks if row.id not in {one.id for one in self.rows})
        decisions = self.scheduler.on(event, self.now)
        self.log.append((self.now, event, decisions))
        for decision in decisions:
            self._do(decision)

    def _do(self, decision: Any) -> None:
        match decision:
            case Dispatch(place):
                assert place not in self.running
                row = self.rows[place]
                assert row.id not in self.states, f"{row.id} was final already"
                self.order.append(row.id)
                self.started[row.id] = self.now
                self.running.add(place)
                self.most_running = max(self.most_running, len(self.running))
                self.at(self.now + self.seconds.get(row.id, 1.0), self._end(place, self.ends.get(row.id, "succeeded")))
            case Settle():
                row = self.rows[decision.task]
                assert self.states.get(row.id) in (None, "pending"), f"{row.id} was settled twice"
                self.states[row.id] = decision.state
                self.codes[row.id] = decision.code
                self.settled[row.id] = decision
            case Withdraw(place):
                self.running.discard(place)
            case Cancel(place, code):
                self.codes[self.rows[place].id] = code
                self.at(self.now + self.cancel_s, Finished(place, "cancelled"))
            case Expand(join):
                children = self.children[self.rows[join].id]
                self.at(self.now, Grown(join, tuple(children)))
            case WakeAt(when):
                self.at(when, Tick())
            case Complete(status):
                assert self.status is None
                self.status = status
            case Stuck():
                self.stuck = decision

    def _end(self, place: int, how: str) -> Any:
        if how == "blocked":
            return Blocked(place)
        if how == "ignored":
            return Finished(place, "failed", ignored=True)
        if how == "abandoned":
            return Finished(place, "timed_out", abandoned=True)
        return Finished(place, how)  # type: ignore[arg-type]
