"""Move stored bytes from one store to another, under their digest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.artifacts.downloads import as_file
from towline.errors.artifacts import ArtifactCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from towline.artifacts.records import ArtifactRef
    from towline.artifacts.store import ArtifactStore

_CHUNK = 1024 * 1024


async def copy(
    reference: ArtifactRef, source: ArtifactStore, target: ArtifactStore, *, run_id: str | None = None
) -> None:
    """Give the target store the bytes of an artifact, unless it has them.

    Raises:
        ArtifactMissingError: The source does not have them.
        ArtifactCorruptError: They are not what the digest says.
    """
    if await target.exists(reference.digest):
        return
    async with as_file(source, reference) as file:
        stored = await target.put(_chunks(file), run_id=run_id)
    if stored.digest != reference.digest:
        raise ArtifactCorruptError(
            reference.name, reference.task_id, reference.digest, f"its digest is {stored.digest}"
        )


def _chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            yield chunk
