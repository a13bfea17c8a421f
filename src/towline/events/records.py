"""What everyone who looks is told: one record per event (``planning.md`` section 2)."""

from __future__ import annotations

from typing import Any

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One event of a run. ``data`` depends on ``kind`` and is already masked.

    ``n`` counts from 1 per session as the event is made; ``seq`` from 1 per run and log, with the ``source``
    and ``session`` that it came from (``planning.md`` section 2).
    """

    seq: int = 0
    source: str = ""
    session: str = ""
    n: int
    at: str
    kind: str
    task: str | None = None
    epoch: int | None = None
    attempt: int | None = None
    data: dict[str, Any] = {}
