"""Locks, pool tickets and processor shares: who may take them, who waits, who comes next (SCHED-06..12)."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from towline.execution.ordering import place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from towline.execution.limits import ModuleRules, RunLimits

RESERVE_AFTER_S: Final = 30.0
"""How long a waiting task is overtaken freely before its rights are reserved (SCHED-10)."""


class Need:
    """What one module takes besides a slot: (right, amount) pairs, and whether it must be alone."""

    __slots__ = ("exclusive", "takes")

    def __init__(self, exclusive: bool, takes: tuple[tuple[int, int], ...]) -> None:
        self.exclusive = exclusive
        self.takes = takes


class Rights:
    """The countable rights of a run; a lock is a pool of one.

    All rights of a task are taken at once or none (SCHED-07). A task that finds one busy waits at that
    one, in order; whenever a right has something to give, the best of those waiting there is put forward.

    Args:
        rules: By module name.
        limits: Tickets and cores that exist.
        is_waiting: Whether a task still waits for rights; others are forgotten where they are met.
        put_forward: Takes the order key of a task whose turn it may be.

    Raises:
        ValueError: A module wants tickets of an unknown pool, or more than exist (SCHED-11).
    """

    def __init__(
        self,
        rules: Mapping[str, ModuleRules],
        limits: RunLimits,
        is_waiting: Callable[[int], bool],
        put_forward: Callable[[int], None],
    ) -> None:
        self._is_waiting = is_waiting
        self._put_forward = put_forward
        self._names: list[str] = []
        self._capacity: list[int] = []
        self._free: list[int] = []
        self._retained: list[int] = []
        self._holders: list[dict[int, int]] = []
        self._queues: list[dict[int, list[int]]] = []
        self._numbers: dict[str, int] = {}
        self._waiting_at: dict[int, int] = {}
        self._waiting_since: dict[int, float] = {}
        self.to_reserve: deque[tuple[float, int, Need]] = deque()
        """Who waits for rights, since when: looked at by ``reserve_overdue``, which need not be called while it is empty."""
        self._long_waiting: dict[int, Need] = {}
        self._reserved: dict[int, int] = {}
        self.needs: dict[str, Need | None] = {name: self._need(name, rule, limits) for name, rule in rules.items()}

    def _need(self, module: str, rule: ModuleRules, limits: RunLimits) -> Need | None:
        takes: list[tuple[int, int]] = []
        if rule.hint == "cpu":
            takes.append((self._number("a processor", max(1, limits.cores)), 1))
        takes.extend((self._number(f"lock {lock}", 1), 1) for lock in sorted(rule.locks))
        for pool, tickets in sorted(rule.pools.items()):
            exist = limits.pools.get(pool, 0)
            if tickets > exist:
                raise ValueError(f"module {module} wants {tickets} tickets of pool {pool!r}, which has {exist}")
            takes.append((self._number(f"pool {pool}", exist), tickets))
        return Need(rule.exclusive, tuple(takes)) if takes or rule.exclusive else None

    def _number(self, name: str, capacity: int) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
            self._capacity.append(capacity)
            self._free.append(capacity)
            self._retained.append(0)
            self._holders.append({})
            self._queues.append({})
        return number

    # -------------------------------------------------------------- taking and giving back

    def take(self, key: int, need: Need, now: float) -> bool:
        """Take all rights that this task needs, or let it wait at the first that it cannot have."""
        free, reserved = self._free, self._reserved
        task = place_of(key)
        for right, amount in need.takes:
            if free[right] < amount or (reserved and reserved.get(right, key) < key):
                self._wait_at(right, amount, key, need, now)
                return False
        for right, amount in need.takes:
            free[right] -= amount
            self._holders[right][task] = amount
        self._forget(task)
        for right, _ in need.takes:
            if free[right]:
                self._next(right)
        return True

    def take_anyway(self, task: int, need: Need) -> None:
        """Count the rights of a task that was found running (PLAN-36)."""
        for right, amount in need.takes:
            self._free[right] -= amount
            self._holders[right][task] = amount

    def give_back(self, task: int, need: Need) -> None:
        """Free what a task held and put forward who waits for it."""
        for right, amount in need.takes:
            del self._holders[right][task]
            self._free[right] += amount
        for right, _ in need.takes:
            self._next(right)

    def drop(self, task: int, need: Need) -> None:
        """Forget a task that will not start; others may have waited behind it."""
        self._forget(task)
        for right, _ in need.takes:
            self._next(right)

    def _wait_at(self, right: int, amount: int, key: int, need: Need, now: float) -> None:
        task = place_of(key)
        heappush(self._queues[right].setdefault(amount, []), key)
        self._waiting_at[task] = right
        if task not in self._waiting_since:
            self._waiting_since[task] = now
            self.to_reserve.append((now, key, need))
        # It may have been put forward for another right, which is then still there for the next one.
        for other, _ in need.takes:
            if other != right:
                self._next(other)

    def _next(self, right: int) -> None:
        free, limit = self._free[right], self._reserved.get(right)
        for amount, queue in self._queues[right].items():
            if amount > free:
                continue
            while queue and not self._waits_here(queue[0], right):
                heappop(queue)
            if queue and (limit is None or queue[0] <= limit):
                key = heappop(queue)
                del self._waiting_at[place_of(key)]
                self._put_forward(key)

    def _waits_here(self, key: int, right: int) -> bool:
        task = place_of(key)
        return self._waiting_at.get(task) == right and self._is_waiting(task)

    # -------------------------------------------------------------- fairness

    def reserve_overdue(self, now: float) -> None:
        """Reserve the rights of tasks that have been passed over for 30 s: nobody behind one may take them."""
        queue = self.to_reserve
        while queue and now - queue[0][0] >= RESERVE_AFTER_S:
            since, key, need = queue.popleft()
            task = place_of(key)
            if self._waiting_since.get(task) == since and self._is_waiting(task):
                self._long_waiting[key] = need
                for right, _ in need.takes:
                    self._reserved[right] = min(key, self._reserved.get(right, key))

    def _forget(self, task: int) -> None:
        self._waiting_at.pop(task, None)
        if self._waiting_since.pop(task, None) is None or not self._long_waiting:
            return
        self._long_waiting = {key: need for key, need in self._long_waiting.items() if place_of(key) != task}
        self._reserved = {}
        for key, need in self._long_waiting.items():
            for right, _ in need.takes:
                self._reserved[right] = min(key, self._reserved.get(right, key))

    # -------------------------------------------------------------- abandoned bodies

    def retain(self, need: Need) -> None:
        """Note that an abandoned body keeps these rights until it ends (RUN-23)."""
        for right, amount in need.takes:
            self._retained[right] += amount

    def end_retention(self, need: Need) -> None:
        """Undo ``retain``; ``give_back`` frees the rights."""
        for right, amount in need.takes:
            self._retained[right] -= amount

    def retained_from(self, need: Need) -> int | None:
        """Return the right that abandoned bodies keep from such a task even if all others give back."""
        for right, amount in need.takes:
            if self._capacity[right] - self._retained[right] < amount:
                return right
        return None

    # -------------------------------------------------------------- words

    def name(self, right: int) -> str:
        """Return a right in words: ``lock db``, ``pool gpu``, ``a processor``."""
        return self._names[right]

    def holders(self, right: int) -> Iterator[int]:
        """Give the tasks that hold some of a right, in the order in which they took it."""
        return iter(self._holders[right])

    def waited_for(self, task: int) -> str | None:
        """Say at which right a task waits, or ``None`` if at none."""
        right = self._waiting_at.get(task)
        return None if right is None else self._names[right]

    def waiting_since(self, task: int) -> float | None:
        """Return when a task was first passed over for want of rights."""
        return self._waiting_since.get(task)
