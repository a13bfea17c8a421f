"""``runs/`` in a folder of this machine, for a run whose state lies elsewhere: history, which steers nothing (PLAN-39)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from towline.state.keys import checked_key
from towline.state.store import Entry

if TYPE_CHECKING:
    from pathlib import Path

    from towline.state.store import Fence


class RunFiles(Protocol):
    """Where the files of runs are kept; every state store is one."""

    async def read(self, key: str) -> Entry | None: ...

    async def append(self, key: str, line: bytes, fence: Fence) -> None: ...


class FolderRunFiles:
    """Appends to files below a folder. Nobody else writes them, so there is nothing to fence."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def read(self, key: str) -> Entry | None:
        """Return a file; its version is nobody's business."""
        try:
            return Entry((self._root / checked_key(key)).read_bytes(), "")
        except FileNotFoundError:
            return None

    async def append(self, key: str, line: bytes, fence: Fence) -> None:
        """Add to a file; a short write to the page cache, as a state folder does it."""
        path = self._root / checked_key(key)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)
