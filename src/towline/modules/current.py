"""Which task the running code belongs to."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from towline.modules.doors import Attempt

current_attempt: ContextVar[Attempt | None] = ContextVar("towline_current_attempt", default=None)
"""The attempt whose body or hook runs here, set by the runner and copied into threads; ``None`` outside (RUN-37)."""
