"""The coordinators of a worker process whose master listens on this machine (DIST-10)."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from towline.coordination.hub.beside import BesideCoordinator
from towline.coordination.hub.client import HubCoordinator
from towline.coordination.hub.loop_thread import LoopThread
from towline.coordination.hub.loopback import connect
from towline.errors.configuration import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.coordination.contract import MasterCoordinator


class HubCoordinators:
    """Makes doors to the hub. All doors of a run lead to one connection, which is closed by the last of them."""

    def __init__(self, port: int, *, token: str, lost_after_s: float = 60.0) -> None:
        self._port, self._token, self._lost_after_s = port, token, lost_after_s
        self._guard = threading.Lock()
        self._shared: dict[str, _Shared] = {}

    async def create_master(self, run_id: str) -> MasterCoordinator:
        """Refuse: the master is the process that listens."""
        raise ConfigurationError("coordinator", f"port {self._port}", "given", "a worker cannot be the master here")

    async def create_worker(self, run_id: str) -> BesideCoordinator:
        """Open a door to the run's hub."""
        with self._guard:
            shared = self._shared.get(run_id)
            if shared is None:
                hub = HubCoordinator(
                    run_id, lambda: connect(self._port), token=self._token, lost_after_s=self._lost_after_s
                )
                shared = self._shared[run_id] = _Shared(hub)
            shared.doors += 1
        return BesideCoordinator(shared.hub, shared.thread, lambda: self._closed(run_id, shared))

    async def _closed(self, run_id: str, shared: _Shared) -> None:
        with self._guard:
            shared.doors -= 1
            if shared.doors:
                return
            del self._shared[run_id]
        call = shared.thread.call(shared.hub.aclose())
        await asyncio.wrap_future(call.ended)
        await shared.thread.stop()

    async def live_runs(self, program: str) -> Sequence[str]:
        """Return nothing: a worker of this machine is told its run."""
        return ()


class _Shared:
    """The connection of a run, its thread, and how many doors lead to it."""

    def __init__(self, hub: HubCoordinator) -> None:
        self.hub, self.thread = hub, LoopThread("towline-hub")
        self.doors = 0
