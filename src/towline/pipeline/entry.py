"""The two sync doors: what must hold before an event loop is started (MOD-26, RUN-45)."""

from __future__ import annotations

import asyncio

from towline.errors.run import RunningLoopError
from towline.modules.target import refuse_while_loading


def refuse_inner_loop(call: str) -> None:
    """Refuse a sync door where it cannot work.

    Raises:
        RunningLoopError: A loop is running in this thread.
        TargetLoadError: The program is just being loaded as a target; a second run would start.
    """
    refuse_while_loading(call)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RunningLoopError(call)
