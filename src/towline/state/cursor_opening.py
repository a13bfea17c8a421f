"""Choose the place where a cursor goes on (CUR-07, 12, 17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.clock import moment
from towline.errors.cursors import CursorCorruptError, QueryChangedError
from towline.state.cursor_documents import Totals
from towline.state.keys import cursor_key

if TYPE_CHECKING:
    from towline.state.cursor import CursorRequest
    from towline.state.cursor_documents import CursorDocument
    from towline.state.cursor_home import CursorTarget


def place_of(stored: CursorDocument, request: CursorRequest, target: CursorTarget | None) -> CursorDocument:
    """Return the document that counts: the state store's, or the target's, whose fence is raised.

    Raises:
        CursorCorruptError: The cursor is kept in the target, which was not given.
        LeaseLostError: The target has seen a later claim.
    """
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
    if kept.made != stored.made:
        # A resume cannot reach into the target when it drops the cursor of a changed task (PLAN-34): the row is
        # still there, and would let the new body pass over every item.
        _forget_place(kept)
        kept.made = stored.made
    if kept.key is None and stored.key is not None and not stored.in_target:
        # Until now the cursor was a file: it is at most behind the target, never ahead of it (CUR-03).
        kept.key, kept.stage, kept.at_end = stored.key, stored.stage, stored.at_end
        kept.totals, kept.continuation = stored.totals, stored.continuation
    kept.in_target = True
    return kept


def take_query(document: CursorDocument, request: CursorRequest) -> bool:
    """Take total and query into the document; returns whether that put it back to its beginning.

    Raises:
        QueryChangedError: The stored place belongs to another query, and the body does not want to restart.
    """
    stored = document.continuation.query_digest if document.continuation else None
    wanted = request.query_digest
    restart = document.key is not None and stored is not None and wanted is not None and stored != wanted
    if restart:
        if request.on_query_change == "fail":
            raise QueryChangedError(document.task, stored or "", wanted or "")
        _forget_place(document)
    if request.total is not None:
        document.totals.total = request.total
    return restart


def _forget_place(document: CursorDocument) -> None:
    document.key, document.stage, document.at_end = None, None, False
    document.totals, document.continuation = Totals(), None
