"""The state store on a Redis or Valkey server, for machines that share nothing else (STATE-19 to 23)."""

from __future__ import annotations

import errno
import logging
import secrets
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from towline.access.redis_calls import RedisCalls
from towline.access.redis_keys import PLANS, PipelineKeys, pipeline_of
from towline.access.redis_server import RedisServer
from towline.clock import SystemClock
from towline.errors.state import (
    OwnershipLostError,
    StateAccessError,
    StateLostError,
    StateTooLargeError,
    StateUnsupportedError,
    VersionConflictError,
)
from towline.identity import segment
from towline.state.fences import check_task
from towline.state.keys import checked_key, cursor_key
from towline.state.redis_cancel import CancelRequest, read_holder
from towline.state.redis_ownership import RedisOwnership, take_ownership
from towline.state.redis_plan import RedisPlanMedium
from towline.state.redis_scripts import APPEND, ASK_CANCEL, REMOVE, WRITE
from towline.state.store import DOCUMENT_LIMIT_BYTES, RETRY_LIMIT_S, Absent, Anything, Entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from towline.access.redis_calls import Argument, RedisScript
    from towline.clock import Clock
    from towline.state.store import Fence, Owner, Ownership, Version

T = TypeVar("T")

LEASE_S: Final = 30.0
CANCEL_LIFE_MS: Final = 600_000
"""A request whose holder died is gone after ten minutes; nobody else would heed it anyhow."""

_PAGE: Final = 1000

_log = logging.getLogger("towline.state")


class RedisStateStore:
    """Documents as strings, an index of their keys, a lease and a counter of owner epochs; all in one hash slot.

    Options in the URL: ``state_ttl_s=N``: everything goes N seconds after the last run (default: never);
    ``assume_durable=1``: believe that the server keeps what it says it has, for ``durability="power"``.

    Args:
        url: ``redis://``, ``rediss://`` or ``redis+unix://``.
        pipeline: Whose state it is.
        lease_s: How long the owner keeps the plan without a renewal: the worker timeout (STATE-20).
        retry_limit_s: How long a server that is away is asked again (STATE-07).

    Raises:
        StateUnsupportedError: An option of the URL is no number.
    """

    def __init__(
        self,
        url: str,
        pipeline: str,
        *,
        durability: Literal["process", "power"] = "process",
        clock: Clock | None = None,
        lease_s: float = LEASE_S,
        retry_limit_s: float = RETRY_LIMIT_S,
    ) -> None:
        self.server = RedisServer(url)
        self.keys = PipelineKeys(segment(pipeline))
        self.name = f"{self.server.shown} ({pipeline})"
        self.calls = RedisCalls(self.server, retry_limit_s=retry_limit_s)
        self._power = durability == "power"
        self._clock = clock or SystemClock()
        self._lease_s = lease_s
        self._ownership: RedisOwnership | None = None
        ttl = self.server.option("state_ttl_s")
        if not (ttl or "0").isdigit():
            raise StateUnsupportedError(self.server.shown, f"state_ttl_s={ttl} is no whole number of seconds")
        self.life_ms = int(ttl or 0) * 1000

    async def read(self, key: str) -> Entry | None:
        name = self.keys.document(checked_key(key))
        data = await self._told("reading " + key, self.calls.command("GET", name))
        return None if data is None else Entry(data, version_of(data))

    async def write(
        self, key: str, data: bytes, expect: Version | Absent | Anything, fence: Fence | None = None
    ) -> Version:
        _check_size(checked_key(key), data)
        version = version_of(data)
        expected = _expected(expect)
        reply = await self._fenced(
            WRITE, "writing " + key, key, fence, lambda repeated: (key, expected, data, version, int(repeated))
        )
        _refuse_conflict(key, expect, reply)
        return version

    async def append(self, key: str, line: bytes, fence: Fence) -> None:
        _check_size(checked_key(key), line)
        await self._fenced(APPEND, "appending to " + key, key, fence, lambda repeated: (key, line, int(repeated)))

    async def delete(self, key: str, expect: Version | Anything) -> None:
        checked_key(key)
        expected = _expected(expect)
        reply = await self._fenced(REMOVE, "removing " + key, key, None, lambda _: (key, expected))
        _refuse_conflict(key, expect, reply)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        start, end = f"[{prefix}" if prefix else "-", f"[{prefix}\uffff" if prefix else "+"
        while True:
            page = await self._told(
                "listing " + prefix,
                self.calls.command("ZRANGEBYLEX", self.keys.index, start, end, "LIMIT", 0, _PAGE),
            )
            for name in page:
                yield name.decode()
            if len(page) < _PAGE:
                return
            start = f"({page[-1].decode()}"

    async def acquire(self, owner: Owner) -> Ownership:
        """Become the owner, once the server is known to keep what it is given (STATE-22)."""
        await self._told("looking at the server", self._judge_server())
        ownership = await self._told(
            "acquiring the plan",
            take_ownership(
                self.name,
                self.keys,
                self.calls,
                owner,
                lease_s=self._lease_s,
                life_ms=self.life_ms,
                clock=self._clock,
            ),
        )
        # The thread asks once per interval, and not for longer: a lease that is over must be noticed.
        ownership.start(RedisCalls(self.calls.server, retry_limit_s=0, size=1))
        self._ownership = ownership
        return ownership

    async def now(self) -> float:
        seconds, micros = await self._told("asking for the time", self.calls.command("TIME"))
        return int(seconds) + int(micros) / 1e6

    async def identity(self) -> str:
        """Return what names this state under whatever address the server is reached (DIST-34)."""
        name = self.keys.identity
        await self._told("naming the state", self.calls.command("SET", name, secrets.token_hex(8), "NX"))
        found: bytes = await self._told("naming the state", self.calls.command("GET", name))
        return f"redis:{found.decode()}"

    async def holder(self) -> bytes | None:
        """Return the record of who owns the plan now; ``None`` when nobody does."""
        found: bytes | None = await self._told("looking for the owner", self.calls.command("GET", self.keys.owner))
        return found

    async def ask_to_cancel(self, holder: bytes, by: str) -> bool:
        """Ask this holder to end its run; it hears of it at its next renewal (CTL-28).

        Returns:
            Whether it still holds the plan; if not, nobody was asked.
        """
        known = read_holder(holder)
        request = msgspec.json.encode(CancelRequest(token=known.token if known else "", by=by))
        call = self.calls.run(ASK_CANCEL, (self.keys.owner, self.keys.cancel), (holder, request, CANCEL_LIFE_MS))
        return bool((await self._told("asking for a cancel", call))[0] == b"ok")

    def plan_medium(self, ownership: Ownership | None) -> RedisPlanMedium:
        held = ownership if isinstance(ownership, RedisOwnership) else None
        return RedisPlanMedium(self.name, self.keys, self.calls, held, self.life_ms)

    async def close(self) -> None:
        """Give the ownership back and close all connections."""
        ownership, self._ownership = self._ownership, None
        if ownership is not None:
            await ownership.release()
        await self.calls.close()

    # ------------------------------------------------------------------ inside

    async def _fenced(
        self,
        script: RedisScript,
        doing: str,
        key: str,
        fence: Fence | None,
        arguments: Callable[[bool], Sequence[Argument]],
    ) -> Sequence[Any]:
        """Run a script under a fence.

        A task's fence is in its cursor document. That is read and judged here, by the rule of every store; the
        script then goes on only if the document is still the one that was judged.
        """
        keys = self.keys
        fence_key = (
            keys.document(cursor_key(fence.task)) if fence is not None and fence.task is not None else keys.epoch
        )
        names = (keys.document(key), keys.index, keys.epoch, fence_key)
        while True:
            mark = await self._told(doing, self._mark(fence))
            reply = await self._told(doing, self.calls.run(script, names, self._under(mark, arguments)))
            if reply[0] == b"owner" and fence is not None:
                self._refuse_owner(fence.epoch, int(reply[1]), doing)
            if reply[0] != b"judge":
                return reply

    def _under(
        self, mark: tuple[str, str], arguments: Callable[[bool], Sequence[Argument]]
    ) -> Callable[[bool], Sequence[Argument]]:
        return lambda repeated: (*mark, self.life_ms, *arguments(repeated))

    async def _mark(self, fence: Fence | None) -> tuple[str, str]:
        if fence is None:
            return "", ""
        if fence.task is None:
            return "owner", str(fence.epoch)
        document = await self.calls.command("GET", self.keys.document(cursor_key(fence.task)))
        check_task(fence, document)
        return "task", "" if document is None else version_of(document)

    def _refuse_owner(self, held: int, current: int, doing: str) -> None:
        if current < held:
            raise StateLostError(self.name, doing, f"the server has lost owner epoch {held}, and data with it")
        if self._ownership is not None:
            self._ownership.lose(current)
        raise OwnershipLostError(self.name, held, current)

    async def _judge_server(self) -> None:
        if self._power and self.server.option("assume_durable") != "1":
            settings = await self._settings("append*")
            if settings.get("appendonly") != "yes" or settings.get("appendfsync") != "always":
                found = ", ".join(f"{name} {settings.get(name, 'unknown')}" for name in ("appendonly", "appendfsync"))
                raise StateUnsupportedError(
                    self.server.shown,
                    f"durability power needs appendonly yes and appendfsync always, it has {found} "
                    "(assume_durable=1 in the URL believes it nevertheless)",
                )
        policy = (await self._settings("maxmemory-policy")).get("maxmemory-policy", "noeviction")
        if policy != "noeviction":
            _log.warning("Redis may evict state (maxmemory-policy %s): set it to noeviction", policy)

    async def _settings(self, pattern: str) -> dict[str, str]:
        """Read settings of the server; none where it does not tell them, as hosted ones do."""
        try:
            found = await self.calls.command("CONFIG", "GET", pattern)
        except OSError as error:
            if "refused it" not in str(error):
                raise
            return {}
        return {name.decode(): value.decode() for name, value in zip(found[::2], found[1::2], strict=True)}

    async def _told(self, doing: str, call: Awaitable[T]) -> T:
        """Await a call; its trouble as an error that says what was being done.

        Raises:
            StateLostError: The server could not be asked, or refused.
            StateAccessError: It refused the password.
        """
        try:
            return await call
        except OSError as error:
            raise _trouble(self.name, doing, error) from error


async def pipelines_on(url: str) -> list[str]:
    """Return the pipelines that have a plan on a server, as their keys spell them, sorted.

    Raises:
        StateLostError: It cannot be asked.
        StateAccessError: It refused the password.
    """
    calls = RedisCalls(RedisServer(url), retry_limit_s=0)
    found: set[str] = set()
    cursor: bytes | int = 0
    try:
        while True:
            cursor, page = await calls.command("SCAN", cursor, "MATCH", PLANS, "COUNT", _PAGE)
            found |= {pipeline_of(name.decode()) for name in page}
            if int(cursor) == 0:
                return sorted(found)
    except OSError as error:
        raise _trouble(calls.server.shown, "looking for plans", error) from error
    finally:
        await calls.close()


def version_of(data: bytes) -> Version:
    """Return the version of a document: the SHA-1 of its bytes, which the scripts can compute. It guards nothing."""
    return sha1(data, usedforsecurity=False).hexdigest()


def _trouble(store: str, doing: str, error: OSError) -> StateAccessError | StateLostError:
    kind = StateAccessError if error.errno == errno.EACCES else StateLostError
    return kind(store, doing, error.strerror or str(error))


def _expected(expect: Version | Absent | Anything) -> str:
    if isinstance(expect, Anything):
        return "*"
    return "" if isinstance(expect, Absent) else expect


def _refuse_conflict(key: str, expect: Version | Absent | Anything, reply: Sequence[Any]) -> None:
    if reply[0] == b"conflict":
        raise VersionConflictError(key, expect if isinstance(expect, str) else None, reply[1].decode() or None)


def _check_size(key: str, data: bytes) -> None:
    if len(data) > DOCUMENT_LIMIT_BYTES:
        raise StateTooLargeError(key, len(data), DOCUMENT_LIMIT_BYTES)
