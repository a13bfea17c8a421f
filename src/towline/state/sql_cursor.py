"""A cursor in the target's own database, moved in the transaction of the effect (CUR-12)."""

from __future__ import annotations

from typing import Final

from towline.errors.cursors import TargetPlanError
from towline.errors.state import LeaseLostError
from towline.state.cursor_documents import CursorDocument, decode_document, encode_document
from towline.state.sql_dialect import DbConnection, Sql

TABLE: Final = "towline_cursor"

_CREATE: Final = f"""CREATE TABLE IF NOT EXISTS {TABLE} (
    scope VARCHAR(300) NOT NULL, task VARCHAR(300) NOT NULL, plan_id VARCHAR(40) NOT NULL, epoch BIGINT NOT NULL,
    document TEXT NOT NULL, PRIMARY KEY (scope, task))"""


class SqlCursor:
    """Keep the cursor in table ``towline_cursor`` of the target, so that effect and cursor are exactly once.

    The body writes its effect, calls ``commit(batch)`` on the cursor, then commits the transaction. A refused
    save raises ``LeaseLostError`` before that. Opening commits what the connection has pending.

    Args:
        connection: A DB-API connection to SQLite (3.24 or later) or PostgreSQL; used in the body's own thread.
        paramstyle: The driver's, when its module does not say it.
    """

    def __init__(self, connection: DbConnection, *, paramstyle: str | None = None) -> None:
        self.connection = connection
        self._sql = Sql(connection, paramstyle)

    def take(self, scope: str, task_id: str, plan_id: str, epoch: int, at: str) -> CursorDocument:
        """Raise the row's fence to this claim, commit, and read the row (CUR-05).

        The fence is raised before the document is read: a save of an older claim that is still in its
        transaction holds the row, so it is either seen here or refused.

        Raises:
            LeaseLostError: A later claim has been there; ``TargetPlanError``: a later plan.
            CursorCorruptError: The row cannot be read.
        """
        self._make_table()
        fresh = CursorDocument(task=task_id, plan_id=plan_id, epoch=epoch, updated_at=at, in_target=True)
        self._sql.run(
            f"INSERT INTO {TABLE} (scope, task, plan_id, epoch, document) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (scope, task_id, plan_id, epoch, _text(fresh)),
        )
        while True:
            stored = self._fence_of(scope, task_id)
            if stored > (plan_id, epoch):
                self.connection.rollback()
                if stored[0] != plan_id:
                    raise TargetPlanError(task_id, scope, plan_id, stored[0])
                raise LeaseLostError(task_id, epoch, stored[1])
            raised = self._sql.run(
                f"UPDATE {TABLE} SET plan_id = ?, epoch = ? WHERE scope = ? AND task = ? AND plan_id = ? AND epoch = ?",
                (plan_id, epoch, scope, task_id, *stored),
            )
            self.connection.commit()
            if raised:
                break
        rows = self._sql.rows(f"SELECT document FROM {TABLE} WHERE scope = ? AND task = ?", (scope, task_id))
        self.connection.commit()
        document = decode_document(rows[0][0].encode(), CursorDocument, task_id, f"table {TABLE}")
        if document.plan_id < plan_id:
            return fresh
        document.epoch = epoch
        return document

    def save(self, scope: str, document: CursorDocument) -> None:
        """Store the document in the caller's transaction.

        Raises:
            LeaseLostError: The row has another fence. Nothing was committed: roll back.
        """
        changed = self._sql.run(
            f"UPDATE {TABLE} SET document = ? WHERE scope = ? AND task = ? AND plan_id = ? AND epoch = ?",
            (_text(document), scope, document.task, document.plan_id, document.epoch),
        )
        if changed != 1:
            raise LeaseLostError(document.task, document.epoch, self._fence_of(scope, document.task)[1])

    def _fence_of(self, scope: str, task_id: str) -> tuple[str, int]:
        rows = self._sql.rows(f"SELECT plan_id, epoch FROM {TABLE} WHERE scope = ? AND task = ?", (scope, task_id))
        return (rows[0][0], int(rows[0][1])) if rows else ("", 0)

    def _make_table(self) -> None:
        try:
            self._sql.run(_CREATE)
            self.connection.commit()
        except Exception:  # noqa: BLE001 - drivers share no error class; the probe below raises if there is no table
            # Two claims that create it at once: PostgreSQL fails one of them although it says IF NOT EXISTS.
            self.connection.rollback()
            self._sql.rows(f"SELECT task FROM {TABLE} WHERE 1 = 0")


def _text(document: CursorDocument) -> str:
    return encode_document(document).decode()
