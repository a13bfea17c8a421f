"""The bytes of an artifact as a file of this host: the store's own, or a download that is dropped again."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from towline.artifacts.store import in_thread
from towline.errors.artifacts import ArtifactCorruptError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from towline.artifacts.records import ArtifactRef
    from towline.artifacts.store import ArtifactStore


@asynccontextmanager
async def as_file(store: ArtifactStore, reference: ArtifactRef, folder: Path | None = None) -> AsyncIterator[Path]:
    """Give a file that holds the artifact's bytes, unchecked but for their number.

    Args:
        store: Where they are.
        reference: What is wanted.
        folder: Where a download goes; the system's folder for temporary files if not given.

    Raises:
        ArtifactMissingError: The store does not have them.
        ArtifactCorruptError: There are more than the reference says.
    """
    local = await store.local_path(reference.digest)
    if local is not None:
        yield local
        return
    download = await in_thread(_temporary, folder)
    try:
        size = 0
        async for chunk in store.open(reference.digest):
            size += len(chunk)
            if size > reference.size_bytes:
                detail = f"it has more than {reference.size_bytes:,} bytes"
                raise ArtifactCorruptError(reference.name, reference.task_id, reference.digest, detail)
            # Opened anew each time: a cancelled caller leaves the thread behind, which must not write to a
            # handle that has been closed and given to another file.
            await in_thread(_append, download, chunk)
        yield download
    finally:
        _drop(download)


def _temporary(folder: Path | None) -> Path:
    import tempfile

    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".towline-", dir=folder)
    os.close(handle)
    return Path(name)


def _append(path: Path, chunk: bytes) -> None:
    with open(path, "ab", buffering=0) as file:
        file.write(chunk)


def _drop(path: Path) -> None:
    path.unlink(missing_ok=True)
