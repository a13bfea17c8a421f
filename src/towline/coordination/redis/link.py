"""Operations as scripts on the server: repeated while it is away, never sent twice by the client itself (COORD-R20)."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from redis.exceptions import AuthenticationError, MovedError, NoScriptError, ResponseError

from towline.access.redis_connections import PASSING, Connections, named
from towline.access.redis_server import PASSWORD_ADVICE, server_id_of
from towline.coordination import operations as ops
from towline.coordination.records import RunState
from towline.coordination.redis.codec import arguments_of, owner_epoch_of, reply_of
from towline.coordination.redis.keys import RunKeys
from towline.coordination.redis.replies import stored_outcome
from towline.coordination.redis.scripts import script
from towline.coordination.redis.subscriber import RedisWatch, Subscriber
from towline.errors.coordination import (
    CoordinationError,
    CoordinatorAccessError,
    CoordinatorClosedError,
    CoordinatorLostError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from towline.access.redis_server import RedisServer
    from towline.coordination.records import FeedEntry
    from towline.coordination.redis.codec import Argument

R = TypeVar("R")

POLL_S = 2.0
LOST_AFTER_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
SCRIPT_CONNECTIONS = 4
CHUNK_TASKS, CHUNK_BYTES = 500, 1024 * 1024


class RedisLink:
    """One run on a server, for one coordinator. Connections are made on first use (COORD-R23).

    ``time`` is for tests: the moment, or its shift, that scripts take for the server's.
    """

    def __init__(
        self,
        server: RedisServer,
        run_id: str,
        *,
        prefix: str = "towline",
        poll_s: float = POLL_S,
        lost_after_s: float = LOST_AFTER_S,
        random: Random | None = None,
        time: Callable[[], str] | None = None,
    ) -> None:
        self.keys = RunKeys(prefix, run_id)
        self.poll_s, self.lost_after_s = poll_s, lost_after_s
        self.run_id = run_id
        self._server = server
        self._random = random or Random()
        self._time = time or str
        self._server_id = ""
        self._clients: dict[str, Connections] = {}
        self._subscriber = Subscriber(server)
        self._closed = False

    # ------------------------------------------------------------------ calls

    async def call(self, operation: ops.Operation[R]) -> R:
        """Execute one operation; a large enqueue in chunks, in order (COORD-R13)."""
        if isinstance(operation, ops.Enqueue):
            queued: list[bool] = []
            for chunk in _chunks(operation):
                part: tuple[bool, ...] = await self._call(chunk)
                queued.extend(part)
            return tuple(queued)  # type: ignore[return-value]
        reply = await self._call(operation)
        if isinstance(operation, ops.ReadFeed | ops.RequeueExpired):
            return await self.with_outcomes(reply)  # type: ignore[arg-type, return-value]
        return reply

    async def _call(self, operation: ops.Operation[R]) -> R:
        owner_epoch = owner_epoch_of(operation)

        async def evaluate() -> Sequence[Any]:
            client = self._client("scripts")
            name, arguments = arguments_of(operation, await self._known_server(operation))
            return await self._evaluate(client, name, "" if owner_epoch is None else owner_epoch, arguments)

        reply = reply_of(operation, await self.persist(evaluate), self.run_id)
        if isinstance(reply, RunState) and reply.master_timeout_ms:
            self.lost_after_s = reply.master_timeout_ms / 1000
        return reply

    async def _known_server(self, operation: ops.Operation[Any]) -> str:
        """Return the server's id for ``open_run``, which stores it; it is learnt by connecting."""
        if isinstance(operation, ops.OpenRun) and not self._server_id:
            await self._client("scripts").execute("PING")
        return self._server_id

    async def _evaluate(
        self, client: Connections, name: str, owner_epoch: Argument, arguments: Sequence[Argument]
    ) -> Sequence[Any]:
        chosen = script(name)
        tail = (len(self.keys.all), *self.keys.all, self._time(), owner_epoch, *arguments)
        try:
            return await client.execute("EVALSHA", chosen.digest, *tail)  # type: ignore[no-any-return]
        except NoScriptError:
            return await client.execute("EVAL", chosen.text, *tail)  # type: ignore[no-any-return]

    async def with_outcomes(self, entries: Sequence[FeedEntry]) -> tuple[FeedEntry, ...]:
        """Fill in the outcomes that were too large to ride in the feed, with one read (COORD-R12)."""
        missing = [entry.task_id or "" for entry in entries if entry.kind == "finished" and entry.outcome is None]
        if not missing:
            return tuple(entries)

        async def read() -> Sequence[bytes | None]:
            client = self._client("scripts")
            return await client.execute("HMGET", self.keys.outcomes, *missing)  # type: ignore[no-any-return]

        found = dict(zip(missing, await self.persist(read), strict=True))

        def filled(entry: FeedEntry) -> FeedEntry:
            stored = found.get(entry.task_id or "")
            if stored is None or entry.task_id is None or entry.outcome is not None:
                return entry
            return msgspec.structs.replace(entry, outcome=stored_outcome(entry.task_id, stored))

        return tuple(filled(entry) if entry.kind == "finished" else entry for entry in entries)

    async def command(self, *parts: Argument) -> Any:
        """Send a plain command that may be repeated."""

        async def send() -> Any:
            return await self._client("scripts").execute(*parts)

        return await self.persist(send)

    async def read_stream(self, key: str, after: str, limit: int, wait_s: float) -> Sequence[Any]:
        """Return entries of a stream, waiting for the first one at the server: one round trip (COORD-R23)."""

        async def read() -> Sequence[Any]:
            client = self._client(f"stream {key}")
            block_ms = max(1, round(wait_s * 1000))
            found = await client.execute("XREAD", "COUNT", limit, "BLOCK", block_ms, "STREAMS", key, after)
            return found[0][1] if found else ()

        return await self.persist(read)

    # ------------------------------------------------------------------ persistence

    async def persist(self, attempt: Callable[[], Awaitable[R]]) -> R:
        """Repeat an attempt while the server is away; every script may be repeated (COORD-R20).

        Raises:
            CoordinatorLostError: It has been away for the master timeout.
            CoordinatorAccessError: The password is wrong or missing.
            CoordinationError: It refused the command for another reason.
        """
        loop = asyncio.get_running_loop()
        started, pause_s = loop.time(), FIRST_PAUSE_S
        while True:
            if self._closed:
                raise CoordinatorClosedError("a call")
            try:
                return await attempt()
            except MovedError as moved:
                self._server = self._server.at(moved.host, moved.port)
                await self._drop_clients()
                cause: Exception = moved
            except AuthenticationError as error:  # a connection error to the client, but no passing one
                text = self._server.masked(str(error))
                raise CoordinatorAccessError(self._server.shown, text, PASSWORD_ADVICE) from error
            except PASSING as error:
                cause = error
            except ResponseError as error:
                text = self._server.masked(str(error))
                raise CoordinationError(
                    f"{self._server.shown} refused a command on {self.keys.base}*: {text}"
                ) from error
            away_s = loop.time() - started
            if away_s >= self.lost_after_s:
                text = self._server.masked(named(cause))
                raise CoordinatorLostError(self._server.shown, text, away_s) from cause
            await asyncio.sleep(min(pause_s * self._random.uniform(0.1, 1.0), max(0.0, self.lost_after_s - away_s)))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _client(self, purpose: str) -> Connections:
        if purpose not in self._clients:
            server = self._server
            if purpose == "scripts":
                made = Connections(
                    server, SCRIPT_CONNECTIONS, reply_timeout_s=server.command_timeout_s, greet=self._greet
                )
            else:
                made = Connections(server, 1, reply_timeout_s=self.poll_s + server.command_timeout_s)
            self._clients[purpose] = made
        return self._clients[purpose]

    async def _greet(self, connection: Any) -> None:
        """Tell a new connection's server process to the run, before any command on it (COORD-R17)."""
        self._server_id = await server_id_of(connection)
        hello = script("hello")
        tail = (len(self.keys.all), *self.keys.all, self._time(), "", self._server_id)
        await connection.send_command("EVAL", hello.text, *tail)
        await connection.read_response()

    def watch(self, key: str) -> RedisWatch:
        """Listen to the channels of a key."""
        return RedisWatch(self._subscriber, self.keys.channels(key))

    async def _drop_clients(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    async def aclose(self) -> None:
        """Close all connections; calls in flight end with an error."""
        self._closed = True
        await self._subscriber.aclose()
        await self._drop_clients()


def _chunks(operation: ops.Enqueue) -> Iterator[ops.Enqueue]:
    if len(operation.assignments) == 1:
        yield operation
        return
    chunk: list[Any] = []
    size = 0
    for assignment in operation.assignments:
        length = len(msgspec.json.encode(assignment))
        if chunk and (len(chunk) >= CHUNK_TASKS or size + length > CHUNK_BYTES):
            yield msgspec.structs.replace(operation, assignments=tuple(chunk))
            chunk, size = [], 0
        chunk.append(assignment)
        size += length
    yield msgspec.structs.replace(operation, assignments=tuple(chunk))
