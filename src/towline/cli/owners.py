"""Who owns a state folder, and whether that process still lives: told by its lock (STATE-08)."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from towline.errors.state import StateLostError
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

    Raises:
        StateLostError: The lock file may not even be read.
    """
    path = root / OWNER_KEY
    if not path.is_file():
        return None
    lock = FileLock(str(path), _LookingFiles())
    try:
        if lock.try_take():
            lock.free()
            return None
        return read_owner_file(read_file(str(path)) or b"").latest
    except OSError as error:
        raise StateLostError(str(root), f"reading {OWNER_KEY}", error.strerror or str(error)) from error


class _LookingFiles(SystemFiles):
    """Files of a state that may be read and not written: looking must not ask for more."""

    def open_update(self, path: str) -> int:
        try:
            return super().open_update(path)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            return os.open(path, os.O_RDONLY)
