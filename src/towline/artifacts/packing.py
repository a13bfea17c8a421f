"""Write files as the bytes that travel: one file as it is, a tree as a normalised tar (ART-06, ART-07).

The same content gives the same bytes on every machine: entries sorted, owner 0, time 0, of the mode only
the executable bit. Blocking: run it in a thread.
"""

from __future__ import annotations

import os
import tarfile
from typing import TYPE_CHECKING

from towline.artifacts.entries import ENTRIES_LIMIT, SIZE_LIMIT_BYTES, link_problem, path_problem
from towline.errors.artifacts import ArtifactPackError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from towline.artifacts.matching import Entry, Match

CHUNK_BYTES = 1024 * 1024
_BLOCK = 512


def packed(match: Match, artifact: str) -> Iterator[bytes]:
    """Yield the artifact's bytes in chunks of about 1 MiB; never more than a few of them are in memory.

    Raises:
        ArtifactPackError: With the path of what cannot be packed, or changed while it was read.
    """
    if match.kind == "file":
        yield from _contents(match.entries[0].source, artifact)
    else:
        yield from _gathered(_tree(match.entries, artifact))


def _tree(entries: Iterable[Entry], artifact: str) -> Iterator[bytes]:
    total = 0
    for number, entry in enumerate(entries):
        problem = path_problem(entry.path, windows=False)
        if problem is not None:
            raise ArtifactPackError(artifact, entry.source, problem)
        if number >= ENTRIES_LIMIT:
            raise ArtifactPackError(artifact, entry.source, f"is one more than the {ENTRIES_LIMIT:,} entries allowed")
        info = tarfile.TarInfo(entry.path)
        if entry.kind == "file":
            yield from _file(info, entry.source, artifact)
            total += info.size
            if total > SIZE_LIMIT_BYTES:
                raise ArtifactPackError(artifact, entry.source, f"brings it above {SIZE_LIMIT_BYTES:,} bytes")
        elif entry.kind == "folder":
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            yield _header(info)
        else:
            info.type, info.mode = tarfile.SYMTYPE, 0o777
            info.linkname = os.readlink(entry.source)
            problem = link_problem(entry.path, info.linkname)
            if problem is not None:
                raise ArtifactPackError(artifact, entry.source, problem)
            yield _header(info)
    yield bytes(2 * _BLOCK)


def _file(info: tarfile.TarInfo, source: str, artifact: str) -> Iterator[bytes]:
    contents = _contents(source, artifact, info)
    first = next(contents, b"")  # opened by now: size and mode are known
    yield _header(info)
    yield first
    yield from contents
    yield bytes(-info.size % _BLOCK)


def _contents(source: str, artifact: str, info: tarfile.TarInfo | None = None) -> Iterator[bytes]:
    """Yield a file's bytes; tells its size and mode in ``info`` before the first. A file that changes meanwhile fails."""
    try:
        with open(source, "rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            if info is not None:
                info.size, info.mode = before.st_size, 0o755 if before.st_mode & 0o100 else 0o644
            left = before.st_size
            while left:
                chunk = file.read(min(CHUNK_BYTES, left))
                if not chunk:
                    break
                left -= len(chunk)
                yield chunk
            after = os.fstat(file.fileno())
    except OSError as error:
        raise ArtifactPackError(artifact, source, f"cannot be read: {error.strerror}") from error
    if left or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise ArtifactPackError(artifact, source, "changed while it was packed")


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join small pieces: ten thousand small files shall not be thirty thousand writes."""
    pending: list[bytes] = []
    size = 0
    for piece in pieces:
        pending.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)
