"""Where a cursor is kept: a document of the state store, or a row of the target."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from towline.clock import moment
from towline.errors.cursors import CursorOrderError
from towline.errors.state import LeaseLostError, VersionConflictError
from towline.state.cursor_documents import CursorDocument, SkipRecord, decode_document, encode_document, encode_skip
from towline.state.cursor_fence import take_fence
from towline.state.cursor_keys import is_after, shown
from towline.state.keys import cursor_key, skips_key
from towline.state.shielding import finish
from towline.state.store import ABSENT, ANYTHING, Absent, Fence

if TYPE_CHECKING:
    from towline.clock import Clock
    from towline.state.store import StateStore, Version


class CursorHome(Protocol):
    """The state store's side of one cursor, for one claim. A child process has one that asks its parent."""

    async def take(self) -> CursorDocument:
        """Raise the fence, and return the document as it then is (CUR-05)."""
        ...

    async def save(self, document: CursorDocument) -> None: ...

    async def record_skip(self, record: SkipRecord) -> None: ...

    async def forget_skips(self) -> None: ...


class CursorTarget(Protocol):
    """A cursor kept beside the effects themselves (``SqlCursor``), used in the body's own thread."""

    def take(self, scope: str, task_id: str, plan_id: str, epoch: int, at: str) -> CursorDocument:
        """Raise the fence durably, and return the document as it then is. Raises ``LeaseLostError``."""
        ...

    def save(self, scope: str, document: CursorDocument) -> None:
        """Store in the caller's transaction. Raises ``LeaseLostError`` before it can be committed."""
        ...


class StoreHome:
    """A cursor document and its skip records in a state store."""

    def __init__(self, store: StateStore, task_id: str, plan_id: str, epoch: int, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._task_id, self._key = task_id, cursor_key(task_id)
        self._fence = Fence(epoch, task_id, plan_id)
        self._version: Version | Absent = ABSENT
        self._lock = asyncio.Lock()

    async def take(self) -> CursorDocument:
        at = moment(self._clock.now())
        document, self._version = await take_fence(
            self._store, self._task_id, self._fence.plan_id, self._fence.epoch, at
        )
        return document

    async def save(self, document: CursorDocument) -> None:
        """Store the document; a cancellation waits for it (CUR-08).

        Raises:
            LeaseLostError: A later claim has been there.
            CursorOrderError: Another cursor of this attempt is further on (CUR-06).
        """
        async with self._lock:
            await finish(self._save(document))

    async def record_skip(self, record: SkipRecord) -> None:
        """Add a skip record. Raises ``LeaseLostError``."""
        await finish(self._store.append(skips_key(self._task_id), encode_skip(record) + b"\n", self._fence))

    async def forget_skips(self) -> None:
        """Remove the skip records of a query that no longer counts."""
        await self._store.delete(skips_key(self._task_id), ANYTHING)

    async def _save(self, document: CursorDocument) -> None:
        data = encode_document(document)
        while True:
            try:
                self._version = await self._store.write(self._key, data, self._version)
            except VersionConflictError:
                self._version = await self._judge_conflict(document)
            else:
                return

    async def _judge_conflict(self, document: CursorDocument) -> Version | Absent:
        """Someone else wrote: return the version to replace, if this claim may."""
        entry = await self._store.read(self._key)
        if entry is None:
            return ABSENT  # removed by hand: written anew
        stored = decode_document(entry.data, CursorDocument, self._task_id, self._key)
        if (stored.plan_id, stored.epoch) > (document.plan_id, document.epoch):
            raise LeaseLostError(self._task_id, document.epoch, stored.epoch)
        ours, theirs = document.position, stored.position
        same_claim = (stored.plan_id, stored.epoch) == (document.plan_id, document.epoch)
        if same_claim and theirs is not None and (ours is None or is_after(self._task_id, theirs, ours)):
            raise CursorOrderError(self._task_id, shown(theirs), shown(ours), "another cursor of this attempt wrote it")
        return entry.version
