"""Commands and scripts on one server for a store: repeated while it is away, for a bounded time (STATE-07)."""

from __future__ import annotations

import asyncio
import errno
from hashlib import sha1
from random import Random
from typing import TYPE_CHECKING, Any

from redis.exceptions import AuthenticationError, MovedError, NoScriptError, ResponseError

from towline.access.redis_connections import PASSING, Connections
from towline.access.redis_server import PASSWORD_ADVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from towline.access.redis_server import RedisServer

Argument = str | bytes | int

REPLY_TIMEOUT_S = 10.0
"""For commands of up to 64 MiB; a server that is only slow must not look dead."""
SIZE = 4
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0


class RedisScript:
    """A Lua script and the digest that the server knows it by."""

    __slots__ = ("digest", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


class RedisCalls:
    """A few connections, made on use. Trouble is an ``OSError`` whose text has no secret.

    Args:
        server: Where it is.
        retry_limit_s: How long a server that is away is asked again.
        size: Most connections.
        random: For the pauses between two tries.
    """

    def __init__(
        self, server: RedisServer, *, retry_limit_s: float, size: int = SIZE, random: Random | None = None
    ) -> None:
        self.server = server
        self._retry_limit_s = retry_limit_s
        self._size, self._random = size, random or Random()
        self._connections: Connections | None = None

    async def command(self, *parts: Argument) -> Any:
        """Send a command that may be repeated.

        Raises:
            OSError: ``ETIMEDOUT``: the server has been away for the limit; ``EIO``: it refused; ``EACCES``: the
                password is wrong or missing.
        """

        async def send(connections: Connections, _: bool) -> Any:
            return await connections.execute(*parts)

        return await self._persist(send)

    async def run(
        self,
        script: RedisScript,
        keys: Sequence[str],
        arguments: Callable[[bool], Sequence[Argument]] | Sequence[Argument],
    ) -> list[Any]:
        """Run a script: one atomic step.

        Args:
            arguments: Or a function that makes them; it is told whether an earlier try may have been carried out
                without an answer.

        Raises:
            OSError: As :meth:`command`.
        """

        async def evaluate(connections: Connections, repeated: bool) -> Any:
            given = arguments(repeated) if callable(arguments) else arguments
            tail = (len(keys), *keys, *given)
            try:
                return await connections.execute("EVALSHA", script.digest, *tail)
            except NoScriptError:
                return await connections.execute("EVAL", script.text, *tail)

        reply: list[Any] = await self._persist(evaluate)
        return reply

    async def close(self) -> None:
        """Close all connections; twice without harm. A later call makes new ones."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.aclose()

    async def _persist(self, attempt: Callable[[Connections, bool], Any]) -> Any:
        loop = asyncio.get_running_loop()
        started, pause_s, repeated = loop.time(), FIRST_PAUSE_S, False
        while True:
            try:
                return await attempt(self._open(), repeated)
            except MovedError as moved:
                self.server = self.server.at(moved.host, moved.port)
                await self.close()
                cause: Exception = moved
            except AuthenticationError as error:  # a connection error to the client, but no passing one
                text = f"{self.server.shown} does not let this process in ({error}): {PASSWORD_ADVICE}"
                raise OSError(errno.EACCES, self.server.masked(text)) from error
            except PASSING as error:
                cause = error
            except ResponseError as error:
                raise OSError(errno.EIO, self.server.masked(f"{self.server.shown} refused it: {error}")) from error
            away_s = loop.time() - started
            if away_s >= self._retry_limit_s:
                text = f"{self.server.shown} has been away for {away_s:.1f} s ({type(cause).__name__}: {cause})"
                raise OSError(errno.ETIMEDOUT, self.server.masked(text)) from cause
            await asyncio.sleep(min(pause_s * self._random.uniform(0.5, 1.0), max(0.0, self._retry_limit_s - away_s)))
            pause_s, repeated = min(pause_s * 2, LONGEST_PAUSE_S), True

    def _open(self) -> Connections:
        if self._connections is None:
            timeout_s = max(REPLY_TIMEOUT_S, self.server.command_timeout_s)
            self._connections = Connections(self.server, self._size, reply_timeout_s=timeout_s)
        return self._connections
