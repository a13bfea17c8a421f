"""Open a cursor where the last attempt left it (CUR-05, 07, 12, 17)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from towline.clock import moment
from towline.errors.cursors import CursorCorruptError, QueryChangedError
from towline.state.cursor import Cursor
from towline.state.cursor_documents import Totals
from towline.state.cursor_state import CursorState
from towline.state.keys import cursor_key
from towline.state.sync_cursor import SyncCursor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from towline.state.cursor import CursorRequest
    from towline.state.cursor_documents import CursorDocument
    from towline.state.cursor_home import CursorHome, CursorTarget


async def open_cursor(home: CursorHome, request: CursorRequest, target: CursorTarget | None = None) -> Cursor[Any, Any]:
    """Open a cursor for an async body; the target, if any, is used in this thread.

    Raises:
        LeaseLostError, CursorStageError, CursorCorruptError, QueryChangedError: see ``CursorStore.open``.
    """
    stored = await home.take()
    document = _document(stored, request, target)
    if restarts(document, request):
        await home.forget_skips()
    return Cursor(CursorState(document, request.key, request.stages), home, request, target)


def open_sync_cursor(
    home: CursorHome,
    request: CursorRequest,
    blocking: Callable[[Callable[[], Awaitable[Any]]], Any],
    target: CursorTarget | None = None,
) -> SyncCursor[Any, Any]:
    """Open a cursor for a sync body, in its own thread: there the target's connection lives.

    blocking: Runs an awaitable where the state store lives, and returns what it gives.
    """
    stored: CursorDocument = blocking(home.take)
    document = _document(stored, request, target)
    if restarts(document, request):
        blocking(home.forget_skips)
    cursor: Cursor[Any, Any] = Cursor(CursorState(document, request.key, request.stages), home, request, target)
    return SyncCursor(cursor, blocking)


def restarts(document: CursorDocument, request: CursorRequest) -> bool:
    """Take total and query into the document; returns whether it was reset to its beginning.

    Raises:
        QueryChangedError: The stored place belongs to another query, and the body does not want to restart.
    """
    stored = document.continuation.query_digest if document.continuation else None
    changed = None not in (stored, request.query_digest) and stored != request.query_digest
    restart = changed and document.key is not None
    if restart:
        if request.on_query_change == "fail":
            raise QueryChangedError(document.task, stored or "", request.query_digest or "")
        document.key, document.stage, document.at_end = None, None, False
        document.totals, document.continuation = Totals(), None
    if request.total is not None:
        document.totals.total = request.total
    return restart


def _document(stored: CursorDocument, request: CursorRequest, target: CursorTarget | None) -> CursorDocument:
    """Choose between the state store's document and the target's."""
    if target is None:
        if stored.in_target and stored.key is not None:
            raise CursorCorruptError(
                stored.task,
                cursor_key(stored.task),
                "this cursor is kept in the target; open it with store=SqlCursor(...)",
            )
        return stored
    at = moment(request.clock.now())
    kept = target.take(request.scope, stored.task, stored.plan_id, stored.epoch, at)
    if kept.key is None and stored.key is not None and not stored.in_target:
        # Until now the cursor was a file: it is at most behind the target, never ahead of it (CUR-03).
        kept.key, kept.stage, kept.at_end = stored.key, stored.stage, stored.at_end
        kept.totals, kept.continuation = stored.totals, stored.continuation
    kept.in_target = True
    return kept
