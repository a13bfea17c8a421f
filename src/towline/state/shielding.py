"""Let a write that has begun come to its end, whatever happens to the body that asked for it (CUR-08)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

SHIELD_LIMIT_S: Final = 10.0


async def finish(work: Coroutine[Any, Any, T], limit_s: float = SHIELD_LIMIT_S) -> T:
    """Await ``work`` in a task of its own; a cancellation of the caller waits for it, then goes on.

    Cancellations are native ones (``task.cancel()``) as the engine uses them, which an anyio shield does
    not hold back. After ``limit_s`` seconds, counted from the first cancellation, the work is cancelled too.
    """
    inner = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(inner)
    except asyncio.CancelledError:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + limit_s
        while not inner.done() and loop.time() < give_up_at:
            try:
                await asyncio.wait({inner}, timeout=give_up_at - loop.time())
            except asyncio.CancelledError:
                continue  # asked again; the answer is the same until the limit
        if not inner.done():
            inner.cancel()
        elif not inner.cancelled() and (error := inner.exception()) is not None:
            raise asyncio.CancelledError from error
        raise
