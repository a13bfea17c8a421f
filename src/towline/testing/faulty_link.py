"""A link that loses requests and replies, is slow, and is cut off now and then; for authors of coordinators too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from towline.coordination.client import LinkedCoordinator

if TYPE_CHECKING:
    from random import Random

    from towline.coordination.link import Link, Watch
    from towline.coordination.operations import Operation
    from towline.testing.fault_plan import FaultPlan

R = TypeVar("R")

RETRY_S = 0.2


class FaultyLink:
    """Executes operations on another link, as a bad network would have it.

    A call whose request or reply was lost is repeated, as a client must: whatever is executed twice by that has to be
    harmless (COORD-C80, R20). While it is cut off, calls wait.
    """

    def __init__(self, link: Link, plan: FaultPlan, random: Random) -> None:
        self.poll_s = link.poll_s
        self._link, self._plan, self._random = link, plan, random
        self._open = asyncio.Event()
        self._open.set()
        self._is_dead = False

    def cut(self, *, for_ever: bool = False) -> None:
        """Let nothing through until :meth:`mend`; ``for_ever``: the process behind it is dead."""
        self._is_dead = self._is_dead or for_ever
        self._open.clear()

    def mend(self) -> None:
        """Let calls through again."""
        if not self._is_dead:
            self._open.set()

    async def call(self, operation: Operation[R]) -> R:
        """Execute one operation, in the end."""
        plan, random = self._plan, self._random
        while True:
            await self._open.wait()
            if plan.delay_s:
                await asyncio.sleep(random.uniform(0.0, plan.delay_s) * random.random())
            if random.random() < plan.drop:
                await asyncio.sleep(RETRY_S)
                continue
            reply = await self._link.call(operation)
            if random.random() < plan.lose_reply or not self._open.is_set():
                await asyncio.sleep(RETRY_S)
                continue
            return reply

    def watch(self, key: str) -> Watch:
        """Notifications get through; readers read again anyway."""
        return self._link.watch(key)

    async def aclose(self) -> None:
        """Close the other link."""
        await self._link.aclose()


class FaultyCoordinator(LinkedCoordinator):
    """Any link's coordinator over a bad network; ``link`` is where to cut it off."""

    def __init__(self, link: Link, run_id: str, plan: FaultPlan, random: Random) -> None:
        self.link = FaultyLink(link, plan, random)
        super().__init__(self.link, run_id)
