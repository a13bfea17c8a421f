"""The default artifact store: one file per digest in a folder, shared by the processes of a host (ART-08, ART-14)."""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from towline.artifacts.store import ArtifactStore, Stored, in_thread
from towline.clock import Clock, SystemClock
from towline.errors.artifacts import ArtifactMissingError
from towline.identity import digest_segment, is_digest, segment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable

LITTER_AGE_S = 24 * 3600.0
"""A temporary file of this age belongs to no living writer."""
SIZE_LIMIT_BYTES = 10 * 1024**3
"""ART-18."""

_CHUNK = 1024 * 1024
_TEMPORARY = ".tmp-"


class DirectoryArtifactStore(ArtifactStore):
    """Writes to a temporary name, hashes on the way, and renames to the digest.

    A crash leaves litter, never a wrong artifact. Several writers of one digest write the same bytes, so
    whose rename comes last does not matter. Files have mode 0600; their time is that of the last use.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        durability: Literal["process", "power"] = "process",
    ) -> None:
        self.root = Path(root)
        self._clock: Clock = clock or SystemClock()
        self._fsync = durability == "power"

    async def put(self, chunks: Iterable[bytes], *, run_id: str | None = None) -> Stored:
        return await in_thread(self._put, chunks, run_id)

    async def open(self, digest: str) -> AsyncIterator[bytes]:
        path, offset = await self._existing(digest), 0
        # Opened anew for each chunk: see ``moving._append``.
        while chunk := await in_thread(_read_at, path, offset):
            offset += len(chunk)
            yield chunk

    async def exists(self, digest: str) -> bool:
        return is_digest(digest) and self._path(digest).is_file()

    async def delete(self, digest: str) -> None:
        if is_digest(digest):
            self._path(digest).unlink(missing_ok=True)

    async def list_run(self, run_id: str) -> list[str]:
        try:
            text = self._run_list(run_id).read_text("ascii")
        except FileNotFoundError:
            return []
        return sorted({line for line in text.splitlines() if is_digest(line)})

    async def forget_run(self, run_id: str) -> None:
        """Drop the list of the run. Its bytes stay for other runs; ``trim`` bounds them (ART-18)."""
        self._run_list(run_id).unlink(missing_ok=True)

    async def local_path(self, digest: str) -> Path | None:
        return await self._existing(digest)

    async def sweep(self) -> int:
        """Remove litter above 24 hours; return how many files it was (ART-08)."""
        return await in_thread(self._sweep)

    async def trim(self, keep: Collection[str], *, limit_bytes: int = SIZE_LIMIT_BYTES) -> list[str]:
        """Drop the least recently used digests until the folder is within its limit (ART-18).

        Args:
            keep: Digests that plan and reports name; never dropped, whatever the size.
            limit_bytes: Size of the folder's artifacts.

        Returns:
            The digests that were dropped.
        """
        return await in_thread(self._trim, frozenset(keep), limit_bytes)

    # ------------------------------------------------------------- blocking

    def _path(self, digest: str) -> Path:
        return self.root / digest_segment(digest)

    def _run_list(self, run_id: str) -> Path:
        return self.root / ".runs" / segment(run_id)

    async def _existing(self, digest: str) -> Path:
        path = self._path(digest)
        if not is_digest(digest) or not path.is_file():
            raise ArtifactMissingError(digest, "", f"the store in {self.root} does not have it")
        self._used(path)
        return path

    def _used(self, path: Path) -> None:
        now = self._clock.now()
        # Another process may have trimmed it this moment; then there is nothing to mark.
        with suppress(FileNotFoundError):
            os.utime(path, (now, now))

    def _put(self, chunks: Iterable[bytes], run_id: str | None) -> Stored:
        import tempfile

        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=self.root)
        digest, size = sha256(), 0
        try:
            with open(handle, "wb", buffering=0) as file:
                for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    file.write(chunk)
                if self._fsync:
                    os.fsync(file.fileno())
            stored = Stored(f"sha256:{digest.hexdigest()}", size)
            path = self._path(stored.digest)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        self._used(path)
        if self._fsync:
            self._sync_folder()
        if run_id is not None:
            self._note_run(run_id, stored.digest)
        return stored

    def _note_run(self, run_id: str, digest: str) -> None:
        listing = self._run_list(run_id)
        listing.parent.mkdir(mode=0o700, exist_ok=True)
        # One short append: lines of several processes do not mix.
        handle = os.open(listing, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, f"{digest}\n".encode("ascii"))
        finally:
            os.close(handle)

    def _sync_folder(self) -> None:
        if os.name == "nt":
            return  # folders cannot be synced there
        handle = os.open(self.root, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _files(self) -> list[tuple[float, int, Path]]:
        """Time of last use, size and path of all files; one that vanishes meanwhile is left out."""
        found: list[tuple[float, int, Path]] = []
        if self.root.is_dir():
            for path in self.root.iterdir():
                with suppress(FileNotFoundError):
                    status = path.lstat()
                    found.append((status.st_mtime, status.st_size, path))
        return sorted(found)

    def _sweep(self) -> int:
        oldest = self._clock.now() - LITTER_AGE_S
        litter = [path for used, _, path in self._files() if path.name.startswith(_TEMPORARY) and used < oldest]
        for path in litter:
            path.unlink(missing_ok=True)
        return len(litter)

    def _trim(self, keep: frozenset[str], limit_bytes: int) -> list[str]:
        artifacts = [
            (size, digest, path)
            for _, size, path in self._files()
            if is_digest(digest := path.name.replace("-", ":", 1))
        ]
        total = sum(size for size, _, _ in artifacts)
        dropped: list[str] = []
        for size, digest, path in artifacts:
            if total <= limit_bytes:
                break
            if digest not in keep:
                path.unlink(missing_ok=True)
                total -= size
                dropped.append(digest)
        return dropped


def _read_at(path: Path, offset: int) -> bytes:
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        return file.read(_CHUNK)
