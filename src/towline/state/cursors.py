"""The cursors of one pipeline: open one, or read them from outside (``planning.md`` section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from towline.clock import SystemClock
from towline.state.cursor import Cursor, CursorProgress, CursorRequest
from towline.state.cursor_documents import CursorDocument, SkipRecord, decode_document, last_skips
from towline.state.cursor_home import StoreHome
from towline.state.cursor_keys import CursorKey
from towline.state.cursor_state import Batch
from towline.state.keys import cursor_key, skips_key
from towline.state.query import Query
from towline.state.sync_cursor import SyncCursor

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.clock import Clock
    from towline.state.cursor_home import CursorTarget
    from towline.state.store import StateStore

__all__ = ["Batch", "Cursor", "CursorKey", "CursorProgress", "CursorRequest", "CursorStore", "Query", "SyncCursor"]

Item = TypeVar("Item")
Key = TypeVar("Key", bound=CursorKey)


class CursorStore:
    """Cursor documents in a state store.

    Args:
        scope: Names the program in a target table that several programs share (CUR-12).
    """

    def __init__(self, store: StateStore, *, clock: Clock | None = None, scope: str = "") -> None:
        self._store, self._clock, self._scope = store, clock or SystemClock(), scope

    def home(self, task_id: str, epoch: int, plan_id: str) -> StoreHome:
        """Return the store's side of a cursor, for one claim of a task."""
        return StoreHome(self._store, task_id, plan_id, epoch, self._clock)

    def request(
        self,
        *,
        key: Callable[[Item], Key],
        stages: tuple[str, ...] = ("done",),
        total: int | None = None,
        query: Query | None = None,
        on_query_change: Literal["fail", "restart"] = "fail",
        checkpoint_interval_s: float = 0.0,
        notify: Callable[[CursorProgress], None] | None = None,
        check: Callable[[], None] | None = None,
        check_ended: Callable[[], None] | None = None,
    ) -> CursorRequest:
        """Put what a body asked for into a record; see ``open``. Raises ``ValueError``."""
        given: dict[str, Any] = {}
        if notify is not None:
            given["notify"] = notify
        if check is not None:
            given["check"] = check
        if (check_ended or check) is not None:
            given["check_ended"] = check_ended or check
        return CursorRequest(
            key=key,
            stages=stages,
            total=total,
            query_digest=None if query is None else query.digest,
            on_query_change=on_query_change,
            checkpoint_interval_s=checkpoint_interval_s,
            scope=self._scope,
            clock=self._clock,
            **given,
        )

    async def open(
        self,
        task_id: str,
        epoch: int,
        plan_id: str,
        *,
        key: Callable[[Item], Key],
        stages: tuple[str, ...] = ("done",),
        total: int | None = None,
        query: Query | None = None,
        on_query_change: Literal["fail", "restart"] = "fail",
        checkpoint_interval_s: float = 0.0,
        store: CursorTarget | None = None,
        notify: Callable[[CursorProgress], None] | None = None,
        check: Callable[[], None] | None = None,
        check_ended: Callable[[], None] | None = None,
    ) -> Cursor[Item, Key]:
        """Open the cursor of one claim where the last attempt left it, and fence older claims.

        Args:
            total: How many items there are; ``None`` takes over what an earlier attempt knew (PLAN-41).
            checkpoint_interval_s: 0 stores at each commit; more gathers commits. A cursor in the target is
                stored at each commit in any case: it must be part of the effect's transaction.
            store: Keep the cursor in the target. Its connection is used by the thread that uses the cursor:
                this one, or a body's, where ``SyncCursor(cursor, ...)`` is made.
            notify: Hears of each move; must not block.
            check: Raises when the attempt was cancelled or has ended: before each batch, after each move.
            check_ended: Raises when nothing may be written any more, before each move; ``check`` if not given.
                Apart, a cancelled body can still store the effect that it has just done (CUR-08).

        Raises:
            LeaseLostError: A later claim or plan has been there (CUR-05).
            CursorStageError, CursorCorruptError, QueryChangedError: CUR-07, CUR-13, CUR-17.
            ValueError: ``stages`` is empty or repeats a name, or the interval is negative.
        """
        request = self.request(
            key=key,
            stages=stages,
            total=total,
            query=query,
            on_query_change=on_query_change,
            checkpoint_interval_s=checkpoint_interval_s,
            notify=notify,
            check=check,
            check_ended=check_ended,
        )
        home = self.home(task_id, epoch, plan_id)
        return Cursor(await home.take(), home, request, store)

    async def read(self, task_id: str) -> CursorDocument | None:
        """Return a task's cursor as it lies in the store. Raises ``CursorCorruptError``."""
        key = cursor_key(task_id)
        entry = await self._store.read(key)
        return None if entry is None else decode_document(entry.data, CursorDocument, task_id, key)

    async def skips(self, task_id: str) -> dict[CursorKey, SkipRecord]:
        """Return the last skip record of each skipped item (CUR-10)."""
        entry = await self._store.read(skips_key(task_id))
        return {} if entry is None else last_skips(entry.data.splitlines(keepends=True))
