"""Versions that were copied into a segment once, for all workers of this host, and who may still read them (OFF-709).

When a segment may be used again. A worker that was told of a segment keeps the version in its cache and reads it
where it lies, perhaps much later: it may have been stopped, or be thought dead. So the segment is *lent*, once
for each transfer that named it, and each loan ends in one of two ways:

- The worker says RETURNED: nothing in its process refers to these bytes any more, no cache, no job, no kernel that still
  runs though its call was cancelled. It says so for every transfer, also for one it had no use for. A transfer is mapped at
  most once, so what arrives late of one that was returned is not looked at.
- Its session ends without that. Then the segment is unlinked for good, and never used again: a worker that is stopped,
  or cut off, reads the old bytes for as long as it likes.

So no kernel ever sees the bytes of one version change into those of another. Were it otherwise, still nothing
wrong would be committed: a version has a successor only when every call that reads it is final (OFF-301, OFF-210), and what
comes back of a final call is refused by its fence (OFF-502). But such a kernel could crash on what it reads, and its
process with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from towline.offload.regions import Region, RegionPool

RESTING_LIMIT_BYTES = 1 << 30
"""Segments whose version is over and that are still lent; beyond it the oldest are unlinked and not waited for."""


class Staging:
    """The staged version of each buffer, and all loans."""

    def __init__(self, pool: RegionPool) -> None:
        self._pool = pool
        self._staged: dict[int, tuple[int, Region]] = {}
        self._resting: dict[str, Region] = {}
        self._lent: dict[int, dict[int, Region]] = {}
        self._resting_bytes = 0

    def stage(self, buffer: int, version: int, view: memoryview) -> tuple[str, int] | None:
        """Return the segment that holds a version, copying it once; None where there is no shared memory.

        It keeps its name while the version is the committed one: a worker's kernel processes map it later.
        """
        known = self._staged.get(buffer)
        if known is not None and known[0] == version:
            return known[1].segment
        self.unstage(buffer)
        region = self._pool.take_filled(view)
        if region is None:
            return None
        self._staged[buffer] = (version, region)
        return region.segment

    def lend(self, buffer: int, session: int, transfer: int) -> None:
        """Note that a session is about to be told of the buffer's segment, for this transfer."""
        region = self._staged[buffer][1]
        region.users.add((session, transfer))
        self._lent.setdefault(session, {})[transfer] = region

    def returned(self, session: int, transfer: int) -> None:
        """A worker reads the segment of a transfer no more; a transfer that was not lent, or twice, is no error."""
        region = self._lent.get(session, {}).pop(transfer, None)
        if region is not None:
            region.users.discard((session, transfer))
            if not region.users and region.name in self._resting:
                self._wake(region)
                self._pool.retire(region, viewed=False)

    def session_ended(self, session: int) -> None:
        """Whoever it was may read its segments for ever: they are never used again."""
        for region in self._lent.pop(session, {}).values():
            region.viewed = True
            if region.name in self._resting:
                self._wake(region)
                self._pool.lose(region)

    def unstage(self, buffer: int) -> None:
        """The version that was staged is not the committed one any more."""
        known = self._staged.pop(buffer, None)
        if known is None:
            return
        region = known[1]
        if not region.users or region.viewed:
            self._pool.retire(region, viewed=False)
            return
        self._resting[region.name] = region
        self._resting_bytes += region.size
        while self._resting_bytes > RESTING_LIMIT_BYTES and len(self._resting) > 1:
            oldest = next(iter(self._resting.values()))
            self._wake(oldest)
            self._pool.lose(oldest)

    def clear(self) -> None:
        """Forget everything: the pool unlinks it all."""
        self._staged.clear()
        self._resting.clear()
        self._lent.clear()
        self._resting_bytes = 0

    def _wake(self, region: Region) -> None:
        del self._resting[region.name]
        self._resting_bytes -= region.size
