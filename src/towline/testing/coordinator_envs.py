"""Environments of the contract kit for coordinators that are made of a link."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from towline.testing.contract_cases.scene import PATIENCE_S, opening_of

if TYPE_CHECKING:
    from towline.coordination.client import LinkedCoordinator
    from towline.coordination.memory import MemoryCoordinators


class LinkedEnv:
    """A run whose coordinators are :class:`LinkedCoordinator`; subclasses make them and let time pass."""

    worker_timeout_s = 30.0

    def __init__(self, run_id: str = "run-1") -> None:
        self.run_id = run_id
        self.made: list[LinkedCoordinator] = []

    async def make(self, *, master: bool) -> LinkedCoordinator:
        """Make a coordinator; it is closed with the env."""
        raise NotImplementedError

    async def pass_time(self, seconds: float) -> None:
        """Let the back end's clock advance."""
        raise NotImplementedError

    async def master(self, **opening: object) -> LinkedCoordinator:
        """Make a coordinator and open the run."""
        coordinator = await self.worker(master=True)
        await coordinator.open_run(opening_of(self.run_id, self.worker_timeout_s, **opening))
        return coordinator

    async def worker(self, *, master: bool = False) -> LinkedCoordinator:
        """Make a coordinator."""
        coordinator = await self.make(master=master)
        self.made.append(coordinator)
        return coordinator

    async def waiting(self, call: str) -> None:
        """Return once some coordinator waits in this call."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while not any(coordinator.waiting[call] for coordinator in self.made):
            assert loop.time() < deadline, f"nobody waits in {call}"
            await asyncio.sleep(0.001)

    async def aclose(self) -> None:
        """Close every coordinator."""
        for coordinator in self.made:
            await coordinator.aclose()


class MemoryEnv(LinkedEnv):
    """The in-memory coordinator; run its cases on a virtual-time loop.

    The poll is long, so that what wakes a waiter is its notification.
    """

    def __init__(self, coordinators: MemoryCoordinators | None = None, *, poll_s: float = 1_000.0) -> None:
        from towline.coordination.memory import MemoryCoordinators

        super().__init__()
        self.coordinators = coordinators or MemoryCoordinators(poll_s=poll_s)

    async def make(self, *, master: bool) -> LinkedCoordinator:
        """Make a coordinator of this process."""
        create = self.coordinators.create_master if master else self.coordinators.create_worker
        return await create(self.run_id)

    async def pass_time(self, seconds: float) -> None:
        """Sleep: the loop's time is the ledger's."""
        await asyncio.sleep(seconds)


class RedisEnv(LinkedEnv):
    """The Redis coordinator on a real server, in real time; ``pass_time`` shifts the time that its scripts take."""

    def __init__(self, url: str, run_id: str, *, poll_s: float = 30.0) -> None:
        from towline.coordination.redis.coordinator import RedisCoordinators

        super().__init__(run_id)
        self._shift_ms = 0
        self._coordinators = RedisCoordinators(url, poll_s=poll_s, time=lambda: f"+{self._shift_ms}")

    async def make(self, *, master: bool) -> LinkedCoordinator:
        """Make a coordinator with connections of its own."""
        create = self._coordinators.create_master if master else self._coordinators.create_worker
        return await create(self.run_id)

    async def pass_time(self, seconds: float) -> None:
        """Let the scripts believe that time has passed."""
        self._shift_ms += round(seconds * 1000)
