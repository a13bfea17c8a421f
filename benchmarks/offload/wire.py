"""The TCP link beside a raw socket: one way for three sizes, and round trips of 64 bytes. One process on each side."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from towline.offload.frames import Frame, Head
from towline.offload.links import Link
from towline.offload.messages import Data
from towline.offload.tcp import TcpTransport

MIB = 1 << 20
CHUNK = 4 << 20
"""What the protocol cuts arrays into once it has measured a bandwidth like that of this host."""


def raw_one_way(nbytes: int, count: int) -> float:
    """Seconds per message with ``sendall`` and ``recv_into`` of warm arrays; the last byte is answered."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = multiprocessing.get_context("spawn").Process(
        target=_raw_receiver, args=(listener.getsockname()[1], nbytes, count)
    )
    child.start()
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = memoryview(np.ones(nbytes, np.uint8)).cast("B")
    peer.recv(1)
    began = time.perf_counter()
    for _ in range(count):
        peer.sendall(data)
    peer.recv(1)
    seconds = (time.perf_counter() - began) / count
    child.join()
    return seconds


def _raw_receiver(port: int, nbytes: int, count: int) -> None:
    link = socket.create_connection(("127.0.0.1", port))
    into = memoryview(np.zeros(nbytes, np.uint8)).cast("B")
    link.sendall(b"g")
    for _ in range(count):
        got = 0
        while got < nbytes:
            got += link.recv_into(into[got:])
    link.sendall(b"d")


def raw_round_trip(count: int) -> float:
    """Seconds of one round trip of 64 bytes on blocking sockets."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = multiprocessing.get_context("spawn").Process(target=_raw_echo, args=(listener.getsockname()[1],))
    child.start()
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    began = time.perf_counter()
    for _ in range(count):
        peer.sendall(b"x" * 64)
        peer.recv(64)
    seconds = (time.perf_counter() - began) / count
    peer.close()
    child.join()
    return seconds


def _raw_echo(port: int) -> None:
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := link.recv(64):
        link.sendall(data)


class _End:
    """Owner of a link that lands bodies in one warm array, and may answer each whole message."""

    def __init__(self, link: Link, nbytes: int, on_whole: Callable[[], None]) -> None:
        self.link, self.into, self.on_whole = link, memoryview(np.zeros(max(nbytes, 1), np.uint8)).cast("B"), on_whole
        self.flushed: asyncio.Event = asyncio.Event()

    def body_for(self, head: Head) -> Sequence[memoryview] | None:
        data: Any = head.message
        return [self.into[data.offset : data.offset + head.body_bytes]]

    def on_frame(self, head: Head, landed: bool) -> None:
        data: Any = head.message
        if data.offset + head.body_bytes >= data.total:
            self.on_whole()

    def on_bytes(self, count: int) -> None:
        return

    def on_flushed(self, frame: Frame) -> None:
        self.flushed.set()

    def on_broken(self, error: Exception) -> None:
        raise error

    def on_down(self, reason: str) -> None:
        self.on_whole()


def frames_of(array: memoryview) -> list[Frame]:
    """Cut one array into frames, as the protocol does."""
    total = array.nbytes
    return [Frame(Data(1, at, total), (array[at : at + CHUNK],)) for at in range(0, total, CHUNK)]


async def _serve_link(port: int, nbytes: int, count: int) -> None:
    done = asyncio.Event()
    left = count
    ends: list[_End] = []

    def whole() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            ends[0].link.send(Frame(Data(1, 0, 1), (memoryview(b"d"),)))
            done.set()

    transport = TcpTransport.connect(f"127.0.0.1:{port}")
    await transport.start(lambda link: ends.append(_End(link, nbytes, whole)))
    ends[0].link.bind(ends[0])
    ends[0].link.send(Frame(Data(1, 0, 1), (memoryview(b"g"),)))
    await done.wait()
    await asyncio.sleep(0.05)
    await transport.close()


def _link_child(port: int, nbytes: int, count: int) -> None:
    asyncio.run(_serve_link(port, nbytes, count))


async def link_one_way(nbytes: int, count: int) -> float:
    """Seconds per message over the link, the same arrays and the same answer."""
    transport = TcpTransport.listen("127.0.0.1:0")
    ready = asyncio.Event()
    ends: list[_End] = []

    def accept(link: Link) -> None:
        ends.append(_End(link, 1, ready.set))
        link.bind(ends[0])

    await transport.start(accept)
    child = multiprocessing.get_context("spawn").Process(target=_link_child, args=(transport.port, nbytes, count))
    child.start()
    await ready.wait()
    ready.clear()
    frames = frames_of(memoryview(np.ones(nbytes, np.uint8)).cast("B"))
    began = time.perf_counter()
    for _ in range(count):
        for frame in frames:
            ends[0].link.send(frame)
        while ends[0].link.queued_bytes > 8 * MIB:
            ends[0].flushed.clear()
            await ends[0].flushed.wait()
    await ready.wait()
    seconds = (time.perf_counter() - began) / count
    await transport.close()
    child.join()
    return seconds


async def _echo_link(port: int) -> None:
    ended = asyncio.Event()
    transport = TcpTransport.connect(f"127.0.0.1:{port}")
    ends: list[_End] = []
    await transport.start(lambda link: ends.append(_End(link, 64, lambda: None)))
    end = ends[0]
    reply = Frame(Data(1, 0, 64), (memoryview(b"x" * 64),))
    end.on_whole = lambda: end.link.send(reply)
    end.on_down = lambda reason: ended.set()  # type: ignore[method-assign]
    end.link.bind(end)
    await ended.wait()


def _echo_child(port: int) -> None:
    asyncio.run(_echo_link(port))


async def link_round_trip(count: int) -> float:
    """Seconds of one round trip of a frame with 64 bytes; each side answers from the callback that has the frame."""
    transport = TcpTransport.listen("127.0.0.1:0")
    up, done = asyncio.Event(), asyncio.Event()
    ends: list[_End] = []
    frame = Frame(Data(1, 0, 64), (memoryview(b"x" * 64),))
    left = count

    def answered() -> None:
        nonlocal left
        left -= 1
        if left:
            ends[0].link.send(frame)
        else:
            done.set()

    def accept(link: Link) -> None:
        ends.append(_End(link, 64, answered))
        link.bind(ends[0])
        up.set()

    await transport.start(accept)
    child = multiprocessing.get_context("spawn").Process(target=_echo_child, args=(transport.port,))
    child.start()
    await up.wait()
    began = time.perf_counter()
    ends[0].link.send(frame)
    await done.wait()
    seconds = (time.perf_counter() - began) / count
    await transport.close()
    child.join()
    return seconds
