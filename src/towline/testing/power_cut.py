"""A file system that forgets at a power cut what was not synced (``planning.md`` section 12).

Real files are written; beside them this keeps what would survive: of each file the bytes of its last fsync,
with or without a part of what was written later, and of each folder the names of its last sync, with or
without later creations, renames and removals, in any combination.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from towline.state.files import SystemFiles, read_file

if TYPE_CHECKING:
    from random import Random

    from towline.state.files import Buffer


class _Inode:
    """One file, whatever it is called."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = bytes(data)


class PowerCutFiles(SystemFiles):
    """The file system below one root; ``cut`` writes what one power cut would leave of it."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)
        self._open: dict[int, _Inode] = {}
        self._names: dict[str, _Inode] = {}
        self._synced_names: dict[str, _Inode] = {}

    def create(self, path: str) -> int:
        return self._opened(super().create(path), path)

    def open_append(self, path: str) -> int:
        return self._opened(super().open_append(path), path)

    def open_update(self, path: str) -> int:
        return self._opened(super().open_update(path), path)

    def write(self, fd: int, data: Buffer) -> None:
        at = os.lseek(fd, 0, os.SEEK_CUR)
        super().write(fd, data)
        inode = self._open[fd]
        if os.fstat(fd).st_size == len(inode.data) + len(bytes(data)):
            at = len(inode.data)  # an append
        inode.data[at : at + len(bytes(data))] = bytes(data)

    def fsync(self, fd: int) -> None:
        inode = self._open[fd]
        inode.synced = bytes(inode.data)

    def truncate(self, fd: int, size_bytes: int) -> None:
        super().truncate(fd, size_bytes)
        del self._open[fd].data[size_bytes:]

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._names[target] = self._names.pop(source)

    def remove(self, path: str) -> None:
        super().remove(path)
        self._names.pop(path, None)

    def sync_folder(self, path: str) -> None:
        for name in [*self._names, *self._synced_names]:
            if os.path.dirname(name) == path:
                if name in self._names:
                    self._synced_names[name] = self._names[name]
                else:
                    self._synced_names.pop(name, None)

    def cut(self, into: str, random: Random) -> None:
        """Write one of the states that a power cut now may leave to another folder."""
        for path in sorted(self._names.keys() | self._synced_names.keys()):
            inode = random.choice([self._names.get(path), self._synced_names.get(path)])
            if inode is None:
                continue
            target = os.path.join(into, os.path.relpath(path, self._root))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(_survivor(inode, random))

    def _opened(self, fd: int, path: str) -> int:
        if path not in self._names:
            self._names[path] = _Inode(read_file(path) or b"")
        self._open[fd] = self._names[path]
        return fd


def _survivor(inode: _Inode, random: Random) -> bytes:
    """Return the synced bytes, or the current ones, or some between them."""
    synced, current = inode.synced, bytes(inode.data)
    if not current.startswith(synced):
        return random.choice([synced, current])
    return current[: random.randint(len(synced), len(current))]
