"""Environments of the contract kit for coordinators that are made of a link."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from towline.coordination.client import LinkedCoordinator
from towline.coordination.hub import Hub, HubCoordinator, HubCoordinators, LoopbackListener
from towline.coordination.hub.loopback import connect
from towline.coordination.memory import MemoryLink, MemoryRun
from towline.testing.contract_cases.scene import PATIENCE_S, opening_of
from towline.testing.pipe_wire import PipeWire

if TYPE_CHECKING:
    from towline.coordination.contract import WorkerCoordinator
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


class ShiftedRun(MemoryRun):
    """A ledger in this process whose clock a test moves."""

    shift_ms = 0

    def now_ms(self) -> int:
        """Return the time, with what was passed."""
        return super().now_ms() + self.shift_ms


class HubEnv(LinkedEnv):
    """The hub: the master in the process that hosts the ledger, each worker over a connection of its own.

    ``carrier``: ``"socket"`` on this loop, ``"thread"`` with the line on a thread as worker processes have it, or
    ``"pipe"``: in-process links, for a virtual-time loop.
    """

    def __init__(self, carrier: Literal["socket", "thread", "pipe"], *, poll_s: float = 1_000.0) -> None:
        super().__init__()
        self._carrier, self._poll_s = carrier, poll_s
        self._run = ShiftedRun()
        self.hub = Hub(self._run, self.run_id, token="a token of the test", poll_s=poll_s)
        self._listener = LoopbackListener(self.hub)
        self._port = 0
        self._serving: list[asyncio.Task[None]] = []
        self._workers: list[WorkerCoordinator] = []

    async def master(self, **opening: object) -> LinkedCoordinator:
        """Make a coordinator beside the ledger and open the run."""
        coordinator = LinkedCoordinator(MemoryLink(self._run, self._poll_s), self.run_id)
        self.made.append(coordinator)
        await coordinator.open_run(opening_of(self.run_id, self.worker_timeout_s, **opening))
        return coordinator

    async def worker(self) -> WorkerCoordinator:  # type: ignore[override]
        """Make a worker's coordinator; it connects on first use."""
        if self._carrier == "pipe":
            made: WorkerCoordinator = HubCoordinator(self.run_id, self._piped, token=self.hub.token)
        else:
            self._port = self._port or await self._listener.start()
            if self._carrier == "thread":
                made = await HubCoordinators(self._port, token=self.hub.token or "").create_worker(self.run_id)
            else:
                made = HubCoordinator(self.run_id, lambda: connect(self._port), token=self.hub.token)
        self._workers.append(made)
        return made

    async def _piped(self) -> PipeWire:
        near, far = PipeWire.pair()
        self._serving.append(asyncio.ensure_future(self.hub.serve(far)))
        return near

    async def pass_time(self, seconds: float) -> None:
        """Let the ledger believe that time has passed."""
        self._run.shift_ms += round(seconds * 1000)

    async def waiting(self, call: str) -> None:
        """Return once a request of this name is parked at the hub, or the master waits in it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while not self.hub.waiting[call] and not any(one.waiting[call] for one in self.made):
            assert loop.time() < deadline, f"nobody waits in {call}"
            await asyncio.sleep(0.001)

    async def aclose(self) -> None:
        """Close every coordinator, then the hub."""
        for worker in self._workers:
            await worker.aclose()
        await super().aclose()
        await self._listener.stop()
        self.hub.close()
        if self._serving:
            await asyncio.wait(self._serving)
