"""The one connection that hears what changed (COORD-R09, R10)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from towline.coordination.link import Watch

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

    from towline.access.redis_server import RedisServer

_PAUSE_S = 0.1
_STALE_LIMIT = 64
"""Channels without a listener that may stay subscribed; beyond, they are unsubscribed."""


class RedisWatch(Watch):
    """A waiter on some channels."""

    def __init__(self, subscriber: Subscriber, channels: tuple[str, ...]) -> None:
        super().__init__()
        self.channels = channels
        self._said = b""
        self._subscriber = subscriber

    async def __aenter__(self) -> RedisWatch:
        await self._subscriber.add(self)
        return self

    def hear(self, message: bytes) -> None:
        """A message came; what it says is kept until it is taken."""
        self._said = message or self._said
        self.notify()

    def take_said(self) -> bytes:
        """Return what a message said, once; empty when none said anything, which leaves the waiter notified as it is."""
        said = self._said
        if said:
            self.forget()
        return said

    def forget(self) -> None:
        """Drop what came until now: the waiter is about to read, as one that has just entered."""
        self._said = b""
        self._happened.clear()

    def close(self) -> None:
        self._subscriber.remove(self)


class Subscriber:
    """Keeps the subscriptions of all waiters of one coordinator on one connection.

    A lost connection is made anew, and every (re)subscription wakes its waiters, so that each reads again: what was
    published in between is lost (COORD-R10). While the server is away, waiters live by their poll.
    """

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._watches: dict[bytes, dict[RedisWatch, None]] = {}
        self._confirmed: dict[bytes, asyncio.Event] = {}
        self._connection: AbstractConnection | None = None
        self._reader: asyncio.Task[None] | None = None

    async def add(self, watch: RedisWatch) -> None:
        """Listen for a waiter; returns when the server has confirmed, or cannot be reached for now."""
        missing = []
        for name in watch.channels:
            channel = name.encode()
            self._watches.setdefault(channel, {})[watch] = None
            if channel not in self._confirmed:
                self._confirmed[channel] = asyncio.Event()
                missing.append(channel)
        try:
            if self._reader is None:
                self._reader = asyncio.create_task(self._read_forever(), name="towline-redis-subscriber")
            elif missing:
                await self._send("SUBSCRIBE", missing)
            for name in watch.channels:
                await self._confirmation(name.encode())
        except BaseException:
            self.remove(watch)
            raise

    async def _confirmation(self, channel: bytes) -> None:
        from anyio import move_on_after

        confirmed = self._confirmed[channel]
        if not confirmed.is_set():
            with move_on_after(self._server.command_timeout_s):
                await confirmed.wait()

    def remove(self, watch: RedisWatch) -> None:
        """Forget a waiter; its channels stay subscribed for a while, for it often comes back."""
        for name in watch.channels:
            self._watches.get(name.encode(), {}).pop(watch, None)

    async def _send(self, command: str, channels: list[bytes]) -> None:
        """Send to the server if it is there; else the next connection subscribes to all."""
        if self._connection is not None:
            try:
                await self._connection.send_command(command, *channels)
            except (RedisError, OSError):
                return

    async def _read_forever(self) -> None:
        while True:
            try:
                await self._read_connection()
            except (RedisError, OSError):
                self._connection = None
                for confirmed in self._confirmed.values():
                    confirmed.clear()
                await asyncio.sleep(_PAUSE_S)

    async def _read_connection(self) -> None:
        server = self._server
        connection: Any = server.connection_class()(**server.connection_options())
        try:
            await connection.connect()
            await connection.send_command("SUBSCRIBE", *self._confirmed)
            self._connection = connection
            while True:
                kind, channel, said, *_ = await connection.read_response()
                if kind == b"subscribe" and channel in self._confirmed:
                    self._confirmed[channel].set()
                if kind != b"unsubscribe":
                    for watch in list(self._watches.get(channel, ())):
                        watch.hear(said if kind == b"message" else b"")
                await self._drop_stale()
        finally:
            self._connection = None
            await connection.disconnect(nowait=True)

    async def _drop_stale(self) -> None:
        stale = [channel for channel, watches in self._watches.items() if not watches]
        if len(stale) > _STALE_LIMIT:
            for channel in stale:
                del self._watches[channel], self._confirmed[channel]
            await self._send("UNSUBSCRIBE", stale)

    async def aclose(self) -> None:
        """End the connection."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.wait([reader])
