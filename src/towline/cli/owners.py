"""Who owns a state folder, and whether that process still lives: told by its lock (STATE-08)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.state.files import SystemFiles, read_file
from towline.state.keys import OWNER_KEY
from towline.state.locks import FileLock
from towline.state.owner_file import read_owner_file

if TYPE_CHECKING:
    from pathlib import Path

    from towline.state.owner_file import OwnerRecord


def living_owner(root: Path) -> OwnerRecord | None:
    """Return the process that holds the lock of a state folder; ``None`` when nobody does.

    The lock is tried and given back at once: that is the only way to ask. A run that starts within that
    moment is refused as if another one ran, which harms less than a guess from a process id.
    """
    path = root / OWNER_KEY
    if not path.is_file():
        return None
    lock = FileLock(str(path), SystemFiles())
    if lock.try_take():
        lock.free()
        return None
    return read_owner_file(read_file(str(path)) or b"").latest
