"""The same frames under TLS: here an asyncio transport owns the socket, and asks for the buffer of each read (OFF-703, OFF-804)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from towline.offload.links import Inbox, Link, LinkOwner, Outbox
from towline.offload.tcp import TcpTransport, tls_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.offload.frames import Frame

WRITE_LIMIT_BYTES = 1 << 20


async def start(transport: TcpTransport, on_link: Callable[[Link], None]) -> asyncio.Server | None:
    """Listen or dial with TLS; raises ``OSError`` (``ssl.SSLError`` is one) where that fails."""
    import anyio

    access = transport.access
    assert access is not None
    loop = asyncio.get_running_loop()
    context = tls_context(access, listens=transport.listens)
    if transport.listens:
        server = await loop.create_server(lambda: TlsLink(on_link), transport.host, transport.port, ssl=context)
        transport.port = server.sockets[0].getsockname()[1]
        return server
    with anyio.fail_after(transport.timeout_s):
        await loop.create_connection(lambda: TlsLink(on_link), transport.host, transport.port, ssl=context)
    return None


class TlsLink(asyncio.BufferedProtocol):
    """One encrypted connection. Bodies still land in their place; leaving, each part is one write."""

    def __init__(self, on_link: Callable[[Link], None]) -> None:
        self._on_link = on_link
        self._transport: asyncio.Transport | None = None
        self._outbox = Outbox()
        self._inbox: Inbox | None = None
        self._owner: LinkOwner | None = None
        self._into = memoryview(b"")
        self._paused = False
        self._reason = "end of stream"
        self._peer = ""

    @property
    def peer(self) -> str:
        """Address of the other end."""
        return self._peer

    @property
    def queued_bytes(self) -> int:
        """Body bytes that have not left yet."""
        return self._outbox.queued_bytes

    def connection_made(self, transport: Any) -> None:
        """The handshake is done."""
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_LIMIT_BYTES)
        name = transport.get_extra_info("peername") or ("", 0)
        self._peer = f"{name[0]}:{name[1]}"
        self._on_link(self)

    def bind(self, owner: LinkOwner) -> None:
        """Name the owner."""
        self._owner = owner
        self._inbox = Inbox(owner, self._peer)

    def trust(self) -> None:
        """Read large messages."""
        if self._inbox is not None:
            self._inbox.reader.max_meta = 1 << 20

    def send(self, frame: Frame) -> None:
        """Queue a frame."""
        if self._transport is not None and not self._transport.is_closing():
            self._outbox.put(frame)
            self._write()

    def detach(self, pin: int) -> None:
        """Copy what is queued; what was written already was encrypted, or copied, by the transport."""
        self._outbox.detach(pin)

    def close(self, reason: str) -> None:
        """Send the control frames, and close."""
        if self._transport is not None and not self._transport.is_closing():
            self._reason = reason
            self._outbox.clear(keep_control=True)
            self._paused = False
            self._write()
            self._transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes go."""
        assert self._inbox is not None
        self._into = self._inbox.reader.buffer()
        return self._into

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes are there."""
        assert self._inbox is not None
        self._inbox.received(nbytes, self._into)

    def eof_received(self) -> bool:
        """The other end is done; so is this one."""
        return False

    def pause_writing(self) -> None:
        """The transport is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """The transport takes more."""
        self._paused = False
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        """The link is gone."""
        self._outbox.clear()
        if self._owner is not None:
            self._owner.on_down(str(exc) if exc is not None else self._reason)

    def _write(self) -> None:
        assert self._transport is not None
        while not self._paused and (taken := self._outbox.next()) is not None:
            frame, parts = taken
            for part in parts:
                self._transport.write(bytes(part))
            if self._outbox.left(frame) and self._owner is not None:
                self._owner.on_flushed(frame)
