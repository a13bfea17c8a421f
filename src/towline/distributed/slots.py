"""The slots of a node: how many tasks run at once, over all runs that it works for (DIST-09, DIST-16)."""

from __future__ import annotations

import asyncio


class Slots:
    """Counts free slots. One object serves one worker, or all of a fleet worker's."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._has_free = asyncio.Event()
        self._show()

    @property
    def is_free(self) -> bool:
        """Whether a task could start now."""
        return self._free > 0

    async def wait_for_free(self) -> None:
        """Return once a slot is free; by then another worker of this node may have taken it."""
        await self._has_free.wait()

    def take(self) -> None:
        """Take a slot. A lease that came with an outcome is taken whatever the count: its slot was just given back."""
        self._free -= 1
        self._show()

    def give_back(self) -> None:
        """Give a slot back."""
        self._free += 1
        self._show()

    def _show(self) -> None:
        (self._has_free.set if self._free > 0 else self._has_free.clear)()
