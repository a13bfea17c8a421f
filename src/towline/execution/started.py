"""What this node has started and must not leave behind: trees that live, trees that are being ended."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from towline.execution.warden import Warden

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from towline.execution.trees import ProcessTree

KILLED_S: Final = 2.0
"""How long killed trees may take to be gone."""

TOLD_AFTER_S: Final = 0.5
"""Trees that end within this time are nobody's concern."""

warden: Final = Warden()
"""Of this process; commands are told to it, for it alone acts after a ``kill -9``."""

_living: set[ProcessTree] = set()
_ending: set[asyncio.Task[None]] = set()
_starting: list[None] = []
"""One entry for each command that is being started."""


def watch(tree: ProcessTree) -> None:
    """Count a tree as started by this node, to be ended with it."""
    _living.add(tree)


def forget(tree: ProcessTree) -> None:
    """Count a tree as ended."""
    _living.discard(tree)


@contextmanager
def starting() -> Iterator[None]:
    """Say that a command is being started, until its tree is watched: some turns of the loop lie between."""
    _starting.append(None)
    try:
        yield
    finally:
        _starting.pop()


def kill_all() -> None:
    """Kill every tree that this process started and that has not ended: the last act before an exit (RUN-43)."""
    if _starting:
        _watch_unknown()
    for tree in list(_living):
        tree.kill()
        _living.discard(tree)


def _watch_unknown() -> None:
    """Watch children that lead a session and are not known: a program runs before asyncio tells its pid.

    A child that the program itself gave a session is taken for one: this happens only in the moment of a start.
    """
    from towline.execution.trees import ProcessTree, process_table

    known = {tree.root for tree in _living} | {warden.pid}
    node = os.getpid()
    for row in process_table():
        if row.parent == node and row.session == row.pid and row.pid not in known:
            watch(ProcessTree(row.pid))


def end_in_background(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """End a tree beside what its task does next; whoever leaves waits for it (``wait_for_trees``)."""
    ending = asyncio.get_running_loop().create_task(work)
    _ending.add(ending)
    ending.add_done_callback(_ending.discard)
    return ending


async def wait_for_trees(limit_s: float | None = None, tell: Callable[[int], None] | None = None) -> None:
    """Wait until every tree that is being ended in the background of this loop is gone.

    Each has its own grace; ``limit_s`` is that of the node, after which what is left is killed (RUN-48). ``tell`` is
    called once with the number of those that do not end at once.
    """
    loop = asyncio.get_running_loop()
    end_at = None if limit_s is None else loop.time() + limit_s
    if tell is not None and (left := _ending_in(loop)):
        _, left = await asyncio.wait(left, timeout=TOLD_AFTER_S)
        if left:
            tell(len(left))
    while left := _ending_in(loop):
        done, left = await asyncio.wait(left, timeout=None if end_at is None else max(0.0, end_at - loop.time()))
        if left and not done:
            for ending in left:
                ending.cancel()  # the clean-up of each kills its tree
            await asyncio.wait(left, timeout=KILLED_S)
            return


def _ending_in(loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[None]]:
    return {ending for ending in _ending if ending.get_loop() is loop}
