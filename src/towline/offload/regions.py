"""Shared memory of one host: files below /dev/shm, mapped by whoever is told their name (OFF-707 to OFF-709).

``multiprocessing.shared_memory`` is not used: before Python 3.13 the resource tracker of an attaching
process unlinks what it attached. Only the process that made a file unlinks it here.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from towline.offload.arrays import Array, DType

FOLDER = "/dev/shm"
FREE_LIMIT_BYTES = 1 << 30
"""Regions kept for use again; beyond it they are unlinked."""
_NAME = re.compile(r"towline-[0-9]+-[0-9]+-[0-9a-f]{16}-[0-9]+\Z")


class Region:
    """One file of shared memory. ``users`` are the fences of calls that were given it and have not ended."""

    __slots__ = ("_memory", "name", "size", "users", "viewed")

    def __init__(self, name: str, size: int, memory: mmap.mmap | None) -> None:
        self.name, self.size, self._memory = name, size, memory
        self.users: set[int] = set()
        self.viewed = False

    @property
    def segment(self) -> tuple[str, int]:
        """How a frame names it."""
        return (self.name, 0)

    @property
    def memory(self) -> mmap.mmap:
        """Its mapping; a staged region, which this process never reads, has none."""
        assert self._memory is not None
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
    """Makes regions, uses them again where nobody can still look at them, and unlinks all it made."""

    def __init__(self) -> None:
        self._prefix = f"towline-{os.getuid()}-{os.getpid()}-{secrets.token_hex(8)}"
        self._count = 0
        self._made: dict[str, Region] = {}
        self._free: dict[int, list[Region]] = {}
        self._free_bytes = 0
        self._staged: dict[int, tuple[int, Region]] = {}
        self.refused: str | None = None

    def take(self, nbytes: int) -> Region | None:
        """Return a region of that size with any content; None where there is no shared memory."""
        free = self._free.get(nbytes)
        if free:
            self._free_bytes -= nbytes
            return free.pop()
        return self._make(nbytes, None)

    def _make(self, nbytes: int, content: memoryview | None) -> Region | None:
        name = f"{self._prefix}-{self._count}"
        self._count += 1
        memory: mmap.mmap | None = None
        try:
            handle = os.open(f"{FOLDER}/{name}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except OSError as error:
            self.refused = f"no shared memory: {error.strerror}"
            return None
        try:
            if content is not None:
                # Written, not mapped: the system then clears no page before it is filled, and maps none here.
                while content.nbytes:
                    content = content[os.write(handle, content) :]
            else:
                os.posix_fallocate(
                    handle, 0, max(nbytes, 1)
                )  # a sparse file would kill us with SIGBUS when memory ends
                memory = mmap.mmap(handle, max(nbytes, 1))
        except OSError as error:
            self.refused = f"no shared memory of {nbytes} bytes: {error.strerror}"
            os.unlink(f"{FOLDER}/{name}")
            return None
        finally:
            os.close(handle)
        region = self._made[name] = Region(name, nbytes, memory)
        return region

    def retire(self, region: Region, *, viewed: bool) -> None:
        """Nobody needs this region for now: keep it for later, or unlink it if somebody could still look or write (OFF-708)."""
        if viewed or region.viewed or region.users or self._free_bytes + region.size > FREE_LIMIT_BYTES:
            self.lose(region)
            return
        self._free.setdefault(region.size, []).append(region)
        self._free_bytes += region.size

    def lose(self, region: Region) -> None:
        """Unlink a region for good; mappings of it stay readable."""
        if self._made.pop(region.name, None) is not None:
            os.unlink(f"{FOLDER}/{region.name}")

    def ended(self, fence: int) -> None:
        """The call of a fence ended late: it cannot write any more."""
        for region in self._made.values():
            region.users.discard(fence)

    def stage(self, buffer: int, version: int, view: memoryview) -> tuple[str, int] | None:
        """Copy a version into a segment that workers of this host map; one copy serves all of them (OFF-709).

        It keeps its name while the version is the committed one: a worker's kernel processes map it later.
        """
        known = self._staged.get(buffer)
        if known is not None and known[0] == version:
            return known[1].segment
        self.unstage(buffer)
        region = self._make(view.nbytes, view)
        if region is None:
            return None
        self._staged[buffer] = (version, region)
        return region.segment

    def unstage(self, buffer: int) -> None:
        """The version that was staged is no longer committed: mappings of it stay readable, its name goes."""
        known = self._staged.pop(buffer, None)
        if known is not None:
            self.lose(known[1])

    def attach(self, segment: tuple[str, int], nbytes: int) -> memoryview | None:
        """Map a region of another process, read-only, to copy all of it."""
        return attach(segment, nbytes, writable=False, whole=True)

    def can_attach(self, trial: str) -> bool:
        """Say whether a file that a worker made is visible here, with what it wrote into it (OFF-707)."""
        seen = attach((trial, 0), len(trial.encode()), writable=False) if trial else None
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
        """Unlink everything that this pool made."""
        for region in list(self._made.values()):
            self.lose(region)
        self._free.clear()
        self._staged.clear()


def attach(segment: tuple[str, int], nbytes: int, *, writable: bool, whole: bool = False) -> memoryview | None:
    """Map part of a region by name; None if it is not there, is not one of ours, or is too small.

    ``whole``: all of it will be used, so its pages are mapped at once, which costs less than a fault for each.
    """
    name, offset = segment
    if not _NAME.match(name) or offset < 0 or nbytes <= 0:
        return None
    try:
        handle = os.open(f"{FOLDER}/{name}", os.O_RDWR if writable else os.O_RDONLY)
    except OSError:
        return None
    try:
        if os.fstat(handle).st_size < offset + nbytes:
            return None
        flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if whole else 0)
        rights = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        return memoryview(mmap.mmap(handle, offset + nbytes, flags=flags, prot=rights))[offset:]
    except OSError:
        return None
    finally:
        os.close(handle)


def sweep() -> int:
    """Unlink what dead processes of this user left; returns how many files that were."""
    swept = 0
    mine = f"towline-{os.getuid()}-"
    try:
        names = os.listdir(FOLDER)
    except OSError:
        return 0
    for name in names:
        if not name.startswith(mine) or not _NAME.match(name):
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
