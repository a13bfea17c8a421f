"""One connection's side of the protocol as decisions: a message in, what to do out. Nothing here waits or sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from towline.access.tokens import same_secret
from towline.coordination.hub.frames import BAD_MESSAGES, TRY_LATER
from towline.coordination.hub.messages import (
    ASKS,
    Ask,
    Cancel,
    Claim,
    Heartbeat,
    Hello,
    PublishAndClaim,
    PublishOutcome,
    Refusal,
    Register,
    Release,
    Reply,
    Request,
    SendEvents,
    decode,
    encode,
    reply_with,
)
from towline.coordination.hub.refusals import refusal_of
from towline.coordination.records import WIRE, SessionRef
from towline.errors.coordination import CoordinationError, ProgramMismatchError, RecordRefusedError
from towline.errors.hub import HubRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

OPEN_LIMIT = 256
"""Requests of one connection that may be open at once (COORD-H18)."""
FAULT_LIMIT = 3
"""Messages that cannot be read before the connection is closed (COORD-H20)."""

ID_LIMIT = 2**53

_BEFORE_REGISTRATION = ("register", "run_state", "cancel")


class Say(NamedTuple):
    """Send this message."""

    text: bytes


class Start(NamedTuple):
    """Carry out a request, then report its end by ``finished``, ``failed`` or ``stopped``."""

    id: int
    ask: Ask


class Stop(NamedTuple):
    """Cancel a request that was started."""

    id: int


class Close(NamedTuple):
    """End the connection, after what was said before."""

    code: int
    reason: str


Action: TypeAlias = Say | Start | Stop | Close


class Conversation:
    """What one worker may say, and in which order (COORD-H01 to H05, H18, H20).

    ``token``: what the greeting must carry; ``None``: whoever reached this line was let in before.
    """

    def __init__(self, run_id: str, token: str | None) -> None:
        self._run_id, self._token = run_id, token
        self._last_id = self._faults = 0
        self._open: set[int] = set()
        self._is_greeting = False
        self.is_greeted = False
        self.ref: SessionRef | None = None
        """The session that this connection speaks for (COORD-H04)."""

    # ------------------------------------------------------------------ what the worker says

    def heard(self, text: bytes) -> list[Action]:
        """Decide on one message."""
        request_id = 0
        try:
            request = decode(Request, text)
            request_id = self._next_id(request.id)
            ask = self._read(request)
        except CoordinationError as error:
            return self._refused(request_id, error)
        if isinstance(ask, Cancel):
            done = Say(reply_with(request_id, None, None))
            return [Stop(ask.id), done] if ask.id in self._open else [done]
        if len(self._open) >= OPEN_LIMIT:
            why = f"more than {OPEN_LIMIT} requests are open"
            return [
                *self._refused(request_id, HubRefusedError("too_many", why, request.op)),
                Close(TRY_LATER, why),
            ]
        self._is_greeting |= isinstance(ask, Hello)
        self._open.add(request_id)
        return [Start(request_id, ask)]

    def _next_id(self, request_id: int) -> int:
        if not self._last_id < request_id < ID_LIMIT:
            raise RecordRefusedError("id", str(request_id), f"it must be above the last one, {self._last_id}")
        self._last_id = request_id
        return request_id

    def _read(self, request: Request) -> Ask:
        """Read the arguments of a request that is allowed now."""
        kind = ASKS.get(request.op)
        if kind is None:
            raise HubRefusedError("unknown_op", f"there is no operation {request.op[:80]!r}", request.op[:80])
        if kind is Hello:
            return self._greeting(decode(Hello, request.args))
        if not self.is_greeted:
            raise HubRefusedError("unauthorized", "the first message is hello", request.op)
        if self.ref is None and request.op not in _BEFORE_REGISTRATION:
            raise HubRefusedError("not_registered", "this connection has registered no worker", request.op)
        ask = decode(kind, request.args)
        self._check_speaker(ask)
        return ask

    def _greeting(self, hello: Hello) -> Hello:
        if self.is_greeted or self._is_greeting:
            raise RecordRefusedError("op", "hello", "the first message alone")
        if self._token is not None and not same_secret(hello.token or "", self._token):
            raise HubRefusedError("unauthorized", "the token is missing or wrong", "hello")
        if hello.run_id is not None and hello.run_id != self._run_id:
            text = f"this is run {self._run_id!r}, not {hello.run_id[:128]!r}"
            raise HubRefusedError("wrong_run", text, "hello")
        if hello.wire != WIRE:
            raise ProgramMismatchError("wire", str(WIRE), str(hello.wire))
        return hello

    def _check_speaker(self, ask: Ask) -> None:
        """Refuse to act in another worker's name (COORD-H04)."""
        own = self.ref
        if own is None:
            return
        if isinstance(ask, Register):
            same = ask.registration.worker_id == own.worker_id
        else:
            same = all(_is_own(named, own) for named in _named_by(ask))
        if not same:
            raise HubRefusedError("wrong_worker", f"this connection speaks for {own.worker_id}", ask.op)
        if isinstance(ask, PublishOutcome | PublishAndClaim):
            outcome, lease = ask.outcome, ask.lease
            if (outcome.task_id, outcome.epoch) != (lease.task_id, lease.epoch):
                text = f"the outcome is of {outcome.task_id!r}, its lease of {lease.task_id!r}"
                raise HubRefusedError("wrong_worker", text, ask.op)

    def _refused(self, request_id: int, error: CoordinationError) -> list[Action]:
        actions: list[Action] = [Say(encode(Reply(request_id, error=refusal_of(error))))]
        self._faults += isinstance(error, RecordRefusedError)
        if self._faults >= FAULT_LIMIT:
            actions.append(Close(BAD_MESSAGES, "messages that cannot be read"))
        elif isinstance(error, HubRefusedError) and error.code == "unauthorized":
            actions.append(Close(BAD_MESSAGES, "unauthorized"))
        return actions

    # ------------------------------------------------------------------ what became of a request

    def finished(self, request_id: int, ask: Ask, result: Any) -> list[Action]:
        """A request has its result."""
        self._open.discard(request_id)
        if isinstance(ask, Hello):
            self._is_greeting, self.is_greeted = False, True
        if isinstance(ask, Hello | Register) and ask.registration is not None:
            self.ref = ask.registration.ref
        return [Say(reply_with(request_id, ask.reply, result))]

    def failed(self, request_id: int, ask: Ask, error: CoordinationError) -> list[Action]:
        """A request was refused, or went wrong. A greeting may be tried again, without a registration."""
        self._open.discard(request_id)
        if isinstance(ask, Hello):
            self._is_greeting = False
        return [Say(encode(Reply(request_id, error=refusal_of(error))))]

    def stopped(self, request_id: int) -> list[Action]:
        """A request was cancelled by its worker."""
        self._open.discard(request_id)
        return [Say(encode(Reply(request_id, error=Refusal("cancelled", "cancelled by its worker"))))]


def _named_by(ask: Ask) -> Iterable[tuple[str, str | None]]:
    """Name the workers, with their session where it is told, in whose name a request acts."""
    match ask:
        case Heartbeat(status=status):
            yield status.worker_id, status.session
            for lease in status.in_flight:
                yield lease.worker_id, None
        case SendEvents(batch=batch):
            yield batch.worker_id, batch.session
        case Claim(worker=worker):
            yield worker.worker_id, worker.session
        case Release(worker=worker, lease=lease):
            yield worker.worker_id, worker.session
            yield lease.worker_id, None
        case PublishOutcome(outcome=outcome, lease=lease) | PublishAndClaim(outcome=outcome, lease=lease):
            yield outcome.worker_id, None
            yield lease.worker_id, None
            if isinstance(ask, PublishAndClaim):
                yield ask.worker.worker_id, ask.worker.session
            if ask.events is not None:
                yield ask.events.worker_id, ask.events.session
        case _:
            return


def _is_own(named: tuple[str, str | None], own: SessionRef) -> bool:
    worker_id, session = named
    return worker_id == own.worker_id and session in (None, own.session)
