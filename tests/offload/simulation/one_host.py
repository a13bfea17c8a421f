"""Shared memory of a simulated host: real files and mappings, one pool for each process."""

from __future__ import annotations

from towline.offload import master, master_transfers
from towline.offload.pieces import Piece, PrivateMemory
from towline.offload.regions import RegionPool
from towline.offload.segment_memory import SegmentMemory

SMALL_BYTES = 300
"""Smaller arrays go through the socket, as in real clusters; the workload has arrays of 32 to 2,000 bytes."""


class OneHost:
    """The pools of the master and of each agent, in the order in which they were made."""

    def __init__(self) -> None:
        self.pools = [RegionPool()]
        self.memories: list[SharingMemory] = []
        self._before = master_transfers.STAGED_FROM_BYTES, master.EVICT_FROM_BYTES
        master_transfers.STAGED_FROM_BYTES = master.EVICT_FROM_BYTES = SMALL_BYTES

    def close(self) -> None:
        master_transfers.STAGED_FROM_BYTES, master.EVICT_FROM_BYTES = self._before
        for pool in self.pools:
            pool.close()
        for memory in self.memories:
            memory.end()


class SharingMemory(SegmentMemory):
    """What an agent of that host has; ``within`` says when there is no memory."""

    def __init__(self, host: OneHost, within: PrivateMemory) -> None:
        pool = RegionPool()
        host.pools.append(pool)
        host.memories.append(self)
        super().__init__(pool, shared_from_bytes=SMALL_BYTES)
        self._within = within

    def allocate(self, nbytes: int) -> Piece | None:
        if self._within.allocate(0) is None:
            return None
        return super().allocate(nbytes)

    def end(self) -> None:
        """Let go of the world: what waits for the end of an array refers to this memory, and arrays lie in the world."""
        self._mappings.clear()
        del self._within
