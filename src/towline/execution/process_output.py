"""Taking what a child process writes, and noticing its end, without ever holding it up (CMD-07, CMD-08, RUN-36)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from towline.execution.command_output import CAPTURE_LIMIT, CappedOutput, LineSplitter

if TYPE_CHECKING:
    from collections.abc import Callable


async def wait_until_set(future: asyncio.Future[None], timeout_s: float | None) -> bool:
    """Wait for a future without ever cancelling it; says whether it is set."""
    await asyncio.wait((future,), timeout=timeout_s)
    return future.done()


class ProcessOutput(asyncio.SubprocessProtocol):
    """Gives out the lines of both streams as they come, and keeps the streams up to a cap.

    ``exited`` is set when the process has ended, ``closed`` when nobody holds its output any more: a
    descendant may hold it longer.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        mask: Callable[[str], str],
        on_line: Callable[[str, str], None],
        encoding: str | None,
        limit_bytes: int = CAPTURE_LIMIT,
    ) -> None:
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.kept = {1: CappedOutput(limit_bytes), 2: CappedOutput(limit_bytes)}
        self._lines = {1: LineSplitter(encoding, mask), 2: LineSplitter(encoding, mask)}
        self._on_line = on_line
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.kept[fd].feed(data)
        self._say(fd, self._lines[fd].feed(data))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open and not self.closed.done():
            self.closed.set_result(None)

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)

    def finish(self) -> None:
        """Say the lines that have no end."""
        for fd, splitter in self._lines.items():
            self._say(fd, splitter.end())

    def _say(self, fd: int, lines: list[str]) -> None:
        stream = "stdout" if fd == 1 else "stderr"
        for line in lines:
            self._on_line(stream, line)
