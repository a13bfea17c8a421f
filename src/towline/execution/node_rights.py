"""Processor shares and tickets of node-scope pools on one node of a distributed run (DIST-36, RUN-02).

The master's scheduler gives out what holds over all nodes before it queues a task; what bounds a node
alone is taken here, after the claim and before the body, so a task may wait in its slot.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from towline.execution.limits import ModuleRules

PROCESSOR = "a processor"


class NodeRights:
    """Gives all rights of a task at once, in the order of asking among those that want the same.

    ``pools``: tickets of the pools of node scope; others are the master's and are not counted here.
    """

    def __init__(self, rules: Mapping[str, ModuleRules], *, cores: int, pools: Mapping[str, int]) -> None:
        self._free = Counter({PROCESSOR: max(1, cores), **{f"pool {name}": count for name, count in pools.items()}})
        self._needs = {module: need for module, rule in rules.items() if (need := _need(rule, pools))}
        self._waiting: dict[asyncio.Future[None], Counter[str]] = {}

    async def take(self, module: str) -> None:
        """Return once the module's rights are taken; cancelling the wait takes none."""
        need = self._needs.get(module)
        if need is None:
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = need
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if self._waiting.pop(turn, None) is None:  # cancelled in the moment in which its turn had come
                self._free.update(need)
            self._serve()
            raise

    def give_back(self, module: str) -> None:
        """Return the rights of a task whose body has ended."""
        need = self._needs.get(module)
        if need is not None:
            self._free.update(need)
            self._serve()

    def _serve(self) -> None:
        """Let those go whose rights are free, none past an earlier one that waits for the same right."""
        wanted: set[str] = set()
        for turn, need in list(self._waiting.items()):
            if wanted.isdisjoint(need) and all(self._free[right] >= count for right, count in need.items()):
                self._free.subtract(need)
                del self._waiting[turn]
                turn.set_result(None)
            else:
                wanted.update(need)


def _need(rule: ModuleRules, pools: Mapping[str, int]) -> Counter[str]:
    need = Counter({f"pool {name}": tickets for name, tickets in rule.pools.items() if name in pools})
    if rule.hint == "cpu":
        need[PROCESSOR] = 1
    return need
