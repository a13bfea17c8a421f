"""What a round trip costs on this machine before anything of ours: two processes that wake each other, by each way there is.

The bar of a round trip in place is a time, and most of that is the waking of an idle core. Each row is the median of
``TIMES`` runs; the last two are asyncio's share, the readers of two loops with nothing else in them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import select
import socket
import statistics
import time
from collections.abc import Callable

Step = Callable[[], object]
Pair = tuple[socket.socket, socket.socket]

COUNT, TIMES = 2_000, 5


def rows() -> list[tuple[str, float, str, float | None, str]]:
    """Measure each way."""
    ways: list[tuple[str, Callable[[], float]]] = [
        ("eventfd", _by_eventfd),
        ("pipe", _by_pipe),
        ("Unix socket", lambda: _ping_pong(*_blocking(socket.socketpair()))),
        ("TCP", lambda: _ping_pong(*_blocking(_tcp_pair()))),
        ("Unix socket behind epoll", lambda: _ping_pong(*_polled(socket.socketpair()))),
        ("Unix socket, readers of asyncio", lambda: _by_asyncio(socket.socketpair())),
        ("TCP, readers of asyncio", lambda: _by_asyncio(_tcp_pair())),
    ]
    found: list[tuple[str, float, str, float | None, str]] = []
    for label, way in ways:
        seconds = statistics.median(way() for _ in range(TIMES))
        found.append((f"bare round trip of one byte, {label}", seconds * 1e6, "us", None, "the machine's own"))
    return found


def _ping_pong(here: Step, there: Step) -> float:
    """Seconds per round trip; ``here`` sends and waits, ``there`` waits and answers in another process."""
    child = multiprocessing.get_context("fork").Process(target=_for_ever, args=(there,))
    child.start()
    here()
    began = time.perf_counter()
    for _ in range(COUNT):
        here()
    seconds = (time.perf_counter() - began) / COUNT
    child.kill()
    child.join()
    return seconds


def _for_ever(step: Step) -> None:
    while True:
        step()


def _by_eventfd() -> float:
    there, back, one = os.eventfd(0), os.eventfd(0), (1).to_bytes(8, "little")
    return _ping_pong(
        lambda: (os.write(there, one), os.read(back, 8)), lambda: (os.read(there, 8), os.write(back, one))
    )


def _by_pipe() -> float:
    (there, to_there), (here, to_here) = os.pipe(), os.pipe()
    return _ping_pong(
        lambda: (os.write(to_there, b"x"), os.read(here, 1)), lambda: (os.read(there, 1), os.write(to_here, b"x"))
    )


def _tcp_pair() -> Pair:
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


def _blocking(pair: Pair) -> tuple[Step, Step]:
    near, far = pair
    return lambda: (near.send(b"x"), near.recv(1)), lambda: (far.recv(1), far.send(b"x"))


def _polled(pair: Pair) -> tuple[Step, Step]:
    near, far = pair
    polls = []
    for end in pair:
        polls.append(select.epoll())
        polls[-1].register(end, select.EPOLLIN)
    return (
        lambda: (near.send(b"x"), polls[0].poll(), near.recv(1)),
        lambda: (polls[1].poll(), far.recv(1), far.send(b"x")),
    )


def _by_asyncio(pair: Pair) -> float:
    near, far = pair
    for end in pair:
        end.setblocking(False)
    child = multiprocessing.get_context("fork").Process(target=_answer_in_loop, args=(far,))
    child.start()
    began = time.perf_counter()
    asyncio.run(_exchange(near, COUNT))
    seconds = (time.perf_counter() - began) / COUNT
    child.kill()
    child.join()
    return seconds


def _answer_in_loop(end: socket.socket) -> None:
    asyncio.run(_exchange(end, 0))


async def _exchange(end: socket.socket, count: int) -> None:
    """Send and be answered so often; 0: answer for ever."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    left = count

    def readable() -> None:
        nonlocal left
        end.recv(1)
        left -= 1
        if left == 0:
            loop.remove_reader(end)
            done.set_result(None)
        else:
            end.send(b"x")

    loop.add_reader(end, readable)
    if count:
        end.send(b"x")
    await done
