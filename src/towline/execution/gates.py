"""Blocked gates and what waits for them: all of it stays pending in this run (PLAN-51, PLAN-52)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.execution.links import dependencies
from towline.execution.scheduler_states import BLOCKED, EXPANDED, EXPANDING, UNEXPANDED, WAITING
from towline.execution.scheduling import Settle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from towline.execution.links import Links
    from towline.execution.scheduling import Decision
    from towline.planning.records import PlannedTask

_CAN_BE_HELD = (WAITING, UNEXPANDED, EXPANDING, EXPANDED)


class BlockedGates:
    """The gates that are blocked, and the tasks held behind them, by the gate's place."""

    def __init__(self, states: bytearray, rows: list[PlannedTask], links: Links, parents: dict[int, int]) -> None:
        self._states, self._rows, self._links, self._parents = states, rows, links, parents
        self.blocked: list[int] = []
        self.held: dict[int, int] = {}
        self.released: set[int] = set()
        """Tasks whose always-run dependents have been let go: they need not hear of a later end."""

    def block(self, gate: int, out: list[Decision]) -> list[int]:
        """Take a gate as blocked; returns it and all that it holds from now on."""
        self._states[gate] = BLOCKED
        self.blocked.append(gate)
        behind = [gate]
        for task in behind:
            behind.extend([d for d in self._dependents(task) if self._hold(d, gate, out)])
        return behind

    def hold_newcomer(self, task: int, places: dict[str, int], out: list[Decision]) -> bool:
        """Hold a task that joined the plan behind a blocked gate; says whether it does."""
        for name, _ in dependencies(self._rows[task]):
            before = places[name]
            if before in self.held or self._states[before] == BLOCKED:
                return self._hold(task, self.held.get(before, before), out)
        return False

    def forget(self, task: int) -> None:
        """Let a task go that is final now."""
        if self._states[task] == BLOCKED:
            self.blocked.remove(task)
        self.held.pop(task, None)

    def let_go(self) -> Iterator[int]:
        """Give, at rest, the tasks that take a blocked gate as it is, once for each edge.

        Those are always-run tasks, and the outcomes of the gate itself, which counts as skipped (PLAN-52).
        """
        for task in [*self.blocked, *self.held]:
            if task not in self.released:
                self.released.add(task)
                yield from self._links.always.get(task, ())
                if self._states[task] == BLOCKED:
                    yield from self._links.outcome.get(task, ())

    def _dependents(self, task: int) -> Iterator[int]:
        links = self._links
        yield from links.value[task] or ()
        yield from links.order.get(task, ())
        yield from links.optional.get(task, ())
        if self._states[task] != BLOCKED:  # the outcome of the gate itself is given at the end
            yield from links.outcome.get(task, ())
        if task in self._parents:
            yield self._parents[task]

    def _hold(self, task: int, gate: int, out: list[Decision]) -> bool:
        if task in self.held or self._states[task] not in _CAN_BE_HELD:
            return False
        self.held[task] = gate
        name = self._rows[gate].id
        out.append(Settle(task=task, state="pending", code="blocked", text=f"{name} is blocked", blocked_by=name))
        return True
