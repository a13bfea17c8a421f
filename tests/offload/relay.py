"""A relay between workers and one master that delays, stalls, corrupts and cuts as it is told."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any


class Relay:
    """Forwards bytes between workers and one master, and mistreats them as told."""

    def __init__(self, endpoint: str, seed: int) -> None:
        host, _, port = endpoint.rpartition(":")
        self._to = (host, int(port))
        self._random = Random(seed)
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self.delay_s = 0.0
        self.corrupt = self.cut = 0.0
        self.open: asyncio.Event = asyncio.Event()
        self.open.set()
        self.harmed = 0

    async def start(self, host: str = "127.0.0.1") -> str:
        """Listen on a free port; returns its address."""
        self._server = await asyncio.start_server(self._accept, host, 0)
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Cut everything."""
        assert self._server is not None
        self._server.close()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._to)
        except OSError:
            writer.close()
            return
        for source, target in ((reader, far_writer), (far_reader, writer)):
            pump = asyncio.get_running_loop().create_task(self._pump(source, target, (writer, far_writer)))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: Any, target: Any, both: Any) -> None:
        try:
            while data := await source.read(50_000):
                await self.open.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if self._random.random() < self.cut:
                    self.harmed += 1
                    target.write(data[: len(data) // 2])
                    break
                if self._random.random() < self.corrupt:
                    self.harmed += 1
                    place = self._random.randrange(len(data))
                    data = data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]
                target.write(data)
                await target.drain()
        except OSError:
            return
        finally:
            for writer in both:
                writer.close()
