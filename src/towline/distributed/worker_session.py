"""A worker's session with the coordinator: calls that outlive the loss of its data, and the events of the worker."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeVar

import msgspec

from towline.distributed.data_loss import ride_out
from towline.errors.coordination import RunUnknownError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from towline.coordination.contract import WorkerCoordinator
    from towline.coordination.records import WorkerRegistration
    from towline.distributed.keeper import HeldLeases
    from towline.distributed.spool import Spool

T = TypeVar("T")


class WorkerSession:
    """Knows as whom the worker is registered, and registers it again where it is not any more.

    ``held``: the leases that it names then. ``lost_after_s``: how long a run that is not there is waited for.
    """

    def __init__(
        self,
        coordinator: WorkerCoordinator,
        registration: WorkerRegistration,
        *,
        held: HeldLeases,
        spool: Spool,
        lost_after_s: float,
    ) -> None:
        self._coordinator, self._registration, self._held, self._spool = coordinator, registration, held, spool
        self._lost_after_s = lost_after_s
        self._tokens = itertools.count(1)
        self.ref = registration.ref

    def token(self) -> str:
        """Return a new name for one claim, by which its repetition is known (COORD-C35)."""
        return f"{self._registration.session}-{next(self._tokens)}"

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call, also over the loss of all data; then this session registers again first.

        Raises:
            RunUnknownError: The run has not come back in time.
        """

        async def come_back() -> None:
            if (await self._coordinator.run_state()).state != "unknown":
                await self.register_again()

        return await ride_out(call, limit_s=self._lost_after_s, then=come_back)

    async def register_again(self) -> None:
        """Come back after silence, with what is still held; a run that is not there is waited for by the caller."""
        try:
            await self._coordinator.register(msgspec.structs.replace(self._registration, held=self._held.all()))
        except RunUnknownError:
            return

    async def send_events(self) -> None:
        """Send what the spool holds, until the master's log has all of it or nothing new was to send (EVT-11)."""
        while len(self._spool):
            had_unsent = self._spool.has_unsent
            reply = await self.insist(lambda: self._coordinator.send_events(self._spool.probe()))
            if reply.superseded:
                # A new master leads the run: its owner epoch goes on the events from now on.
                self._spool.owner_epoch = (await self._coordinator.run_state()).owner_epoch
            self._spool.acknowledge(reply)
            if not had_unsent and not self._spool.has_unsent:
                return
