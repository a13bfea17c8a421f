"""Documents and line files in one folder: read, compare-and-set, append, delete (STATE-01..06, 13, 15, 18).

All of it blocks, for microseconds as a rule; ``DirectoryStore`` decides where that happens.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from towline.errors.state import StateTooLargeError, StateUnsupportedError, VersionConflictError
from towline.state.fences import check_owner, check_task
from towline.state.files import is_link, read_file
from towline.state.keys import OWNER_KEY, TASK_FOLDERS, checked_key, cursor_key, lock_name
from towline.state.locks import FileLock
from towline.state.owner_file import read_owner_file
from towline.state.store import ANYTHING, DOCUMENT_LIMIT_BYTES, Absent, Anything, Entry, Fence, Version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from towline.state.files import Files

TEMP_SUFFIX: Final = ".tmp"
LOCKS_FOLDER: Final = "locks"
FOLDER_IS_GONE: Final = "the folder of the state is gone: somebody removed it"

_temp_number = itertools.count(1)


class Documents:
    """The documents below one root. ``power``: each write is fsynced, and its folder when a name changed."""

    def __init__(self, root: str, files: Files, *, power: bool) -> None:
        self.root, self.files, self.power = root, files, power
        self._had_root = False

    def make_root(self) -> None:
        """Make the folder of the state, unless it is there."""
        self._make_folder(self.root)

    def read(self, key: str) -> Entry | None:
        data = read_file(os.path.join(self.root, checked_key(key)))
        return None if data is None else Entry(data, version_of(data))

    def write(
        self,
        key: str,
        data: bytes,
        expect: Version | Absent | Anything,
        fence: Fence | None,
        *,
        repeated: bool = False,
    ) -> Version:
        """Compare and replace under the key's lock.

        repeated: An earlier try may have succeeded without an answer; finding its bytes is success (STATE-07).
        """
        if len(data) > DOCUMENT_LIMIT_BYTES:
            raise StateTooLargeError(key, len(data), DOCUMENT_LIMIT_BYTES)
        path, version = self.path_to(key), version_of(data)
        with self._locked(key):
            self._check(fence)
            if expect is not ANYTHING or repeated:
                found = self._version_at(path)
                if repeated and found == version:
                    return version
                _compare(key, expect, found)
            self.replace(path, data)
        return version

    def append(self, key: str, line: bytes, fence: Fence) -> None:
        if len(line) > DOCUMENT_LIMIT_BYTES:
            raise StateTooLargeError(key, len(line), DOCUMENT_LIMIT_BYTES)
        path = self.path_to(key)
        with self._locked(key):
            self._check(fence)
            fd = self._open_in_folder(path)
            try:
                size = whole_lines(fd, self.files)
                try:
                    self.files.write(fd, line)
                    if self.power:
                        self.files.fsync(fd)
                except OSError:
                    with contextlib.suppress(OSError):  # a torn line is dropped by the next reader as well
                        self.files.truncate(fd, size)
                    raise
            finally:
                os.close(fd)
            if self.power and size == 0:
                self.files.sync_folder(os.path.dirname(path))

    def delete(self, key: str, expect: Version | Anything) -> None:
        path = self.path_to(key)
        with self._locked(key):
            if not isinstance(expect, Anything):
                found = self._version_at(path)
                if found is not None:
                    _compare(key, expect, found)
            self.files.remove(path)
            if self.power and os.path.isdir(os.path.dirname(path)):
                self.files.sync_folder(os.path.dirname(path))

    def keys(self, prefix: str) -> list[str]:
        """Return the keys below a prefix, sorted; locks, temp files and links to folders are none."""
        folder = prefix.rpartition("/")[0]
        found = [key for key in self._walk(folder) if key.startswith(prefix)]
        return sorted(found)

    def replace(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Put a whole new file in the place of another: temp file, rename (STATE-02, STATE-13).

        sync: With ``power``, also fsync; without, the caller does it before anything relies on the file.
        """
        power = self.power and sync
        for attempt in (1, 2):
            temp, fd = self.open_temp(path)
            try:
                try:
                    self.files.write(fd, data)
                    if power:
                        self.files.fsync(fd)
                finally:
                    os.close(fd)
                self.files.rename(temp, path)
            except FileNotFoundError:
                # A new owner takes our temp file for a leftover: once more, it does so only when it starts.
                if attempt == 2:
                    raise
                continue
            except OSError:
                with contextlib.suppress(OSError):  # the write's own error is the one to report
                    self.files.remove(temp)
                raise
            break
        if power:
            self.files.sync_folder(os.path.dirname(path))

    def open_temp(self, path: str) -> tuple[str, int]:
        """Make an empty temp file beside ``path`` and open it; the folder is made if it is missing."""
        folder, name = os.path.split(path)
        temp = os.path.join(folder, f".{name}.{os.getpid()}-{next(_temp_number)}{TEMP_SUFFIX}")
        try:
            return temp, self.files.create(temp)
        except FileNotFoundError:
            self._make_folder(folder)
        except FileExistsError:
            self.files.remove(temp)  # of an earlier process with this number
        return temp, self.files.create(temp)

    def remove_leftovers(self) -> int:
        """Remove temp files that killed writers left behind; returns how many (STATE-13)."""
        removed = 0
        for folder in self._folders():
            for name in _names(folder):
                if name.startswith(".") and name.endswith(TEMP_SUFFIX):
                    self.files.remove(os.path.join(folder, name))
                    removed += 1
        return removed

    def path_to(self, key: str) -> str:
        """Return the path for a write, after a look at the folders above it (STATE-18).

        Raises:
            StateUnsupportedError: One of them is a symbolic link, which would lead the write elsewhere.
        """
        folder = self.root
        for part in checked_key(key).split("/")[:-1]:
            folder = os.path.join(folder, part)
            if is_link(folder):
                raise StateUnsupportedError(self.root, f"{folder} is a symbolic link, which writes do not follow")
        return os.path.join(self.root, key)

    def owner_epoch(self) -> int:
        """Return the epoch of the last owner that acquired this root; 0 if there was none."""
        latest = read_owner_file(read_file(os.path.join(self.root, OWNER_KEY)) or b"").latest
        return latest.epoch if latest else 0

    # ------------------------------------------------------------------ inside

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        name = lock_name(key)
        lock = FileLock(self.path_to(f"{LOCKS_FOLDER}/{name}.lock"), self.files)
        try:
            taken = lock.try_take()
        except FileNotFoundError:
            self._make_folder(os.path.join(self.root, LOCKS_FOLDER))
            taken = lock.try_take()
        self._had_root = True
        if not taken:
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock", lock.path)
        try:
            yield
        finally:
            lock.free()

    def _check(self, fence: Fence | None) -> None:
        if fence is None:
            return
        if fence.task is None:
            check_owner(fence, self.owner_epoch(), self.root)
        else:
            check_task(fence, read_file(os.path.join(self.root, cursor_key(fence.task))))

    def _version_at(self, path: str) -> Version | None:
        data = read_file(path)
        return None if data is None else version_of(data)

    def _open_in_folder(self, path: str) -> int:
        try:
            return self.files.open_append(path)
        except FileNotFoundError:
            self._make_folder(os.path.dirname(path))
            return self.files.open_append(path)

    def _make_folder(self, path: str) -> None:
        """Make a folder of the state; once the state's own has been there, it is never made again.

        Where somebody removed it, a late write must not leave a part of a state that looks like one.
        """
        if self._had_root and not os.path.isdir(self.root):
            raise FileNotFoundError(errno.ENOENT, FOLDER_IS_GONE, self.root)
        self.files.make_folder(path)
        self._had_root = True

    def _folders(self) -> Iterator[str]:
        yield self.root
        for folder in TASK_FOLDERS:
            path = os.path.join(self.root, folder)
            if not is_link(path):
                yield path
                yield from (entry for name in _names(path) if _is_folder(entry := os.path.join(path, name)))

    def _walk(self, folder: str) -> Iterator[str]:
        for name in _names(os.path.join(self.root, folder)):
            key = f"{folder}/{name}" if folder else name
            if _is_folder(os.path.join(self.root, key)):
                if key != LOCKS_FOLDER:
                    yield from self._walk(key)
            elif not (name.startswith(".") and name.endswith(TEMP_SUFFIX)) and key != OWNER_KEY:
                yield key


def version_of(data: bytes | bytearray) -> Version:
    """Return the version of a document: the SHA-256 of its bytes (STATE-15)."""
    return sha256(data).hexdigest()


def whole_lines(fd: int, files: Files) -> int:
    """Cut a torn last line off a file of lines, and return its size in bytes."""
    size = os.fstat(fd).st_size
    end = size
    while end > 0:
        start = max(0, end - 4096)
        os.lseek(fd, start, os.SEEK_SET)
        newline = os.read(fd, end - start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        files.truncate(fd, end)
    return end


def _compare(key: str, expect: Version | Absent | Anything, found: Version | None) -> None:
    if isinstance(expect, Anything):
        return
    wanted = None if isinstance(expect, Absent) else expect
    if found != wanted:
        raise VersionConflictError(key, wanted, found)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not is_link(path)
