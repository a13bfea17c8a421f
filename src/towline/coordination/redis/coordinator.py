"""The coordinator on Redis, and the factory behind ``redis://``."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from towline.access.redis_server import COMMAND_TIMEOUT_S, RedisServer
from towline.coordination import operations as ops
from towline.coordination.client import LinkedCoordinator
from towline.coordination.records import Closed, Lease, NoWork
from towline.coordination.redis.link import LOST_AFTER_S, POLL_S, RedisLink
from towline.coordination.redis.replies import event_batch, feed_entry
from towline.coordination.redis.standing import StandingClaim
from towline.errors.coordination import RecordRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from towline.coordination.records import (
        ClaimReply,
        EventBatch,
        FeedEntry,
        LeaseRef,
        OutcomeRecord,
        PublishReply,
        RunCleanupContext,
        RunOpening,
        RunState,
        SessionRef,
    )

T = TypeVar("T")

_log = logging.getLogger("towline.coordination")

_KEPT_BY_CLEAN_UP = "meta"
"""The completion flag lives on for the key life, so that a late worker is sent home (DIST-72)."""


class RedisCoordinator(LinkedCoordinator):
    """A coordinator of one run on a server; the master's reads wait at the server, not for a wake-up."""

    def __init__(self, link: RedisLink, run_id: str) -> None:
        super().__init__(link, run_id)
        self._redis = link
        self._live_runs = ""
        self._key_life_ms = 0
        self._standing: dict[SessionRef, StandingClaim] = {}

    async def open_run(self, opening: RunOpening) -> RunState:
        if opening.key_life_ms < 2 * opening.master_timeout_ms:
            rule = f"at least twice the master timeout ({opening.master_timeout_ms / 1000:g} s)"
            raise RecordRefusedError("the life of Redis keys", f"{opening.key_life_ms / 1000:g} s", rule)
        state = await super().open_run(opening)
        self._live_runs = self._redis.keys.live_runs(opening.program)
        self._key_life_ms = opening.key_life_ms
        await self._list_run()
        await self._warn_about_server()
        return state

    async def beat(self) -> int:
        jumps = await super().beat()
        await self._list_run()
        return jumps

    async def _list_run(self) -> None:
        """Show the run to fleet workers; the key is not of the run's tag, so a cluster may hold it elsewhere."""
        if self._live_runs:
            await self._redis.command("EVAL", _LIST_RUN, 1, self._live_runs, self.run_id, self._key_life_ms)

    async def _warn_about_server(self) -> None:
        """Say once what may lose data (COORD-R26)."""
        memory = await self._redis.command("INFO", "memory")
        policy = _fact(memory, b"maxmemory_policy:")
        if policy and policy != "noeviction":
            _log.warning("Redis may evict keys (maxmemory-policy %s): set it to noeviction", policy)
        role = _fact(await self._redis.command("INFO", "replication"), b"role:")
        if role and role != "master":
            _log.warning("Redis is a %s: point the coordinator at its primary", role)

    async def complete(self) -> None:
        await super().complete()
        if self._live_runs:
            await self._redis.command("ZREM", self._live_runs, self.run_id)

    # ------------------------------------------------------------------ claims that stand (COORD-R11)

    async def claim(self, worker: SessionRef, *, token: str, wait_s: float | None) -> ClaimReply:
        await self._leave_other(worker, token)
        return await super().claim(worker, token=token, wait_s=wait_s)

    async def publish_and_claim(
        self,
        outcome: OutcomeRecord,
        *,
        lease: LeaseRef,
        events: EventBatch | None = None,
        worker: SessionRef,
        token: str,
    ) -> tuple[PublishReply, ClaimReply]:
        await self._leave_other(worker, token)
        both = await super().publish_and_claim(outcome, lease=lease, events=events, worker=worker, token=token)
        standing = self._standing.get(worker)
        if standing is not None and standing.token == token:
            if isinstance(both[1], NoWork):
                standing.go_on()
            else:
                standing.end()
        return both

    async def _leave_other(self, worker: SessionRef, token: str) -> None:
        """Withdraw a claim that still stands under another token, unless its caller waits: nobody would hear of its lease."""
        standing = None if worker in self._claiming else self._standing.get(worker)
        if standing is not None and (other := standing.token) not in ("", token):
            standing.end()
            await self._abandon(worker, other)

    def _claim_on_outcome(self, worker: SessionRef, token: str) -> ops.Claim:
        standing = self._standing.get(worker)
        if standing is not None:
            standing.ask(token, asyncio.get_running_loop().time())
        return ops.Claim(worker=worker, token=token, waits=standing is not None)

    async def _claim_waiting(self, operation: ops.Claim, wait_s: float | None) -> ClaimReply:
        now = asyncio.get_running_loop().time
        standing = await self._standing_claim(operation.worker)
        nothing = NoWork(0)

        async def ask() -> Lease | Closed | None:
            nonlocal nothing
            reply: ClaimReply
            lease = standing.take_granted()
            if lease is not None:
                reply = await self._living(lease, operation, standing.asked_at)
            elif standing.goes_on():
                return None
            else:
                standing.ask(operation.token, now())
                reply = await self._claim_once(operation)
            if isinstance(reply, NoWork):
                nothing = reply
                return None
            return reply

        found: Lease | Closed | None = await self._wait_on(standing.watch, "claim", ask, wait_s)
        if found is None:
            await self._abandon(operation.worker, operation.token)
        standing.end()
        return nothing if found is None else found

    async def _standing_claim(self, worker: SessionRef) -> StandingClaim:
        if worker not in self._standing:
            watch = self._redis.watch(f"work@{worker.worker_id}")
            self._standing[worker] = StandingClaim(worker, await watch.__aenter__())
        return self._standing[worker]

    # ------------------------------------------------------------------ reads that wait at the server

    async def feed(self, *, after: int, limit: int, wait_s: float) -> Sequence[FeedEntry]:
        if wait_s == 0:
            return await super().feed(after=after, limit=limit, wait_s=0)
        keys = self._redis.keys

        async def read(left_s: float) -> Sequence[FeedEntry]:
            found = await self._redis.read_stream(keys.feed, f"{after}-0", limit, left_s)
            return await self._redis.with_outcomes([feed_entry(*entry) for entry in found])

        async def check() -> Sequence[FeedEntry]:
            return await super(RedisCoordinator, self).feed(after=after, limit=limit, wait_s=0)

        return await self._read_waiting("feed", read, check, wait_s)

    async def receive_events(self, *, limit: int, wait_s: float) -> Sequence[EventBatch]:
        if wait_s == 0:
            return await super().receive_events(limit=limit, wait_s=0)

        async def read(left_s: float) -> Sequence[EventBatch]:
            found = await self._redis.read_stream(self._redis.keys.events, "0", limit, left_s)
            return [event_batch(flat) for _, flat in found]

        async def check() -> Sequence[EventBatch]:
            return await super(RedisCoordinator, self).receive_events(limit=limit, wait_s=0)

        return await self._read_waiting("events", read, check, wait_s)

    async def _read_waiting(
        self,
        name: str,
        read: Callable[[float], Coroutine[Any, Any, Sequence[T]]],
        check: Callable[[], Coroutine[Any, Any, Sequence[T]]],
        wait_s: float,
    ) -> Sequence[T]:
        """Read with the wait at the server; between two waits look whether this master still leads the run."""
        now = asyncio.get_running_loop().time
        deadline = now() + wait_s
        while True:
            left_s = min(self._redis.poll_s, deadline - now())
            if left_s <= 0:
                return ()
            self.waiting[name] += 1
            try:
                found = await self._guarded(name, read(left_s))
            finally:
                self.waiting[name] -= 1
            if not found:
                found = await check()
            if found:
                return found

    async def live_runs(self, program: str) -> Sequence[str]:
        """Return the ids of a program's live runs, in the order in which they were opened."""
        found = await self._redis.command("ZRANGE", self._redis.keys.live_runs(program), 0, -1)
        return [run_id.decode() for run_id in found]

    async def clean_up_run(self, context: RunCleanupContext) -> None:
        """Remove the run's keys but the one that says it has completed (DIST-71, 72)."""
        keys = [key for key in self._redis.keys.all if not key.endswith(_KEPT_BY_CLEAN_UP)]
        await self._redis.command("DEL", *keys)


_LIST_RUN = """local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], string.format('%.0f', time[1] * 1000 + ARGV[2]), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', time[1] * 1000))
redis.call('PEXPIRE', KEYS[1], ARGV[2])"""


def _fact(info: bytes, name: bytes) -> str:
    for line in bytes(info).splitlines():
        if line.startswith(name):
            return line[len(name) :].decode().strip()
    return ""


class RedisCoordinators:
    """Makes the coordinators of a ``redis://`` URL; each owns its connections (COORD-R23)."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "towline",
        poll_s: float = POLL_S,
        command_timeout_s: float = COMMAND_TIMEOUT_S,
        lost_after_s: float = LOST_AFTER_S,
        time: Callable[[], str] | None = None,
    ) -> None:
        self.server = RedisServer(url, command_timeout_s=command_timeout_s)
        self._prefix, self._poll_s, self._lost_after_s, self._time = prefix, poll_s, lost_after_s, time

    def _make(self, run_id: str) -> RedisCoordinator:
        link = RedisLink(
            self.server,
            run_id,
            prefix=self._prefix,
            poll_s=self._poll_s,
            lost_after_s=self._lost_after_s,
            time=self._time,
        )
        return RedisCoordinator(link, run_id)

    async def create_master(self, run_id: str) -> RedisCoordinator:
        """Make the master's coordinator of a run."""
        return self._make(run_id)

    async def create_worker(self, run_id: str) -> RedisCoordinator:
        """Make a worker's coordinator of a run."""
        return self._make(run_id)

    async def live_runs(self, program: str) -> Sequence[str]:
        """Return the ids of a program's live runs, oldest first."""
        coordinator = self._make("none")
        try:
            return await coordinator.live_runs(program)
        finally:
            await coordinator.aclose()
