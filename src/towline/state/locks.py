"""Locks between processes of one host, held by an open file and freed with its process (STATE-14, STATE-15)."""

from __future__ import annotations

import errno
import os
import sys
import weakref
from typing import TYPE_CHECKING, Final

from towline.errors.state import StateUnsupportedError

if TYPE_CHECKING:
    from towline.state.files import Files

_WITHOUT_LOCKS: Final = frozenset(
    getattr(errno, name) for name in ("ENOLCK", "ENOTSUP", "EOPNOTSUPP", "ENOSYS") if hasattr(errno, name)
)
_BUSY: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})

if sys.platform == "win32":
    import msvcrt

    # Windows locks are mandatory: a byte far behind the content leaves the holder's name readable.
    _LOCKED_BYTE: Final = 1 << 30

    def _lock(fd: int) -> None:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _unlock(fd: int) -> None:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _lock(fd: int) -> None:
        # flock, not POSIX record locks: those are dropped when any other descriptor of the file is closed.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


class FileLock:
    """An exclusive lock on one file; also between two of these in one process."""

    def __init__(self, path: str, files: Files) -> None:
        self.path, self.files = path, files
        self.fd = -1

    def try_take(self) -> bool:
        """Take the lock if nobody has it.

        Raises:
            StateUnsupportedError: The file system has no locks.
            OSError: The file cannot be opened.
        """
        fd = self.files.open_update(self.path)
        try:
            _lock(fd)
        except OSError as error:
            os.close(fd)
            if error.errno in _WITHOUT_LOCKS:
                raise StateUnsupportedError(os.path.dirname(self.path), "its file system has no file locks") from error
            if error.errno in _BUSY:
                return False
            raise
        self.fd = fd
        HELD.add(self)
        return True

    def is_current(self) -> bool:
        """Say whether the locked file is still the one at its path: a removed lock file guards nothing."""
        try:
            return os.fstat(self.fd).st_nlink > 0
        except OSError:
            return False

    def free(self) -> None:
        """Give the lock back, also from children that share the open file. A second call does nothing."""
        if self.fd >= 0:
            _unlock(self.fd)
        self.close()

    def close(self) -> None:
        """Close the file without unlocking it: the lock goes on for others that share the open file."""
        fd, self.fd = self.fd, -1
        HELD.discard(self)
        if fd >= 0:
            os.close(fd)


HELD: Final[weakref.WeakSet[FileLock]] = weakref.WeakSet()
"""The locks of this process."""


def _close_in_forked_child() -> None:
    # A forked child shares the open file: without this, one that outlives a killed owner would keep its locks.
    for lock in list(HELD):
        lock.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_in_forked_child)
