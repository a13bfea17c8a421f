"""Plan, journal and results as files of one folder (PLAN-20..25, STATE-12, STATE-13)."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from towline.state.documents import whole_lines
from towline.state.files import read_file
from towline.state.keys import JOURNAL_KEY, PLAN_KEY, RESULTS_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from towline.state.documents import Documents


class _FileDraft:
    """A temp file beside its target, which a rename puts in place."""

    def __init__(self, documents: Documents, path: str) -> None:
        self._documents, self._path = documents, path
        self._temp, self._fd = documents.open_temp(path)

    def write(self, chunk: bytes) -> None:
        self._documents.files.write(self._fd, chunk)

    def sync(self) -> None:
        self._documents.files.fsync(self._fd)

    async def publish(self) -> None:
        fd = self.put_in_place()
        os.close(fd)

    def put_in_place(self) -> int:
        """Rename, and return the file, which stays open."""
        files = self._documents.files
        files.rename(self._temp, self._path)
        fd, self._fd = self._fd, -1
        if self._documents.power:
            files.sync_folder(os.path.dirname(self._path))
        return fd

    def discard(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
            with contextlib.suppress(OSError):  # a leftover is removed by the next owner
                self._documents.files.remove(self._temp)


class _LineFile:
    """A file of lines, kept open for appending."""

    def __init__(self, documents: Documents, path: str) -> None:
        self._documents, self.path = documents, path
        self.fd = -1
        self.size_bytes = 0

    def open(self) -> None:
        """Open it where its last whole line ends; made if absent."""
        if self.fd < 0:
            self.fd = self._documents.files.open_append(self.path)
            self.size_bytes = whole_lines(self.fd, self._documents.files)

    def replace(self, lines: Iterable[bytes]) -> None:
        """Put a new file in place and keep that one open.

        A former owner still has the old file open: what it appends lands in a file that nobody reads.
        """
        draft = _FileDraft(self._documents, self.path)
        try:
            size = 0
            for line in lines:
                draft.write(line)
                size += len(line)
            if self._documents.power:
                draft.sync()
            fd = draft.put_in_place()
        except OSError:
            draft.discard()
            raise
        self.close()
        self.fd, self.size_bytes = fd, size

    def append(self, line: bytes) -> int:
        offset = self.size_bytes
        try:
            self._documents.files.write(self.fd, line)
        except OSError:
            with contextlib.suppress(OSError):  # a torn line is dropped by the reader as well (PLAN-21)
                self._documents.files.truncate(self.fd, offset)
            raise
        self.size_bytes = offset + len(line)
        return offset

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class DirectoryPlanMedium:
    """The files of one plan. ``beside`` runs a blocking call in a thread of the store."""

    def __init__(self, documents: Documents, beside: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        self.name = documents.root
        self.durable_at_once = not documents.power
        self._documents, self._beside = documents, beside
        self._journal = _LineFile(documents, self._path(JOURNAL_KEY))
        self._results = _LineFile(documents, self._path(RESULTS_KEY))
        self._results_unsynced = False
        self._unsynced: list[str] = []

    async def read_plan(self) -> bytes | None:
        return read_file(self._path(PLAN_KEY))

    async def read_journal(self) -> bytes | None:
        return read_file(self._path(JOURNAL_KEY))

    def draft_plan(self) -> _FileDraft:
        return _FileDraft(self._documents, self._documents.path_to(PLAN_KEY))

    async def start_journal(self, header: bytes) -> None:
        self._journal.replace([header])

    def append_journal(self, line: bytes) -> None:
        self._journal.append(line)

    def append_result(self, line: bytes) -> int:
        if self._results.fd < 0:
            self._results.open()
        self._results_unsynced = True
        return self._results.append(line)

    def write_result(self, key: str, data: bytes) -> None:
        path = self._documents.path_to(key)
        self._documents.replace(path, data, sync=False)
        if not self.durable_at_once:
            self._unsynced.append(path)

    async def sync(self) -> None:
        if not self.durable_at_once:
            await self._beside(self._sync)

    def _sync(self) -> None:
        files = self._documents.files
        paths, self._unsynced = self._unsynced, []
        for path in paths:
            fd = files.open_append(path)
            try:
                files.fsync(fd)
            finally:
                os.close(fd)
        for folder in {os.path.dirname(path) for path in paths}:
            files.sync_folder(folder)
        if self._results_unsynced:
            self._results_unsynced = False
            files.fsync(self._results.fd)
        files.fsync(self._journal.fd)

    async def read_results(self) -> bytes:
        return read_file(self._results.path) or b""

    async def read_result_at(self, offset: int) -> bytes | None:
        return _line_at(self._results.path, offset)

    async def read_result(self, key: str) -> bytes | None:
        return read_file(self._path(key))

    async def replace_results(self, lines: Iterable[bytes]) -> None:
        self._results.replace(lines)

    async def list_results(self) -> list[str]:
        return self._documents.keys("results/")

    async def remove_result(self, key: str) -> None:
        self._documents.files.remove(self._documents.path_to(key))

    def close(self) -> None:
        self._journal.close()
        self._results.close()

    def _path(self, key: str) -> str:
        return os.path.join(self._documents.root, *key.split("/"))


def _line_at(path: str, offset: int) -> bytes | None:
    """Read one line; results of this kind are short, so one read of 32 KiB is enough as a rule."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            line = file.readline()
    except FileNotFoundError:
        return None
    return line[:-1] if line.endswith(b"\n") else None
