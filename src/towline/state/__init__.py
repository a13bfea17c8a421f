"""Durable state: stores, the plan on disk, results, cursors, steps and id maps."""

from towline.state.cleaning import archive, drop_older_documents, drop_task, has_task_documents, moved_cursors
from towline.state.cursor import Cursor, CursorProgress, CursorRequest
from towline.state.cursor_documents import CursorDocument, SkipRecord, StepDocument
from towline.state.cursor_fence import take_fence
from towline.state.cursor_home import CursorHome, CursorTarget, StoreHome
from towline.state.cursor_keys import CursorKey
from towline.state.cursor_opening import open_cursor, open_sync_cursor
from towline.state.cursor_state import Batch
from towline.state.cursors import CursorStore
from towline.state.id_maps import IdMap, SqlIdMap
from towline.state.journal import JournalHeader
from towline.state.keys import cursor_key, execution_key, result_key, skips_key, step_key, step_prefix
from towline.state.opening import open_store
from towline.state.planfile import PlanFile
from towline.state.query import Query
from towline.state.results import ResultFile, ResultPlace
from towline.state.snapshot import Loaded, SnapshotHead
from towline.state.sql_cursor import SqlCursor
from towline.state.sql_dialect import DbConnection
from towline.state.steps import Step, StepStore
from towline.state.store import (
    ABSENT,
    ANYTHING,
    Absent,
    Anything,
    Entry,
    Fence,
    Owner,
    Ownership,
    StateStore,
    Version,
)
from towline.state.sync_cursor import SyncCursor

__all__ = [
    "ABSENT",
    "ANYTHING",
    "Absent",
    "Anything",
    "Batch",
    "Cursor",
    "CursorDocument",
    "CursorHome",
    "CursorKey",
    "CursorProgress",
    "CursorRequest",
    "CursorStore",
    "CursorTarget",
    "DbConnection",
    "Entry",
    "Fence",
    "IdMap",
    "JournalHeader",
    "Loaded",
    "Owner",
    "Ownership",
    "PlanFile",
    "Query",
    "ResultFile",
    "ResultPlace",
    "SkipRecord",
    "SnapshotHead",
    "SqlCursor",
    "SqlIdMap",
    "StateStore",
    "Step",
    "StepDocument",
    "StepStore",
    "StoreHome",
    "SyncCursor",
    "Version",
    "archive",
    "cursor_key",
    "drop_older_documents",
    "drop_task",
    "execution_key",
    "has_task_documents",
    "moved_cursors",
    "open_cursor",
    "open_store",
    "open_sync_cursor",
    "result_key",
    "skips_key",
    "step_key",
    "step_prefix",
    "take_fence",
]
