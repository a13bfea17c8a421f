"""Give consumers the files of an artifact, with one download for all who ask at once (ART-05, ART-09, ART-11)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from towline.artifacts.downloads import as_file
from towline.artifacts.store import ArtifactStore, in_thread

if TYPE_CHECKING:
    from towline.artifacts.records import ArtifactRef


class _Restore:
    """One restore that is going on, and how many wait for it."""

    def __init__(self, asyncio_task: asyncio.Task[Path]) -> None:
        self.asyncio_task = asyncio_task
        self.waiters = 0


_restores: dict[tuple[int, int, str, str], _Restore] = {}
"""Those going on, by event loop, store, digest and place; each leaves when it ends, so a failure is not remembered."""


async def restore(store: ArtifactStore, reference: ArtifactRef, into: str | os.PathLike[str]) -> Path:
    """Restore an artifact into a folder, whole or not at all; return the file, or the folder of a tree.

    Callers that ask for the same thing at the same time share one download. One that is cancelled leaves
    the others; the last one takes the download with it (ART-11).

    Raises:
        ArtifactMissingError: The store does not have it.
        ArtifactCorruptError, UnsafeArchiveError: Nothing was written.
    """
    folder = _place(into)
    key = (id(asyncio.get_running_loop()), id(store), f"{reference.digest}/{reference.file_name}", str(folder))
    shared = _restores.get(key)
    if shared is None:
        shared = _restores[key] = _Restore(asyncio.ensure_future(_fetch(store, reference, folder)))
        shared.asyncio_task.add_done_callback(lambda ended: _forget(key, ended))
    shared.waiters += 1
    try:
        return await asyncio.shield(shared.asyncio_task)
    finally:
        shared.waiters -= 1
        if not shared.waiters and not shared.asyncio_task.done():
            _forget(key, shared.asyncio_task)
            shared.asyncio_task.cancel()


def _forget(key: tuple[int, int, str, str], asyncio_task: asyncio.Task[Path]) -> None:
    if asyncio_task.done() and not asyncio_task.cancelled():
        asyncio_task.exception()  # seen, should nobody be left to raise it to
    if key in _restores and _restores[key].asyncio_task is asyncio_task:
        del _restores[key]


async def _fetch(store: ArtifactStore, reference: ArtifactRef, folder: Path) -> Path:
    from towline.artifacts.unpacking import restore_file

    async with as_file(store, reference, folder) as file:
        return await in_thread(restore_file, file, reference, folder)


def _place(into: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(into))
