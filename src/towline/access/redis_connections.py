"""A few connections to one server, one command at a time on each.

Not the client library's pool, and without its socket timeout: with one, it sends through ``asyncio.wait_for``, which
on Python 3.11 swallows a cancellation that arrives as the bytes leave; the cancelled wait then goes on (COORD-C80).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hiredis import pack_command
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from towline.access.outages import outages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from towline.access.redis_server import RedisServer

PASSING = (ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError, TryAgainError, OSError)
"""What ends by itself: the server is away, loading, failing over. Everything else is final (COORD-R21)."""


def named(error: BaseException) -> str:
    """Return kind and text of an error; many a timeout has no text."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class Connections:
    """Up to ``size`` connections, made on use. ``greet`` runs on each new one before its first command.

    A command that was sent cannot be taken back: cancelled or timed out, it costs its connection, so that no reply
    is ever read by another call (COORD-R22).
    """

    def __init__(
        self,
        server: RedisServer,
        size: int,
        *,
        reply_timeout_s: float,
        greet: Callable[[Any], Awaitable[None]] | None = None,
    ) -> None:
        self._server = server
        self._free = asyncio.Semaphore(size)
        self._reply_timeout_s = reply_timeout_s
        self._greet = greet
        self._idle: list[Any] = []
        self._open: set[Any] = set()

    async def execute(self, *parts: str | bytes | int | float) -> Any:
        """Send a command and return its reply as the server sent it.

        Raises:
            ResponseError: The server refused it; the connection is still good.
            ConnectionError, TimeoutError, OSError: There is no reply; the command may have been executed.
        """
        async with self._free:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                async with asyncio.timeout(self._reply_timeout_s):
                    # In C: a script's twenty keys and arguments cost the client library eight times as much.
                    await connection.send_packed_command(pack_command(parts))  # type: ignore[arg-type]  # any tuple
                    reply = await connection.read_response()
            except ResponseError:
                self._idle.append(connection)
                raise
            except BaseException as error:
                self._note_silence(error)
                await self._drop(connection)
                if isinstance(error, ConnectionError):
                    await self._drop_idle()  # the others died with the same server
                raise
            self._idle.append(connection)
            if outages.are_known:
                outages.answered(self._server.shown, asyncio.get_running_loop().time())
            return reply

    async def _connect(self) -> Any:
        kind: Any = self._server.connection_class()
        connection = kind(**self._server.connection_options())
        self._open.add(connection)
        try:
            async with asyncio.timeout(self._server.command_timeout_s):
                await connection.connect()
                if self._greet is not None:
                    await self._greet(connection)
        except BaseException as error:
            self._note_silence(error)
            await self._drop(connection)
            raise
        return connection

    def _note_silence(self, error: BaseException) -> None:
        if isinstance(error, PASSING) and not isinstance(error, AuthenticationError):
            cause = self._server.masked(named(error))
            # A read that waits at the server may have been answered until a command timeout ago, not longer.
            is_timeout = isinstance(error, TimeoutError | asyncio.TimeoutError)
            waited_s = self._server.command_timeout_s if is_timeout else 0.0
            outages.failed(self._server.shown, asyncio.get_running_loop().time(), cause, waited_s)

    async def _drop(self, connection: Any) -> None:
        self._open.discard(connection)
        await connection.disconnect(nowait=True)

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._drop(self._idle.pop())

    async def aclose(self) -> None:
        """Close all connections; commands in flight end with ``ConnectionError``."""
        self._idle.clear()
        while self._open:
            await self._drop(self._open.pop())
