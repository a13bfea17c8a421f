"""A worker's line to its hub: requests and their answers, over connections that come and go (COORD-H08 to H11)."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from towline.coordination.hub.frames import FRAME_LIMIT, GOING_AWAY, TAKEN_OVER
from towline.coordination.hub.messages import Cancel, Hello, Reply, Request, decode, encode
from towline.coordination.hub.refusals import FINAL_CODES, error_of, refusal_of
from towline.errors.coordination import (
    CoordinationError,
    CoordinatorClosedError,
    MasterLostError,
    RecordRefusedError,
    RunUnknownError,
    SessionEndedError,
    SessionReplacedError,
)
from towline.errors.hub import FrameTooLargeError, HubRefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from towline.coordination.hub.messages import Ask
    from towline.coordination.hub.wire import Wire

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
ANSWER_LIMIT_S = 10.0
"""How long a greeting may go without an answer (COORD-H18)."""
HEADROOM_BYTES = 256
"""What a frame needs besides the arguments of its request."""


class OpenRequest:
    """A request that waits for its answer, over any number of connections."""

    __slots__ = ("answer", "args", "ask", "sent_as")

    def __init__(self, ask: Ask, args: bytes, answer: asyncio.Future[Any]) -> None:
        self.ask, self.args, self.answer = ask, args, answer
        self.sent_as: int | None = None


class Line:
    """Connects on first use, and again whenever a connection breaks; open requests are then sent again.

    Every request may be repeated: claims by their token, outcomes and events because the first one counts.

    Args:
        open_wire: Makes a connection; raises ``OSError`` when the hub cannot be reached.
        greeting: The first message of each connection, with the session that this line speaks for.
        lost_after_s: How long the hub may be away before the line is given up (COORD-H08).
    """

    def __init__(
        self,
        run_id: str,
        open_wire: Callable[[], Awaitable[Wire]],
        greeting: Callable[[], Hello],
        *,
        lost_after_s: float,
        random: Random | None = None,
        frame_limit_bytes: int = FRAME_LIMIT,
    ) -> None:
        self.lost_after_s = lost_after_s
        self._run_id, self._open_wire, self._greeting = run_id, open_wire, greeting
        self._random = random or Random()
        self._limit_bytes = frame_limit_bytes
        self._open: dict[OpenRequest, None] = {}
        self._sent: dict[int, OpenRequest] = {}
        self._last_id = 0
        self._wire: Wire | None = None
        """The connection that has been greeted."""
        self._keeping: asyncio.Task[None] | None = None
        self._ended: CoordinationError | None = None

    # ------------------------------------------------------------------ requests

    async def ask(self, ask: Ask) -> Any:
        """Send a request and return its answer; a cancelled one is cancelled at the hub too.

        Raises:
            FrameTooLargeError: It is larger than a frame may be; nothing was sent (COORD-H19).
            MasterLostError: The hub has been away for too long.
            CoordinationError: It was refused.
        """
        request = self.start(ask)
        try:
            await asyncio.wait([request.answer])
        except asyncio.CancelledError:
            self.cancel(request)
            self.forget(request)
            raise
        return request.answer.result()

    def start(self, ask: Ask) -> OpenRequest:
        """Send a request whose answer is awaited elsewhere."""
        if self._ended is not None:
            raise self._ended
        args = encode(ask)
        if len(args) + HEADROOM_BYTES > self._limit_bytes:
            raise FrameTooLargeError(ask.op, len(args), self._limit_bytes)
        loop = asyncio.get_running_loop()
        request = OpenRequest(ask, args, loop.create_future())
        self._open[request] = None
        if self._keeping is None:
            self._keeping = loop.create_task(self._keep_connected(), name="towline-line")
        if self._wire is not None:
            self._send(self._wire, request)
        return request

    def cancel(self, request: OpenRequest) -> None:
        """Ask the hub to end a request; its answer follows, whatever it is."""
        if self._wire is not None and request.sent_as is not None:
            self._post(self._wire, Cancel.op, encode(Cancel(request.sent_as)))

    def forget(self, request: OpenRequest) -> None:
        """Drop a request whose answer nobody awaits any more; twice without harm."""
        self._open.pop(request, None)
        if request.sent_as is not None:
            self._sent.pop(request.sent_as, None)

    def _send(self, wire: Wire, request: OpenRequest) -> None:
        request.sent_as = self._post(wire, request.ask.op, request.args)
        self._sent[request.sent_as] = request

    def _post(self, wire: Wire, op: str, args: bytes) -> int:
        self._last_id += 1
        wire.send(encode(Request(self._last_id, op, msgspec.Raw(args))))
        return self._last_id

    # ------------------------------------------------------------------ connections

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        away_since, pause_s = loop.time(), FIRST_PAUSE_S
        while True:
            try:
                code = await self._one_connection()
            except (OSError, _NoAnswerError, CoordinationError) as error:
                away_s = loop.time() - away_since
                if isinstance(error, CoordinationError) and _is_final(error):
                    self._end(error)
                    return
                if away_s >= self.lost_after_s:
                    self._end(MasterLostError(self._run_id, away_s, self.lost_after_s))
                    return
                await asyncio.sleep(pause_s * self._random.random())
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            if code == TAKEN_OVER:
                self._end(self._taken_over())
                return
            away_since, pause_s = loop.time(), FIRST_PAUSE_S

    async def _one_connection(self) -> int | None:
        """Connect, say hello, converse to the end; raises only for what went wrong before the answer to hello."""
        wire = await self._open_wire()
        try:
            await self._greet(wire)
            return await self._converse(wire)
        finally:
            wire.close(GOING_AWAY, "")

    async def _greet(self, wire: Wire) -> None:
        """Say hello; a session that the hub has ended is told to whoever asks, and the line goes on without it."""
        self._last_id = 0
        self._sent.clear()
        hello = self._greeting()
        try:
            await self._say_hello(wire, hello)
        except (SessionEndedError, RunUnknownError) as error:
            self._answer_all(error)
            await self._say_hello(wire, Hello(library=hello.library, run_id=hello.run_id, token=hello.token))

    async def _say_hello(self, wire: Wire, hello: Hello) -> None:
        self._post(wire, Hello.op, encode(hello))
        receiving = asyncio.ensure_future(wire.receive())
        try:
            await asyncio.wait([receiving], timeout=ANSWER_LIMIT_S)
        finally:
            if not receiving.done():
                receiving.cancel()
        text = receiving.result() if receiving.done() and not receiving.cancelled() else None
        if text is None:
            raise _NoAnswerError
        reply = decode(Reply, text)
        if reply.error is not None:
            raise error_of(reply.error, Hello.op)

    async def _converse(self, wire: Wire) -> int | None:
        """Send what is open and take answers until the connection ends; returns why it did, if that was said."""
        self._wire = wire
        try:
            for request in list(self._open):
                self._send(wire, request)
            while (text := await wire.receive()) is not None:
                self._take(decode(Reply, text))
        except RecordRefusedError:
            wire.close(GOING_AWAY, "an answer cannot be read")
        finally:
            self._wire = None
            for request in self._open:
                request.sent_as = None
        return wire.close_code

    def _take(self, reply: Reply) -> None:
        request = self._sent.pop(reply.id, None)
        if request is None:
            return  # of a cancel, or of a request that was given up
        self._open.pop(request, None)
        if request.answer.done():
            return
        try:
            if reply.error is not None:
                raise error_of(reply.error, request.ask.op)
            request.answer.set_result(decode(request.ask.reply, _result_of(reply)))
        except CoordinationError as error:
            _refuse(request, error)

    def _taken_over(self) -> CoordinationError:
        registration = self._greeting().registration
        if registration is None:
            return HubRefusedError("session_replaced", "another connection speaks for this session")
        return SessionReplacedError(registration.worker_id, registration.session, registration.session)

    # ------------------------------------------------------------------ the end

    def _answer_all(self, error: CoordinationError) -> None:
        requests, self._open = list(self._open), {}
        self._sent.clear()
        for request in requests:
            _refuse(request, error)

    def _end(self, error: CoordinationError) -> None:
        self._ended = error
        self._answer_all(error)

    async def aclose(self) -> None:
        """Hang up; requests that are open, and later ones, raise. Twice without harm."""
        if self._ended is None or not isinstance(self._ended, CoordinatorClosedError):
            self._end(CoordinatorClosedError("a call"))
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.cancel()
            await asyncio.wait([keeping])


class _NoAnswerError(Exception):
    """The connection ended before the greeting was answered: one more failed try (COORD-H10)."""


def _is_final(error: CoordinationError) -> bool:
    """Whether a refused greeting will be refused for ever (COORD-H10)."""
    code = error.code if isinstance(error, HubRefusedError) else refusal_of(error).code
    return code in FINAL_CODES


def _result_of(reply: Reply) -> msgspec.Raw:
    return msgspec.Raw(b"null") if isinstance(reply.ok, msgspec.UnsetType) else reply.ok


def _refuse(request: OpenRequest, error: CoordinationError) -> None:
    """Answer with an error, which may concern nobody any more."""
    if not request.answer.done():
        request.answer.set_exception(error)
        request.answer.exception()  # seen: nobody is warned of an answer that was not awaited
