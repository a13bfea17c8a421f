"""Restore the bytes of an artifact: checked first, unpacked aside, then moved entry by entry (ART-09, ART-10).

An archive comes from another machine and is taken for hostile. Blocking: run it in a thread.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import unicodedata
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from towline.artifacts.entries import ENTRIES_LIMIT, SIZE_LIMIT_BYTES, link_problem, path_problem
from towline.errors.artifacts import ArtifactCorruptError, UnsafeArchiveError

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.artifacts.records import ArtifactRef

_CHUNK = 1024 * 1024
_HEADER_LIMIT_BYTES = 2 * _CHUNK
"""Largest single read that tarfile may ask for: it takes the extended headers of an entry whole."""


def restore_file(source: Path, reference: ArtifactRef, into: Path) -> Path:
    """Restore an artifact from a file that holds its bytes; returns the file or folder that was written.

    Raises:
        ArtifactCorruptError: Size or digest differ; nothing was written.
        UnsafeArchiveError: The archive holds something that it should not; nothing was written.
    """
    import tempfile

    with open(source, "rb") as file:
        _verify(file, reference)
        file.seek(0)
        into.mkdir(parents=True, exist_ok=True)
        # Beside the target: renaming works within one file system only.
        staging = Path(tempfile.mkdtemp(prefix=".towline-", dir=into))
        try:
            if reference.kind == "file":
                name = reference.file_name or reference.name
                problem = path_problem(name, windows=os.name == "nt")
                if problem is not None or "/" in name:
                    raise UnsafeArchiveError(name, problem or "is no plain file name")
                with open(staging / name, "xb") as target:
                    shutil.copyfileobj(file, target, _CHUNK)
            else:
                entries = unpack(file, staging)
                if reference.entries is not None and entries != reference.entries:
                    # tarfile takes a damaged header for the end of the archive.
                    raise _corrupt(reference, f"it has {entries:,} entries, not {reference.entries:,}")
            _move_into(staging, into)
        finally:
            shutil.rmtree(staging)
    return into / (reference.file_name or reference.name) if reference.kind == "file" else into


def _verify(file: IO[bytes], reference: ArtifactRef) -> None:
    size, digest = os.fstat(file.fileno()).st_size, sha256()
    if size != reference.size_bytes:
        raise _corrupt(reference, f"it has {size:,} bytes, not {reference.size_bytes:,}")
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    found = f"sha256:{digest.hexdigest()}"
    if found != reference.digest:
        raise _corrupt(reference, f"its digest is {found}")


def _corrupt(reference: ArtifactRef, detail: str) -> ArtifactCorruptError:
    return ArtifactCorruptError(reference.name, reference.task_id, reference.digest, detail)


def unpack(
    file: IO[bytes],
    folder: Path,
    *,
    entries_limit: int = ENTRIES_LIMIT,
    size_limit_bytes: int = SIZE_LIMIT_BYTES,
    windows: bool = os.name == "nt",
) -> int:
    """Unpack a tar into an empty folder that nobody else uses; return the number of entries.

    Raises:
        UnsafeArchiveError: Names the entry. What was written before it stays in the folder.
    """
    fold = _folding(folder)
    written: dict[str, str] = {}  # folded path -> what lies there: "file", "link", "folder", or "above"
    total = count = 0
    try:
        with tarfile.open(fileobj=cast(IO[bytes], _Guarded(file)), mode="r:", format=tarfile.PAX_FORMAT) as archive:
            for info in archive:
                count += 1
                cast(Any, archive).members = []  # tarfile keeps every header otherwise
                total += info.size
                if count > entries_limit:
                    raise UnsafeArchiveError(info.name, f"is one more than the {entries_limit:,} entries allowed")
                if total > size_limit_bytes:
                    raise UnsafeArchiveError(info.name, f"brings it above {size_limit_bytes:,} bytes")
                _check(info, written, fold, windows=windows)
                _write(archive, info, folder)
    except (tarfile.TarError, EOFError, ValueError, RecursionError) as error:
        raise UnsafeArchiveError("", f"cannot be read: {error}") from error
    return count


class _Guarded:
    """A file that refuses to give very much at once: a forged header could ask for all memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self.seek, self.tell, self._read = file.seek, file.tell, file.read

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _HEADER_LIMIT_BYTES:
            raise UnsafeArchiveError("", f"has a header of {size:,} bytes")
        return self._read(size)


def _check(info: tarfile.TarInfo, written: dict[str, str], fold: Callable[[str], str], *, windows: bool) -> None:
    problem = path_problem(info.name, windows=windows)
    if problem is None and info.issym():
        problem = link_problem(info.name, info.linkname)
    if problem is None and not (info.issym() or info.isdir() or info.type in (tarfile.REGTYPE, tarfile.AREGTYPE)):
        problem = "is neither a file, a folder nor a symbolic link"
    if problem is None and info.issparse():
        problem = "is a sparse file"
    if problem is not None:
        raise UnsafeArchiveError(info.name, problem)
    parts = fold(info.name).split("/")
    for depth in range(1, len(parts)):
        above = "/".join(parts[:depth])
        if written.setdefault(above, "above") in ("file", "link"):
            raise UnsafeArchiveError(info.name, f"lies below {above!r}, which is no folder")
    here = "/".join(parts)
    kind = "folder" if info.isdir() else "link" if info.issym() else "file"
    if here in written and not (kind == "folder" and written[here] == "above"):
        raise UnsafeArchiveError(info.name, "is there twice")
    written[here] = kind


def _write(archive: tarfile.TarFile, info: tarfile.TarInfo, folder: Path) -> None:
    target = os.path.join(folder, info.name)
    if info.isdir():
        os.makedirs(target, exist_ok=True)
        return
    parent = os.path.dirname(target)
    if not os.path.isdir(parent):
        os.makedirs(parent)
    if info.issym():
        os.symlink(info.linkname, target)
        return
    source = archive.extractfile(info)
    if source is None:
        raise UnsafeArchiveError(info.name, "has no content")
    mode = 0o777 if info.mode & 0o100 else 0o666
    with source, open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb", buffering=0) as file:
        left = info.size
        while left:
            chunk = source.read(min(left, _CHUNK))
            if not chunk:
                raise UnsafeArchiveError(info.name, "is cut off")
            left -= len(chunk)
            file.write(chunk)


def _folding(folder: Path) -> Callable[[str], str]:
    """How names are compared here: a file system that does not tell cases apart would put two entries in one."""
    probe = folder / ".TowlineCase"
    probe.touch()
    try:
        folds = (folder / ".towlinecase").exists()
    finally:
        probe.unlink()
    return _folded if folds else str


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _move_into(staging: Path, into: Path) -> None:
    """Move what was unpacked to its place; what else lies there stays.

    A link in the place of a folder is replaced, not followed: it could lead out of the target.
    """
    pending = [(staging, into)]
    while pending:
        source, target = pending.pop()
        for entry in list(os.scandir(source)):
            place = target / entry.name
            if not entry.is_dir(follow_symlinks=False):
                os.replace(entry.path, place)
            elif place.is_dir() and not place.is_symlink():
                pending.append((Path(entry.path), place))
            else:
                place.unlink(missing_ok=True)
                os.rename(entry.path, place)
