"""Every write of the room to a file system, as one object that tests replace.

Kill points count and cut these calls (``towline.testing.KillPoints``), so nothing else in the room
writes, renames, removes or syncs.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import Final, Protocol, TypeAlias

_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_BINARY: Final = getattr(os, "O_BINARY", 0)
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | _NO_FOLLOW | _BINARY
_APPEND: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | _NO_FOLLOW | _BINARY
_UPDATE: Final = os.O_RDWR | os.O_CREAT | _NO_FOLLOW | _BINARY

Buffer: TypeAlias = bytes | bytearray | memoryview

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


class Files(Protocol):
    """What the room does to files. Each call has happened when it returns, or raises ``OSError``."""

    def create(self, path: str) -> int: ...

    def open_append(self, path: str) -> int: ...

    def open_update(self, path: str) -> int: ...

    def write(self, fd: int, data: Buffer) -> None: ...

    def write_at(self, fd: int, data: bytes, offset: int) -> None: ...

    def fsync(self, fd: int) -> None: ...

    def truncate(self, fd: int, size_bytes: int) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def make_folder(self, path: str) -> None: ...

    def sync_folder(self, path: str) -> None: ...


class SystemFiles:
    """The file system. Files are made with mode 0600, folders with 0700; no call follows a link (STATE-18)."""

    def create(self, path: str) -> int:
        """Make a new file and open it for writing; one that is there is an error."""
        return os.open(path, _CREATE, FILE_MODE)

    def open_append(self, path: str) -> int:
        """Open for reading and appending; made if absent."""
        return os.open(path, _APPEND, FILE_MODE)

    def open_update(self, path: str) -> int:
        """Open for reading and writing in place; made if absent."""
        return os.open(path, _UPDATE, FILE_MODE)

    def write(self, fd: int, data: Buffer) -> None:
        """Write all bytes at the end or current position; one system call as a rule."""
        written = os.write(fd, data)
        while written < len(data):  # a signal or a nearly full disk can cut a write short
            written += os.write(fd, memoryview(data)[written:])

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """Write all bytes at an offset."""
        os.lseek(fd, offset, os.SEEK_SET)
        self.write(fd, data)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def rename(self, source: str, target: str) -> None:
        """Put ``source`` in the place of ``target`` in one step."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file, or a link itself; one that is gone is no error."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it that are missing."""
        try:
            os.mkdir(path, FOLDER_MODE)
        except FileExistsError:
            return
        except FileNotFoundError:
            self.make_folder(os.path.dirname(path))
            self.make_folder(path)

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable; Windows has no such call and needs none."""
        if sys.platform == "win32":
            return
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def read_file(path: str) -> bytes | None:
    """Return a file's bytes, ``None`` if there is none."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except FileNotFoundError:
        return None


def is_link(path: str) -> bool:
    """Say whether the last part of a path is a symbolic link."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
