"""The hub on this machine alone: a listener that others on it can reach, and the way to it (DIST-10)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from towline.coordination.hub.wire import StreamWire

if TYPE_CHECKING:
    from towline.coordination.hub.hub import Hub

HOST = "127.0.0.1"


class LoopbackListener:
    """Lets a hub answer on a port of the loopback interface that the system chooses."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._keeping_time: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Begin to listen; returns the port."""
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self._keeping_time = asyncio.get_running_loop().create_task(self._hub.keep_time(), name="towline-hub-time")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._hub.serve(StreamWire(reader, writer))
        finally:
            self._serving.discard(task)

    async def stop(self) -> None:
        """Close the port and every connection; twice without harm, and before the start."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        if self._keeping_time is not None:
            self._keeping_time.cancel()
        self._hub.close()
        if self._serving:
            await asyncio.wait(list(self._serving))
        await server.wait_closed()


async def connect(port: int) -> StreamWire:
    """Reach a hub on this machine.

    Raises:
        OSError: Nobody listens there.
    """
    return StreamWire(*await asyncio.open_connection(HOST, port))
