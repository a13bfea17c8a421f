"""Frames over TCP with sockets of our own: bodies land where they belong and leave from where they are (OFF-703, OFF-704)."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Self

from towline.access.addresses import format_address, parse_address
from towline.offload.links import Inbox, Link, LinkOwner, Outbox

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from towline.offload.frames import Frame
    from towline.offload.options import OffloadAccess

READS_PER_TURN = 16
"""A link that never runs dry must let the others, and the timers, have their turn."""
IOV_LIMIT = 64
GATHER_BYTES = 256 * 1024
"""Frames are gathered into one system call up to this size."""
SOCKET_BUFFER_BYTES = 4 << 20


class TcpTransport:
    """Listens for links, or dials one each time it is started."""

    def __init__(
        self, host: str, port: int, *, listens: bool, access: OffloadAccess | None = None, timeout_s: float = 5.0
    ) -> None:
        self.host, self.port, self.listens = host, port, listens
        self.access = access
        self.timeout_s = timeout_s
        self._sockets: list[socket.socket] = []
        self._links: set[TcpLink] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    def listen(cls, address: str) -> Self:
        """Accept links at ``HOST:PORT``; port 0 takes a free one, which ``endpoint`` then tells (OFF-623).

        Raises:
            ConfigurationError: The address is none.
        """
        host, port = parse_address(address, "offload address")
        return cls(host, port, listens=True)

    @classmethod
    def connect(cls, address: str) -> Self:
        """Dial ``HOST:PORT`` each time the transport is started.

        Raises:
            ConfigurationError: The address is none.
        """
        host, port = parse_address(address, "offload address", allow_port_zero=False)
        return cls(host, port, listens=False)

    @property
    def endpoint(self) -> str:
        """``HOST:PORT`` in use."""
        return format_address(self.host, self.port)

    async def start(self, on_link: Callable[[Link], None]) -> None:
        """Begin to accept, or make one link.

        Raises:
            OSError: The address is taken, or nobody answers at it in time.
        """
        if self.access is not None and self.access.uses_tls:
            from towline.offload import tls

            self._server = await tls.start(self, on_link)
        elif self.listens:
            self._listen(on_link)
        else:
            on_link(self._link(await self._dial()))

    async def close(self) -> None:
        """Stop accepting and close all links."""
        loop = asyncio.get_running_loop()
        for listener in self._sockets:
            loop.remove_reader(listener.fileno())
            listener.close()
        self._sockets.clear()
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.close("the transport is closed")

    def _listen(self, on_link: Callable[[Link], None]) -> None:
        loop = asyncio.get_running_loop()
        family, kind, proto, _, where = socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            listener.bind(where)
            listener.listen(128)
        except OSError:
            listener.close()
            raise
        self.port = listener.getsockname()[1]
        self._sockets.append(listener)
        loop.add_reader(listener.fileno(), self._accept, listener, on_link)

    def _accept(self, listener: socket.socket, on_link: Callable[[Link], None]) -> None:
        for _ in range(READS_PER_TURN):
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):  # no descriptors: try again when some were closed
                    return
                raise
            on_link(self._link(connection))

    async def _dial(self) -> socket.socket:
        """Try each address of the name in turn, all within ``timeout_s`` (OFF-710)."""
        import anyio

        loop = asyncio.get_running_loop()
        problem: OSError = TimeoutError(f"{self.endpoint} did not answer within {self.timeout_s:g} s")
        with anyio.move_on_after(self.timeout_s):
            for family, kind, proto, _, where in await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
                connection = socket.socket(family, kind, proto)
                connection.setblocking(False)
                connected = False
                try:
                    await loop.sock_connect(connection, where)
                    connected = True
                    return connection
                except OSError as error:
                    problem = error
                finally:
                    if not connected:
                        connection.close()
        raise problem

    def _link(self, connection: socket.socket) -> TcpLink:
        link = TcpLink(connection, self._links.discard)
        self._links.add(link)
        return link


class TcpLink:
    """One plain socket under ``add_reader`` and ``add_writer``; no asyncio transport owns it."""

    def __init__(self, connection: socket.socket, on_closed: Callable[[TcpLink], None]) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._on_closed = on_closed
        self._outbox = Outbox()
        self._inbox: Inbox | None = None
        self._owner: LinkOwner | None = None
        self._pending: deque[memoryview] = deque()
        self._sending: deque[tuple[Frame, int]] = deque()
        self._flush_asked = self._writing = self._reading = False
        self._open = True
        name = connection.getpeername()
        self._peer = format_address(name[0], name[1]) if isinstance(name, tuple) and len(name) >= 2 else str(name)

    @property
    def peer(self) -> str:
        """Address of the other end."""
        return self._peer

    @property
    def queued_bytes(self) -> int:
        """Body bytes that have not left yet."""
        return self._outbox.queued_bytes

    def bind(self, owner: LinkOwner) -> None:
        """Name the owner, and begin to read."""
        self._owner = owner
        self._inbox = Inbox(owner, self._peer)
        self._loop.add_reader(self._socket.fileno(), self._readable)

    def trust(self) -> None:
        """Read large messages."""
        if self._inbox is not None:
            self._inbox.reader.max_meta = 1 << 20

    def send(self, frame: Frame) -> None:
        """Queue a frame; what is queued in one turn of the loop leaves with one system call."""
        if not self._open:
            return
        self._outbox.put(frame)
        if not (self._flush_asked or self._writing or self._reading):
            self._flush_asked = True
            self._loop.call_soon(self._flush_soon)

    def detach(self, pin: int) -> None:
        """Copy what is queued of one buffer, the frames that are half sent too."""
        self._outbox.detach(pin)
        if any(pin in frame.pin for frame, _ in self._sending):
            self._pending = deque(memoryview(bytes(part)) for part in self._pending)

    def close(self, reason: str) -> None:
        """Send what the socket takes at once, and close."""
        if not self._open:
            return
        self._outbox.clear(keep_control=True)
        self._write()
        self._down(reason)

    def _down(self, reason: str) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._outbox.clear()
        self._pending.clear()
        self._sending.clear()
        self._on_closed(self)
        if self._owner is not None:
            self._owner.on_down(reason)

    def _readable(self) -> None:
        """Read what is there; answers that came of it leave in this same turn of the loop."""
        self._reading = True
        try:
            self._read()
        finally:
            self._reading = False
        if self._open and self._outbox and not (self._flush_asked or self._writing):
            self._flush_asked = True
            self._flush_soon()

    def _read(self) -> None:
        inbox = self._inbox
        assert inbox is not None
        for _ in range(READS_PER_TURN):
            into = inbox.reader.buffer()
            try:
                count = self._socket.recv_into(into)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._down(error.strerror or str(error))
                return
            if count == 0:
                self._down("end of stream")
                return
            inbox.received(count, into)
            if not self._open or inbox.broken:
                return
            if count < into.nbytes and count < 65_536:
                return  # the socket is dry: save the call that would say so

    def _flush_soon(self) -> None:
        """Control frames alone wait one more turn, for the bulk ones that often follow them: one system call for both."""
        if self._outbox.holds_bulk:
            self._flush()
        else:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_asked = False
        if self._open and not self._writing:
            self._write()

    def _write(self) -> None:
        """Send until all has left or the socket is full; then wait until it takes more."""
        while self._open:
            self._gather()
            pending = self._pending
            if not pending:
                break
            try:
                if len(pending) == 1:
                    sent = self._socket.send(pending[0])
                else:
                    sent = self._socket.sendmsg(list(islice(pending, IOV_LIMIT)))
            except (BlockingIOError, InterruptedError):
                if not self._writing:
                    self._writing = True
                    self._loop.add_writer(self._socket.fileno(), self._write)
                return
            except OSError as error:
                self._down(error.strerror or str(error))
                return
            self._advance(sent)
        if self._writing and self._open:
            self._writing = False
            self._loop.remove_writer(self._socket.fileno())

    def _gather(self) -> None:
        """Number and encode what leaves next: small frames together, but little of the bulk ahead of its turn."""
        if not self._outbox:
            return
        size = sum([left for _, left in self._sending])
        while size < GATHER_BYTES and len(self._pending) < IOV_LIMIT and (taken := self._outbox.next()) is not None:
            frame, parts = taken
            length = sum([part.nbytes for part in parts])
            self._sending.append((frame, length))
            self._pending.extend(parts)
            size += length

    def _advance(self, sent: int) -> None:
        pending, sending = self._pending, self._sending
        left = sent
        while left and pending:
            first = pending[0]
            if first.nbytes > left:
                pending[0] = first[left:]
                break
            left -= first.nbytes
            pending.popleft()
        while sending and sent >= sending[0][1]:
            frame, length = sending.popleft()
            sent -= length
            if self._outbox.left(frame) and self._owner is not None:
                self._owner.on_flushed(frame)
        if sent and sending:
            frame, length = sending[0]
            sending[0] = (frame, length - sent)


def tls_context(access: OffloadAccess, *, listens: bool) -> ssl.SSLContext:
    """Make the context of one side from the access record."""
    from towline.access.certificates import client_context, server_context
    from towline.errors.configuration import ConfigurationError

    if not listens:
        return client_context(access.tls_ca, access.tls_cert, access.tls_key)
    if access.tls_cert is None:
        raise ConfigurationError("tls_cert", "none", "listening with TLS", "name the certificate of this host")
    return server_context(
        access.tls_cert, access.tls_key, client_ca=access.tls_ca, require_client_cert=access.require_client_cert
    )
