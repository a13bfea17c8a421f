"""Who waits where on an event loop, in words (TEST-04)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any


def describe_waiters(loop: asyncio.AbstractEventLoop) -> tuple[str, ...]:
    """Return one line per unfinished task of a loop: its name and the innermost line that it waits in."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return tuple(f"{task.get_name()}: {_innermost_line(task.get_coro())}" for task in tasks)


def _innermost_line(awaited: Any) -> str:
    """Follow what a coroutine awaits down to the last frame that can be named."""
    where = "not started"
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None and frame.f_lasti >= 0:
            code = frame.f_code
            where = f"{code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno})"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return where
