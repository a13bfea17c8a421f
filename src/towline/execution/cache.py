"""Where cached results lie: one document per fingerprint, and the artifacts that they name (CACHE-01, CACHE-10)."""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from towline.artifacts.directory import DirectoryArtifactStore
from towline.artifacts.records import ArtifactRef
from towline.artifacts.store import in_thread
from towline.clock import Clock, SystemClock
from towline.errors.values import SerializationError
from towline.identity import segment
from towline.modules.outcomes import Finding
from towline.serialization.wire import decode_record

if TYPE_CHECKING:
    from towline.artifacts.store import ArtifactStore

SCHEMA = 1
SIZE_LIMIT_BYTES = 10 * 1024**3
"""Entries and artifacts together; the least recently used go first (CACHE-10)."""

_FRESH_S = 3600.0
"""Artifacts used since may belong to an entry that is being written."""


class CachedResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cached success: what to give back in place of running the task.

    ``value`` is the encoded result; ``parts`` are those of the fingerprint, for the line that says why a
    later run did not find it.
    """

    schema: int = SCHEMA
    fingerprint: str
    task_id: str
    value: msgspec.Raw
    value_digest: str
    findings: tuple[Finding, ...] = ()
    artifacts: tuple[ArtifactRef, ...] = ()
    parts: dict[str, str] = {}


class CacheStore(Protocol):
    """Keeps cached results and the bytes of their artifacts."""

    @property
    def artifacts(self) -> ArtifactStore:
        """Holds the bytes that cached results name, apart from those of any run."""
        ...

    async def lookup(self, fingerprint: str) -> CachedResult | None:
        """Return the entry, or nothing.

        Raises:
            SerializationError: There is one, but it is damaged or of another schema.
            OSError: The store cannot be read.
        """
        ...

    async def save(self, result: CachedResult) -> None:
        """Keep an entry; the bytes of its artifacts are in ``artifacts`` already."""
        ...

    async def last_parts(self, task_id: str) -> dict[str, str]:
        """Return the parts of the task's newest entry; empty if there is none."""
        ...

    async def trim(self, *, limit_bytes: int = SIZE_LIMIT_BYTES) -> int:
        """Drop least recently used entries above the limit, and artifacts that none names; return how many."""
        ...


class DirectoryCacheStore(CacheStore):
    """``.towline/cache/``: shared by all runs and processes of a host; written by temp file and rename.

    Several writers of one fingerprint write equal documents, so the last rename does not matter.
    """

    def __init__(self, root: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self.root = Path(root)
        self._clock: Clock = clock or SystemClock()
        self._artifacts = DirectoryArtifactStore(self.root / "artifacts", clock=self._clock)

    @property
    def artifacts(self) -> DirectoryArtifactStore:
        return self._artifacts

    async def lookup(self, fingerprint: str) -> CachedResult | None:
        return await in_thread(self._lookup, fingerprint)

    async def save(self, result: CachedResult) -> None:
        await in_thread(self._save, result)

    async def last_parts(self, task_id: str) -> dict[str, str]:
        return await in_thread(self._last_parts, task_id)

    async def trim(self, *, limit_bytes: int = SIZE_LIMIT_BYTES) -> int:
        return await in_thread(self._trim, limit_bytes)

    # ------------------------------------------------------------- blocking

    def _entry(self, fingerprint: str) -> Path:
        return self.root / "entries" / f"{fingerprint.removeprefix('sha256:')}.json"

    def _lookup(self, fingerprint: str) -> CachedResult | None:
        path = self._entry(fingerprint)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        result = decode_record(CachedResult, data, path.name)
        if result.schema != SCHEMA:
            raise SerializationError(path.name, f"has schema {result.schema}, not {SCHEMA}")
        if result.fingerprint != fingerprint or result.value_digest != value_digest(result.value):
            raise SerializationError(path.name, "is damaged: its digest differs")
        now = self._clock.now()
        with suppress(FileNotFoundError):  # trimmed by another process this moment
            os.utime(path, (now, now))
        return result

    def _save(self, result: CachedResult) -> None:
        path = self._entry(result.fingerprint)
        _write(path, msgspec.json.encode(result))
        now = self._clock.now()
        with suppress(FileNotFoundError):  # trimmed by another process this moment
            os.utime(path, (now, now))
        _write(self._last(result.task_id), msgspec.json.encode(result.parts))

    def _last(self, task_id: str) -> Path:
        return self.root / "last" / f"{segment(task_id)}.json"

    def _last_parts(self, task_id: str) -> dict[str, str]:
        path = self._last(task_id)
        try:
            return decode_record(dict[str, str], path.read_bytes(), path.name)
        except (FileNotFoundError, SerializationError):
            return {}  # it only explains

    def _trim(self, limit_bytes: int) -> int:
        entries = _by_last_use(self.root / "entries")
        blobs = {path.name: (size, used) for used, size, path in _by_last_use(self.artifacts.root)}
        named: list[tuple[int, Path, set[str]]] = []
        for _, size, path in entries:
            names: set[str] = set()
            with suppress(FileNotFoundError, SerializationError):  # a damaged entry names nothing
                result = decode_record(CachedResult, path.read_bytes(), path.name)
                names = {reference.digest.replace(":", "-", 1) for reference in result.artifacts}
            named.append((size, path, names))
        kept: set[str] = set()
        total = dropped = 0
        for size, path, names in reversed(named):  # newest first
            total += size + sum(blobs[name][0] for name in names - kept if name in blobs)
            if total <= limit_bytes:
                kept |= names
                continue
            path.unlink(missing_ok=True)
            dropped += 1
        oldest = self._clock.now() - _FRESH_S
        for name in blobs.keys() - kept:
            if name.startswith("sha256-") and blobs[name][1] < oldest:
                (self.artifacts.root / name).unlink(missing_ok=True)
        return dropped


def value_digest(value: msgspec.Raw | bytes) -> str:
    """Digest an encoded value."""
    return f"sha256:{sha256(value).hexdigest()}"


def _write(path: Path, data: bytes) -> None:
    import tempfile

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with open(handle, "wb", buffering=0) as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _by_last_use(folder: Path) -> list[tuple[float, int, Path]]:
    """Time of last use, size and path of the files in a folder, oldest first."""
    found: list[tuple[float, int, Path]] = []
    if folder.is_dir():
        for path in folder.iterdir():
            with suppress(FileNotFoundError):  # another process trims too
                status = path.lstat()
                found.append((status.st_mtime, status.st_size, path))
    return sorted(found)
