"""The whole contract over any store that can load, compare-and-set and watch one document (COORD-C86).

A custom coordinator is a :class:`Document` and a URL scheme; the ledger in the document does the rest.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from towline.clock.clock import SystemClock
from towline.coordination.client import LinkedCoordinator
from towline.coordination.ledger.apply import apply
from towline.coordination.ledger.state import LedgerState
from towline.coordination.link import Watch
from towline.errors.values import SerializationError

if TYPE_CHECKING:
    from towline.coordination.operations import Operation

R = TypeVar("R")

POLL_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.1


class Document(Protocol):
    """One run's document in a store that all nodes reach. Subclass it."""

    async def load(self) -> tuple[bytes, object]:
        """Return the content and its version; empty content, with a version, when there is no document yet."""
        ...

    async def compare_and_set(self, content: bytes, version: object) -> bool:
        """Replace the content if its version is still this one; durable when it returns. False: somebody was faster."""
        ...

    async def wait_for_change(self, version: object) -> None:
        """Return once the document's version is no longer this one; may return early."""
        ...

    async def now_ms(self) -> int:
        """Return the store's time in milliseconds.

        The default is this node's wall clock: give the store's own where there is one, for leases of nodes whose
        clocks differ are judged by it (COORD-C07).
        """
        return int(SystemClock.now() * 1000)

    async def aclose(self) -> None:
        """Close what was opened."""


class _Stored(msgspec.Struct):
    """The content of a document. ``clock_ms`` keeps time from stepping back between nodes."""

    schema: int = 1
    clock_ms: int = 0
    ledger: LedgerState = msgspec.field(default_factory=LedgerState)


class DocumentLink:
    """Applies operations to the ledger in a document; a lost race is a new try on the newer content."""

    def __init__(self, document: Document, poll_s: float, random: Random) -> None:
        self.poll_s = poll_s
        self.version: object = None
        self._document = document
        self._random = random

    async def call(self, operation: Operation[R]) -> R:
        """Load, apply, and store what changed; what changes nothing is not stored and wakes nobody."""
        pause_s = _FIRST_PAUSE_S
        while True:
            content, version = await self._document.load()
            self.version = version
            stored = _decode(content)
            now_ms = max(stored.clock_ms, await self._document.now_ms())
            before = msgspec.json.encode(stored.ledger)
            reply, _ = apply(stored.ledger, operation, now_ms)
            if msgspec.json.encode(stored.ledger) == before:
                return reply
            stored.clock_ms = now_ms
            if await self._document.compare_and_set(msgspec.json.encode(stored), version):
                return reply
            await asyncio.sleep(self._random.uniform(0, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def watch(self, key: str) -> Watch:
        """Listen to the document: any change may concern the waiter."""
        return _DocumentWatch(self, self._document)

    async def aclose(self) -> None:
        """Close the document."""
        await self._document.aclose()


class _DocumentWatch(Watch):
    """Waits for a version other than the one before the waiter's last read."""

    def __init__(self, link: DocumentLink, document: Document) -> None:
        super().__init__()
        self._link, self._document = link, document
        self._version: object = None

    async def __aenter__(self) -> _DocumentWatch:
        _, self._version = await self._document.load()
        return self

    async def wait(self, timeout_s: float) -> bool:
        watching = asyncio.ensure_future(self._document.wait_for_change(self._version))
        watching.add_done_callback(lambda _: self.notify())
        try:
            return await super().wait(timeout_s)
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            if not watching.cancelled():
                watching.result()
            # Older than what the waiter reads next: a change in between is noticed at once.
            self._version = self._link.version


def _decode(content: bytes) -> _Stored:
    if not content:
        return _Stored()
    try:
        return msgspec.json.decode(content, type=_Stored)
    except msgspec.MsgspecError as error:
        raise SerializationError("ledger document", str(error)) from error


class LedgerCoordinator(LinkedCoordinator):
    """A coordinator of one run whose state is one document. Good for tens of nodes, not for hundreds of tasks a second."""

    def __init__(
        self, document: Document, run_id: str, *, poll_s: float = POLL_S, random: Random | None = None
    ) -> None:
        super().__init__(DocumentLink(document, poll_s, random or Random()), run_id)
