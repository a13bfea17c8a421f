"""Durable state: stores, the plan on disk, results, cursors, steps and id maps."""

from towline.state.journal import JournalHeader
from towline.state.keys import cursor_key, execution_key, result_key, skips_key, step_key, step_prefix
from towline.state.opening import open_store
from towline.state.planfile import PlanFile
from towline.state.results import ResultFile, ResultPlace
from towline.state.snapshot import Loaded, SnapshotHead
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

__all__ = [
    "ABSENT",
    "ANYTHING",
    "Absent",
    "Anything",
    "Entry",
    "Fence",
    "JournalHeader",
    "Loaded",
    "Owner",
    "Ownership",
    "PlanFile",
    "ResultFile",
    "ResultPlace",
    "SnapshotHead",
    "StateStore",
    "Version",
    "cursor_key",
    "execution_key",
    "open_store",
    "result_key",
    "skips_key",
    "step_key",
    "step_prefix",
]
