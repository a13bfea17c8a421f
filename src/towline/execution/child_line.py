"""The line of a body's process to its node: one thread reads, everyone may ask (RUN-32)."""

from __future__ import annotations

import os
import queue
import threading
import traceback
from typing import TYPE_CHECKING, Any

from towline.execution.isolation_messages import (
    HEADER,
    Answer,
    Call,
    End,
    Said,
    Start,
    decode_from_node,
    frame,
    raw,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    import msgspec

    from towline.execution.isolation_messages import FromBody
    from towline.modules.doors import Attempt


class ChildLine:
    """Sends and receives the frames of one body.

    ``attempt`` is told when the node asks for the end; every wait then ends with ``CancelledError``.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writing = threading.Lock()
        self._waiting: dict[int, tuple[Callable[[Answer | None], None], bool]] = {}
        self._guard = threading.Lock()
        self._number = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._body: asyncio.Task[Any] | None = None
        self._loop_thread: int | None = None
        self.attempt: Attempt | None = None
        self.is_ending = False
        self.is_gone = False

    def wait_for_start(self) -> Start:
        """Read the first message, then leave reading to a thread of its own."""
        start = self._receive()
        if not isinstance(start, Start):
            raise EOFError("the node went away before it said what to run")
        threading.Thread(target=self._listen, name="towline-line", daemon=True).start()
        return start

    def enter_loop(self, loop: asyncio.AbstractEventLoop, body: asyncio.Task[Any] | None) -> None:
        """Let the body be a task of this loop: an end cancels it."""
        self._loop, self._body = loop, body
        self._loop_thread = threading.get_ident()
        if self.is_ending and body is not None:
            body.cancel()

    # -------------------------------------------------------------- sending

    def send(self, message: FromBody) -> None:
        """Send one message, whole."""
        data = memoryview(frame(message))
        with self._writing:
            while data:
                data = data[os.write(self._descriptor, data) :]

    def say(self, door: str, **arguments: Any) -> None:
        """Tell the node something."""
        self.send(Said(door=door, arguments=raw(arguments)))

    def ask(self, door: str, *, shielded: bool = False, **arguments: Any) -> msgspec.Raw:
        """Ask a door of the node and wait on this thread.

        ``shielded``: also while the attempt is being ended, for what was done already and is to be recorded.

        Raises:
            CancelledError: The attempt was asked to end.
            Exception: What the door raised.
        """
        answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._ask(door, arguments, answers.put, shielded)
        return self._opened(answers.get())

    async def ask_on_loop(self, door: str, *, shielded: bool = False, **arguments: Any) -> msgspec.Raw:
        """Ask a door of the node; the loop of an async body goes on meanwhile. Elsewhere as :meth:`ask`."""
        loop = self._loop
        if loop is None or threading.get_ident() != self._loop_thread:
            return self.ask(door, shielded=shielded, **arguments)
        answered: asyncio.Future[Answer | None] = loop.create_future()

        def settle(answer: Answer | None) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._ask(door, arguments, lambda answer: _on_loop(loop, settle, answer), shielded)
        return self._opened(await answered)

    def _ask(self, door: str, arguments: dict[str, Any], take: Callable[[Answer | None], None], shielded: bool) -> None:
        with self._guard:
            if self.is_gone or (self.is_ending and not shielded):
                take(None)
                return
            self._number += 1
            number = self._number
            self._waiting[number] = (take, shielded)
        self.send(Call(number=number, door=door, arguments=raw(arguments)))

    def _opened(self, answer: Answer | None) -> msgspec.Raw:
        if answer is None:
            from asyncio import CancelledError

            raise CancelledError("the task was asked to end")
        if answer.error is not None:
            raise answer.error.rebuild()
        return answer.value

    # -------------------------------------------------------------- receiving

    def _listen(self) -> None:
        try:
            self._take_messages()
        except BaseException:  # noqa: BLE001 - a body that no answer reaches would wait for ever
            traceback.print_exc()
            os._exit(1)

    def _take_messages(self) -> None:
        while True:
            message = self._receive()
            if isinstance(message, Answer):
                with self._guard:
                    take, _ = self._waiting.pop(message.number, (None, False))
                if take is not None:
                    take(message)
            else:
                self.is_gone = message is None
                self._end()
                if message is None:
                    return  # the node is gone; the keeper ends this process

    def _receive(self) -> Start | Answer | End | None:
        header = self._read(HEADER.size)
        if header is None:
            return None
        data = self._read(HEADER.unpack(header)[0])
        if data is None:
            return None
        message: Start | Answer | End = decode_from_node(data)
        return message

    def _read(self, count: int) -> bytes | None:
        parts: list[bytes] = []
        while count:
            part = os.read(self._descriptor, min(count, 1 << 20))
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _end(self) -> None:
        """Cancel the attempt: its flag, every wait of its context, and the task of an async body."""
        with self._guard:
            self.is_ending = True
            if self.attempt is not None:
                self.attempt.cancelled = True
            ended = [n for n, (_, shielded) in self._waiting.items() if self.is_gone or not shielded]
            waiting = [self._waiting.pop(number)[0] for number in ended]
        for take in waiting:
            take(None)
        loop, body = self._loop, self._body
        if loop is not None and body is not None:
            _on_loop(loop, lambda _: body.cancel(), None)


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[Any], Any], argument: Any) -> None:
    try:
        loop.call_soon_threadsafe(call, argument)
    except RuntimeError:  # the loop has ended, and the body with it
        return
