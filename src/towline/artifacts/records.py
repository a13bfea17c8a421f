"""References to stored artifacts."""

from __future__ import annotations

from typing import Literal

import msgspec


class ArtifactRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Names the stored bytes of one artifact of one task; moves in place of the bytes."""

    task_id: str
    name: str
    digest: str
    size_bytes: int
    kind: Literal["file", "tree"]
    entries: int | None = None
    file_name: str | None = None
