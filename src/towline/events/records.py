"""What everyone who looks is told: one record per event (``planning.md`` section 2)."""

from __future__ import annotations

from typing import Any

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a run. ``n`` counts from 1 per session; ``data`` depends on ``kind`` and is already masked."""

    n: int
    at: str
    kind: str
    task: str | None = None
    epoch: int | None = None
    attempt: int | None = None
    data: dict[str, Any] = {}
