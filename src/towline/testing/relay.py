"""A TCP relay that delays, stalls, corrupts and cuts as it is told; between any client and any server.

:class:`Relay` lives in the test's own event loop, :class:`RelayThread` beside processes that a test really starts.
"""

from __future__ import annotations

import asyncio
import threading
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

CHUNK_BYTES = 50_000


class Relay:
    """Forwards bytes to one server, and mistreats them as told; its fields may be changed at any time.

    ``delay_s``: each chunk waits so long. ``cut``, ``corrupt``: the chance per chunk that the connection ends in the
    middle of it, that one of its bits is turned. ``open``: cleared, nothing passes and nobody is told. ``harmed``
    counts chunks that were cut or corrupted.
    """

    def __init__(self, endpoint: str, seed: int) -> None:
        host, _, port = endpoint.rpartition(":")
        self._to = (host, int(port))
        self._random = Random(seed)
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self.delay_s = 0.0
        self.corrupt = self.cut = 0.0
        self.open = asyncio.Event()
        self.open.set()
        self.harmed = 0

    async def start(self, host: str = "127.0.0.1") -> str:
        """Listen on a free port; returns its address."""
        self._server = await asyncio.start_server(self._accept, host, 0)
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Accept nothing more and cut everything; twice without harm, and before it was started too."""
        if self._server is not None:
            self._server.close()
        self.cut_all()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def cut_all(self) -> None:
        """End every connection now; new ones are accepted."""
        for pump in self._pumps:
            pump.cancel()

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

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, both: tuple[asyncio.StreamWriter, ...]
    ) -> None:
        try:
            while data := await source.read(CHUNK_BYTES):
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


class RelayThread:
    """A relay on a loop and thread of its own, for tests that start processes and wait for them.

    ``endpoint`` is where clients connect to while it is entered.
    """

    def __init__(self, endpoint: str, seed: int) -> None:
        self._args = (endpoint, seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="towline-relay", daemon=True)
        self._relay: Relay
        self.endpoint = ""

    def __enter__(self) -> RelayThread:
        self._thread.start()

        async def start() -> str:
            self._relay = Relay(*self._args)
            return await self._relay.start()

        self.endpoint = asyncio.run_coroutine_threadsafe(start(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._relay.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def tell(self, change: Callable[[Relay], object]) -> None:
        """Change the relay in its own thread; returns when it is done."""

        async def call() -> None:
            change(self._relay)

        asyncio.run_coroutine_threadsafe(call(), self._loop).result()
