"""A loop of our own for one coroutine, whose end no body can hold up (RUN-26, RUN-48)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

LEFTOVER_GRACE_S = 0.5
"""What asyncio tasks that bodies left behind get for their end, once they are cancelled."""


def run_on_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new loop, and leave behind what still ignores its cancel.

    ``asyncio.run`` would wait for that for ever.
    """
    with asyncio.Runner() as runner:
        try:
            return runner.run(work)
        finally:
            runner.run(_end_leftovers())


async def _end_leftovers() -> None:
    """Cancel every other asyncio task; those that ignore it are taken from the loop's books."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if not left:
        return
    for one in left:
        one.cancel()
    _, stubborn = await asyncio.wait(left, timeout=LEFTOVER_GRACE_S)
    for one in stubborn:
        leave_behind(one)


def leave_behind(task: asyncio.Task[Any]) -> None:
    """Let a loop end without a task that ignores its cancel: it is destroyed with the loop."""
    asyncio.tasks._unregister_task(task)  # whoever closes the loop gathers what is registered, however long it takes
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # as gather() does: it was reported already
