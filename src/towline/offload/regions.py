"""Shared memory of one host: files below /dev/shm, mapped by whoever is told their name (OFF-707 to OFF-709).

``multiprocessing.shared_memory`` is not used: before Python 3.13 the resource tracker of an attaching
process unlinks what it attached. Only the process that made a file unlinks it here.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from towline.offload.mappings import FOLDER, NAME, Mappings, map_file
from towline.offload.staging import Staging

if TYPE_CHECKING:
    from towline.offload.arrays import Array, DType

IDLE_LIMIT_BYTES = 1 << 30
"""Regions kept for use again; beyond it the oldest are unlinked."""
IDLE_LIMIT_COUNT = 8_192
"""The same for many small ones, each of which is a mapping (``mappings.LIMIT_COUNT``)."""
IDLE_S = 30.0
"""How long a region that nobody takes is kept."""


class Region:
    """One file of shared memory.

    ``users`` may still look at it, or write: the fences of calls that were given it and have not ended, and
    (session, transfer) for each loan of a staged one. ``viewed``: somebody may look at it for ever.
    """

    __slots__ = ("_memory", "idle_since", "name", "size", "users", "viewed")

    def __init__(self, name: str, size: int, memory: mmap.mmap | None) -> None:
        self.name, self.size, self._memory = name, size, memory
        self.users: set[int | tuple[int, int]] = set()
        self.viewed = False
        self.idle_since: float | None = None

    @property
    def segment(self) -> tuple[str, int]:
        """How a frame names it."""
        return (self.name, 0)

    @property
    def memory(self) -> mmap.mmap:
        """Its mapping, made when it is first asked for: one that was written as a file is not mapped here."""
        return self.mapped()

    def mapped(self, *, filled: bool = False) -> mmap.mmap:
        """Return its mapping; ``filled`` as in ``Mappings.view``, for one that is made now."""
        if self._memory is None:
            found = map_file(self.name, writable=True, filled=filled)
            if found is None:
                raise MemoryError(f"{self.size} bytes of shared memory cannot be mapped")
            self._memory = found[0]
        return self._memory

    def view(self) -> memoryview:
        """Its bytes, writable."""
        return memoryview(self.memory)[: self.size]

    def array(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """Its bytes as an array."""
        if self.size == 0:
            return np.empty(shape, dtype)
        flat: Array = np.frombuffer(self.memory, np.uint8, self.size)
        return flat.view(dtype).reshape(shape)


class RegionPool:
    """Makes regions, uses them again where nobody can still look at them, and unlinks all it made.

    A region that is made costs the system more than the copy into it: each page is to be found, cleared and
    mapped. So up to ``IDLE_LIMIT_BYTES`` of regions that nobody needs stay here, mapped, for the next array of
    their size; after ``IDLE_S``, or when there is no other memory, they are given back.
    """

    def __init__(self) -> None:
        self._prefix = f"towline-{os.getuid()}-{os.getpid()}-{secrets.token_hex(8)}"
        self._count = 0
        self._made: dict[str, Region] = {}
        self._idle: OrderedDict[str, Region] = OrderedDict()
        self._idle_of: dict[int, list[Region]] = {}
        self._idle_bytes = 0
        self.staging = Staging(self)
        self.mappings = Mappings()
        self.refused: str | None = None

    def take(self, nbytes: int) -> Region | None:
        """Return a region of that size with any content; None where there is no shared memory."""
        idle = self._idle_of.get(nbytes)
        if idle:
            region = idle[-1]  # the latest: its bytes may still be in a cache
            self._wake(region)
            return region
        return self._make(nbytes, None)

    def take_filled(self, content: memoryview) -> Region | None:
        """Return a region that holds a copy of these bytes; None where there is no shared memory."""
        if not self._idle_of.get(content.nbytes):
            return self._make(content.nbytes, content)
        region = self.take(content.nbytes)
        assert region is not None
        region.mapped(filled=True)
        region.view()[:] = content
        return region

    def _make(self, nbytes: int, content: memoryview | None) -> Region | None:
        try:
            return self._made_of(nbytes, content)
        except OSError:
            self._give_back_idle()
        try:
            return self._made_of(nbytes, content)
        except OSError as error:
            self.refused = f"no shared memory of {nbytes} bytes: {error.strerror}"
            return None

    def _made_of(self, nbytes: int, content: memoryview | None) -> Region:
        name = f"{self._prefix}-{self._count}"
        self._count += 1
        memory: mmap.mmap | None = None
        handle = os.open(f"{FOLDER}/{name}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            if content is not None:
                # Written, not mapped: the system then clears no page before it is filled, and maps none here.
                while content.nbytes:
                    content = content[os.write(handle, content) :]
            else:
                # A sparse file would kill us with SIGBUS when memory ends.
                os.posix_fallocate(handle, 0, max(nbytes, 1))
                memory = mmap.mmap(handle, max(nbytes, 1))
        except OSError:
            os.unlink(f"{FOLDER}/{name}")
            raise
        finally:
            os.close(handle)
        region = self._made[name] = Region(name, nbytes, memory)
        return region

    def retire(self, region: Region, *, viewed: bool) -> None:
        """Nobody needs this region for now: keep it for later, or unlink it if somebody could still look or write (OFF-708)."""
        if viewed or region.viewed or region.users or region.name not in self._made:
            self.lose(region)
            return
        self._idle[region.name] = region
        self._idle_of.setdefault(region.size, []).append(region)
        self._idle_bytes += region.size
        region.idle_since = None
        while self._idle_bytes > IDLE_LIMIT_BYTES or len(self._idle) > IDLE_LIMIT_COUNT:
            self._give_back(next(iter(self._idle.values())))

    def lose(self, region: Region) -> None:
        """Unlink a region for good; mappings of it stay readable."""
        if self._made.pop(region.name, None) is not None:
            os.unlink(f"{FOLDER}/{region.name}")

    def ended(self, fence: int) -> None:
        """The call of a fence ended late: it cannot write any more."""
        for region in self._made.values():
            region.users.discard(fence)

    def tidy(self, now: float) -> None:
        """Give back what has been idle for long, and let go of what other processes have unlinked."""
        self.mappings.tidy(now)
        for region in list(self._idle.values()):
            if region.idle_since is None:
                region.idle_since = now
            elif now - region.idle_since > IDLE_S:
                self._give_back(region)

    def attach(self, segment: tuple[str, int], nbytes: int) -> memoryview | None:
        """Map a region of another process, read-only, to copy all of it."""
        return self.mappings.view(segment, nbytes, writable=False)

    def can_attach(self, trial: str) -> bool:
        """Say whether a file that a worker made is visible here, with what it wrote into it (OFF-707)."""
        seen = self.mappings.view((trial, 0), len(trial.encode()), writable=False) if trial else None
        return seen is not None and bytes(seen) == trial.encode()

    def trial(self) -> str:
        """Make a small file for ``can_attach`` of the other side; empty without shared memory."""
        name = f"{self._prefix}-{self._count}"
        region = self.take(len(name))
        if region is None:
            return ""
        region.view()[:] = region.name.encode()
        region.viewed = True
        return region.name

    def close(self) -> None:
        """Unlink everything that this pool made, and let go of everything else."""
        for region in list(self._made.values()):
            self.lose(region)
        self._idle.clear()
        self._idle_of.clear()
        self._idle_bytes = 0
        self.staging.clear()
        self.mappings.clear()

    def _wake(self, region: Region) -> None:
        del self._idle[region.name]
        alike = self._idle_of[region.size]
        alike.remove(region)
        if not alike:
            del self._idle_of[region.size]
        self._idle_bytes -= region.size

    def _give_back(self, region: Region) -> None:
        self._wake(region)
        self.lose(region)

    def _give_back_idle(self) -> None:
        for region in list(self._idle.values()):
            self._give_back(region)


def sweep() -> int:
    """Unlink what dead processes of this user left; returns how many files that were."""
    swept = 0
    mine = f"towline-{os.getuid()}-"
    try:
        names = os.listdir(FOLDER)
    except OSError:
        return 0
    for name in names:
        if not name.startswith(mine) or not NAME.match(name):
            continue
        try:
            os.kill(int(name.split("-")[2]), 0)
        except ProcessLookupError:
            try:
                os.unlink(f"{FOLDER}/{name}")
                swept += 1
            except (FileNotFoundError, PermissionError):  # swept meanwhile, or owned outside this user namespace
                continue
        except PermissionError:
            continue
    return swept


def host_identity() -> str:
    """Name this host and user: shared memory is offered only between equals (OFF-707)."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            boot = stream.read().strip()
    except OSError:
        boot = ""
    return f"{boot}/{os.getuid()}" if boot else ""
