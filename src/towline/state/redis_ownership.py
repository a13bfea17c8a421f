"""Ownership of a plan on Redis: a key that lives for the worker timeout, renewed from a thread (STATE-08 to 10, 20)."""

from __future__ import annotations

import asyncio
import secrets
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from towline.errors.state import OwnershipLostError, OwnerUnreadableError, PlanOwnedError
from towline.state.keys import JOURNAL_KEY, PLAN_KEY
from towline.state.owner_file import epoch_floor
from towline.state.redis_cancel import Holder, asked_by, read_holder
from towline.state.redis_scripts import ACQUIRE, RELEASE, RENEW

if TYPE_CHECKING:
    from towline.access.redis_calls import RedisCalls
    from towline.access.redis_keys import PipelineKeys
    from towline.clock import Clock
    from towline.state.store import Owner

RENEWALS_PER_LEASE: Final = 6
"""With the worker timeout of 30 s: each 5 s, as heartbeats are."""

DATA_LOSS: Final = "the server has lost the state that it had: it was restarted, or restored, without its data"

_HEAD_BYTES: Final = 4096
_LOOK_S: Final = 0.25


class RedisOwnership:
    """The lease on one plan.

    Renewals come from a thread with a connection of its own: a body that blocks the loop costs no lease. Each
    commit of the journal is a renewal as well, so an owner that cannot renew cannot start anything either, for a
    start is a journal record first (STATE-10).
    """

    def __init__(
        self, name: str, keys: PipelineKeys, record: bytes, epoch: int, lease_s: float, life_ms: int, clock: Clock
    ) -> None:
        self.epoch, self.lease_s = epoch, lease_s
        self._name, self._keys, self._record, self._life_ms, self._clock = name, keys, record, life_ms, clock
        self._loop = asyncio.get_running_loop()
        self._lost = asyncio.Event()
        self._loss: OwnershipLostError | None = None
        self._until = clock.monotonic() + lease_s
        self._silent_server = ""
        """Set while renewals are not answered."""
        self._cancelled_by: asyncio.Future[str] = self._loop.create_future()
        self._thread: _Renewals | None = None

    def start(self, calls: RedisCalls) -> None:
        """Begin to renew; ``calls`` belong to the thread from now on."""
        self._thread = _Renewals(self, calls, self.lease_s / RENEWALS_PER_LEASE)
        self._thread.start()

    def check(self) -> None:
        """Raise ``OwnershipLostError`` when it was released, taken over, or not renewed for a whole lease."""
        if self._loss is None and self._clock.monotonic() >= self._until:
            self.lose(0, self._why_it_ran_out())
        if self._loss is not None:
            raise OwnershipLostError(*self._loss.args)

    async def renew(self) -> None:
        """Say that all is well, or raise; the renewals themselves are the thread's."""
        self.check()

    async def release(self) -> None:
        """Stop renewing and give the key back."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.end()
        self.lose(0)

    async def wait_for_loss(self) -> None:
        await self._lost.wait()

    async def wait_for_cancel(self) -> str:
        """Return who asks for an end of the run, once somebody does: at the renewal after it (CTL-28)."""
        return await asyncio.shield(self._cancelled_by)

    def asked_at(self) -> float:
        """Return the moment from which a renewal that is asked for now counts."""
        return self._clock.monotonic()

    def renewed(self, asked_at: float) -> None:
        """Count a renewal from the moment at which it was asked for. Any thread."""
        self._until = max(self._until, asked_at + self.lease_s)
        self._silent_server = ""

    def silent(self, server: str) -> None:
        """Note that a renewal got no answer. Any thread."""
        self._silent_server = server

    def _why_it_ran_out(self) -> str:
        silent_s = self.lease_s - self.time_left_s()
        if self._silent_server:
            return f"no answer from {self._silent_server} for {silent_s:.0f} s"
        return f"it was not renewed for {silent_s:.0f} s, for this process stood still"

    def lose(self, current_epoch: int, cause: str = "") -> None:
        """It is over; the first reason stands. Any thread."""
        if self._loss is None:
            self._loss = OwnershipLostError(self._name, self.epoch, current_epoch, cause)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._lost.set)

    async def renew_once(self, calls: RedisCalls) -> None:
        """Renew at the server; called in the thread.

        Raises:
            OSError: The server cannot be asked.
            OwnershipLostError: Somebody else has it, or the server has lost the data.
        """
        keys, asked_at = self._keys, self.asked_at()
        reply = await calls.run(
            RENEW,
            (keys.owner, keys.epoch, keys.index, keys.base, keys.cancel),
            (self._record, self.epoch, round(self.lease_s * 1000), self._life_ms),
        )
        if reply[0] == b"owner":
            current = int(reply[1])
            self.lose(current, DATA_LOSS if current < self.epoch else "")
            self.check()
        self.renewed(asked_at)
        by = asked_by(reply[1], self._record) if reply[0] == b"ok" else None
        if by is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hear_cancel, by)

    def _hear_cancel(self, by: str) -> None:
        if not self._cancelled_by.done():
            self._cancelled_by.set_result(by)

    def time_left_s(self) -> float:
        """How long the lease lasts without a renewal."""
        return self._until - self._clock.monotonic()

    async def give_back(self, calls: RedisCalls) -> None:
        """Remove the key at the server if it is still ours."""
        await calls.run(RELEASE, (self._keys.owner,), (self._record,))


class _Renewals:
    """Renews until it is ended or the lease is over; gives the key back at its end."""

    def __init__(self, ownership: RedisOwnership, calls: RedisCalls, interval_s: float) -> None:
        self._ownership, self._calls, self._interval_s = ownership, calls, interval_s
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._asked_to_end: asyncio.Event
        self._thread = threading.Thread(target=self._run, name="towline-state-lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        self._own_loop, self._asked_to_end = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        ownership = self._ownership
        try:
            while not await self._stopped_within(self._interval_s):
                try:
                    await self._renew()
                except OwnershipLostError:
                    return
            try:
                await ownership.give_back(self._calls)
            except OSError:
                return  # the key runs out by itself
        finally:
            await self._calls.close()

    async def _renew(self) -> None:
        ownership = self._ownership
        try:
            await ownership.renew_once(self._calls)
        except OSError:
            ownership.silent(self._calls.server.shown)
        ownership.check()  # whoever waits for the loss hears of it now, not at the next write

    async def _stopped_within(self, limit_s: float) -> bool:
        from anyio import move_on_after

        with move_on_after(limit_s):
            await self._asked_to_end.wait()
        return self._asked_to_end.is_set()

    async def end(self) -> None:
        """Stop, and wait until the key is back."""
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._ready.wait()
        assert self._own_loop is not None
        if not self._own_loop.is_closed():
            try:
                self._own_loop.call_soon_threadsafe(self._asked_to_end.set)
            except RuntimeError:
                pass  # it ended between the question and the call
        self._thread.join()


async def take_ownership(
    name: str, keys: PipelineKeys, calls: RedisCalls, owner: Owner, *, lease_s: float, life_ms: int, clock: Clock
) -> RedisOwnership:
    """Become the owner.

    A holder of the same run may be a master that died a moment ago: its lease is watched until it runs out, or is
    renewed, which shows that it lives (DIST-51).

    Raises:
        PlanOwnedError: Somebody holds the plan.
        OwnerUnreadableError: Who holds it cannot be read: it counts as living until its key is gone (STATE-08).
        OSError: The server cannot be asked.
    """
    record = msgspec.json.encode(
        Holder(
            id=owner.id,
            host=owner.host,
            pid=owner.pid,
            run_id=owner.run_id,
            since=owner.since,
            token=secrets.token_hex(8),
        )
    )
    # The plan's own mention counts as well: a counter that was lost must not lower the fence (STATE-09).
    plan = await calls.command("GETRANGE", keys.document(PLAN_KEY), 0, _HEAD_BYTES - 1)
    journal = await calls.command("GETRANGE", keys.document(JOURNAL_KEY), 0, _HEAD_BYTES - 1)
    arguments = (record, round(lease_s * 1000), epoch_floor(plan, journal))
    seen: tuple[bytes, int] | None = None
    while True:
        asked_at = clock.monotonic()
        reply = await calls.run(ACQUIRE, (keys.owner, keys.epoch), arguments)
        if reply[0] == b"ok":
            ownership = RedisOwnership(name, keys, record, int(reply[1]), lease_s, life_ms, clock)
            ownership.renewed(asked_at)
            return ownership
        _, held, left_ms = reply
        holder = read_holder(held)
        if holder is None:
            raise OwnerUnreadableError(name, keys.owner, left_ms / 1000 if left_ms >= 0 else None)
        is_renewed = seen is not None and (held != seen[0] or left_ms > seen[1])
        if is_renewed or holder.run_id != owner.run_id or left_ms < 0:
            raise PlanOwnedError(name, holder.id, holder.run_id, holder.host, holder.pid, holder.since)
        seen = (held, left_ms)
        await asyncio.sleep(_LOOK_S)
