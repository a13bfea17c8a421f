"""Store what a task produced (ART-03, ART-04, ART-12)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from towline.artifacts.records import ArtifactRef
from towline.artifacts.store import in_thread
from towline.errors.artifacts import ArtifactMissingError

if TYPE_CHECKING:
    from os import PathLike

    from towline.artifacts.matching import Match
    from towline.artifacts.store import ArtifactStore


async def collect(
    store: ArtifactStore,
    task_id: str,
    name: str,
    pattern: str,
    workdir: str | PathLike[str],
    *,
    run_id: str | None = None,
) -> ArtifactRef | None:
    """Pack and store what the pattern names below the workdir; ``None`` if there is nothing.

    Whether nothing is an error depends on who needs it, so that is the caller's part (ART-03).

    Raises:
        ArtifactPackError: Something matched cannot be packed, or changed meanwhile (ART-07).
    """
    from towline.artifacts.matching import find

    match = await in_thread(find, Path(workdir), pattern, name)
    return None if match is None else await _store(store, task_id, name, match, run_id)


async def collect_path(
    store: ArtifactStore,
    task_id: str,
    name: str,
    path: str | PathLike[str],
    *,
    run_id: str | None = None,
) -> ArtifactRef:
    """Store one file or folder by its absolute path, which may lie anywhere (ART-12).

    Raises:
        ArtifactMissingError: There is nothing at the path.
        ArtifactPackError: It cannot be packed.
    """
    from towline.artifacts.matching import at_path

    place = Path(path)
    match = await in_thread(at_path, place, name)
    if match is None:
        raise ArtifactMissingError(name, task_id, f"there is nothing at {place}")
    return await _store(store, task_id, name, match, run_id)


async def _store(store: ArtifactStore, task_id: str, name: str, match: Match, run_id: str | None) -> ArtifactRef:
    from towline.artifacts.packing import packed

    stored = await store.put(packed(match, name), run_id=run_id)
    return ArtifactRef(
        task_id=task_id,
        name=name,
        digest=stored.digest,
        size_bytes=stored.size_bytes,
        kind=match.kind,
        entries=len(match.entries) if match.kind == "tree" else None,
        file_name=match.entries[0].path if match.kind == "file" else None,
    )
