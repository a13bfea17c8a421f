"""Ownership of a state folder: a system lock that ends with its process (STATE-08, 09, 14)."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from towline.clock import SystemClock
from towline.errors.state import OwnershipLostError, PlanOwnedError, StateUnsupportedError
from towline.state.documents import FOLDER_IS_GONE
from towline.state.files import read_file
from towline.state.keys import JOURNAL_KEY, OWNER_KEY, PLAN_KEY
from towline.state.locks import FileLock
from towline.state.owner_file import OwnerRecord, epoch_floor, read_owner_file, slot

if TYPE_CHECKING:
    from towline.state.files import Files
    from towline.state.store import Owner

_HEAD_BYTES = 4096

SURE_S: Final = 0.001
"""How long the lock, once seen, is taken to be there: to look is a system call, as dear as the append that asks for
it. What is written after the lock file was removed lands in a file that the next owner replaces."""

_monotonic = SystemClock.monotonic


class DirectoryOwnership:
    """The lock on ``owner.lock``, held open."""

    def __init__(self, root: str, epoch: int, lock: FileLock) -> None:
        self.root, self.epoch = root, epoch
        self._lock = lock
        self._sure_until = 0.0
        self._lost = asyncio.Event()

    def check(self) -> None:
        """Raise ``OwnershipLostError`` when it was released, or the locked file or its folder was removed.

        A release is known at once, a removal within a millisecond.
        """
        now = _monotonic()
        if now < self._sure_until:
            return
        if self._lock.fd < 0 or not self._lock.is_current():
            self._lost.set()
            latest = read_owner_file(read_file(os.path.join(self.root, OWNER_KEY)) or b"").latest
            current = latest.epoch if latest and latest.epoch != self.epoch else 0
            is_gone = self._lock.fd >= 0 and not os.path.isdir(self.root)
            raise OwnershipLostError(self.root, self.epoch, current, FOLDER_IS_GONE if is_gone else "")
        self._sure_until = now + SURE_S

    async def renew(self) -> None:
        """A system lock needs no renewal: this only checks that it is still the one at its path."""
        self.check()

    async def release(self) -> None:
        self.free()

    def free(self) -> None:
        """Release at once; a second call does nothing."""
        self._sure_until = 0.0
        self._lock.free()
        self._lost.set()

    async def wait_for_loss(self) -> None:
        """Return after ``release``, or after a check that found the lock file removed."""
        await self._lost.wait()


def take_ownership(root: str, files: Files, owner: Owner, *, power: bool) -> DirectoryOwnership:
    """Lock ``owner.lock``, write the holder into it, and return the ownership.

    Raises:
        PlanOwnedError: A process holds the lock: it lives, whatever the file says.
        StateUnsupportedError: Locks do not exclude here, so nobody could own anything.
        OSError: The file cannot be written.
    """
    path = os.path.join(root, OWNER_KEY)
    while True:
        lock = FileLock(path, files)
        if not lock.try_take():
            raise _owned_by_another(root, path)
        if lock.is_current():
            break
        lock.free()  # removed between open and lock: that file guards nothing
    try:
        probe = FileLock(path, files)
        if probe.try_take():
            probe.free()
            raise StateUnsupportedError(root, "its file locks do not exclude one another")
        epoch = _write_holder(root, files, lock, owner, power=power)
    except BaseException:
        lock.free()
        raise
    return DirectoryOwnership(root, epoch, lock)


def _write_holder(root: str, files: Files, lock: FileLock, owner: Owner, *, power: bool) -> int:
    current = read_owner_file(read_file(lock.path) or b"")
    before = current.latest.epoch if current.latest else 0
    # The plan's own mention counts as well: a lost or restored owner.lock must not lower the fence, and
    # a power cut may undo an unsynced owner.lock, but not plan.json (STATE-09).
    floor = epoch_floor(_head(os.path.join(root, PLAN_KEY)), _head(os.path.join(root, JOURNAL_KEY)))
    epoch = max(before, floor) + 1
    record = OwnerRecord(
        id=owner.id, host=owner.host, pid=owner.pid, epoch=epoch, since=owner.since, run_id=owner.run_id
    )
    files.write_at(lock.fd, slot(record), current.next_offset)
    if power:
        files.fsync(lock.fd)
        files.sync_folder(root)
    return epoch


def _owned_by_another(root: str, path: str) -> PlanOwnedError:
    holder = read_owner_file(read_file(path) or b"").latest
    if holder is None:
        return PlanOwnedError(root, "an unknown owner", "unknown", "an unknown host", 0, "an unknown moment")
    return PlanOwnedError(root, holder.id, holder.run_id, holder.host, holder.pid, holder.since)


def _head(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return b""
