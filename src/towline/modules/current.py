"""Which task the running code belongs to."""

from __future__ import annotations

from contextvars import ContextVar

current_task: ContextVar[str | None] = ContextVar("towline_current_task", default=None)
"""The id of the task whose body runs here, set by the runner around each body and hook (RUN-37)."""
