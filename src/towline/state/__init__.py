"""Durable state: stores, the plan on disk, results, cursors, steps and id maps.

Everything else is imported by its file, where it is used: ``planfile``, ``results``, ``cursors``, ``steps``,
``sql_cursor``, ``id_maps``.
"""

from towline.state.opening import open_store
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
    "Owner",
    "Ownership",
    "StateStore",
    "Version",
    "open_store",
]
