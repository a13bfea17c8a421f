"""Segments of other processes, mapped by name, and kept mapped from one call to the next (OFF-708, OFF-709).

A name never means other memory: it is random, its file is made once, never cut, and unlinked for good by its
maker. So a kept mapping always shows the segment that was asked for; what the segment holds is for the protocol
to know. Mapping costs a fault for each page that is touched, which for a large array takes longer than many
kernels do; so it is paid once for each segment, not once for each call.
"""

from __future__ import annotations

import mmap
import os
import re
from collections import OrderedDict

FOLDER = "/dev/shm"
NAME = re.compile(r"towline-[0-9]+-[0-9]+-[0-9a-f]{16}-[0-9]+\Z")
LIMIT_BYTES = 4 << 30
LIMIT_COUNT = 8_192
"""Linux gives a process 65,530 mappings, and the process has others."""
TIDY_EVERY_S = 1.0
"""How long memory that its maker has unlinked may stay mapped here, at most."""


class Mappings:
    """Segments by name and by the right to write, least recently used first.

    Beyond ``limit_bytes``, or ``limit_count`` of them, the oldest are let go, one larger alone stays. Whoever still uses a view of one keeps it
    mapped. A mapping costs no memory of its own while its file is there; ``tidy`` lets go of those whose file is gone.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES, limit_count: int = LIMIT_COUNT) -> None:
        self._limit_bytes, self._limit_count = limit_bytes, limit_count
        self._known: OrderedDict[tuple[str, bool], tuple[mmap.mmap, int]] = OrderedDict()
        self._tidied_at = 0.0
        self.mapped_bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def view(self, segment: tuple[str, int], nbytes: int, *, writable: bool, filled: bool = False) -> memoryview | None:
        """Return bytes of a segment; None if it is not there, is not one of ours, or is too small.

        ``filled``: this process will write all of it, so its pages are mapped at once. That takes a quarter of the time
        of a fault for each; reading needs no such help, for one fault then maps sixteen pages.
        """
        name, offset = segment
        key = (name, writable)
        known = self._known.get(key)
        if known is None:
            known = map_file(name, writable=writable, filled=filled) if offset >= 0 and nbytes > 0 else None
            if known is None:
                return None
            self._known[key] = known
            self.mapped_bytes += known[1]
            self._shrink()
        else:
            self._known.move_to_end(key)
        memory, size = known
        return memoryview(memory)[offset : offset + nbytes] if 0 <= offset <= size - nbytes and nbytes > 0 else None

    def tidy(self, now: float) -> None:
        """Let go of segments whose makers have unlinked them; looks at most once per second."""
        if self._known and now - self._tidied_at >= TIDY_EVERY_S:
            self._tidied_at = now
            for key in [key for key in self._known if not os.path.exists(f"{FOLDER}/{key[0]}")]:
                self._drop(key)

    def clear(self) -> None:
        """Let go of all."""
        self._known.clear()
        self.mapped_bytes = 0

    def _shrink(self) -> None:
        while (self.mapped_bytes > self._limit_bytes or len(self._known) > self._limit_count) and len(self._known) > 1:
            self._drop(next(iter(self._known)))

    def _drop(self, key: tuple[str, bool]) -> None:
        self.mapped_bytes -= self._known.pop(key)[1]


def map_file(name: str, *, writable: bool, filled: bool = False) -> tuple[mmap.mmap, int] | None:
    """Map a whole segment by name; returns it with its size, None if it is not there or not one of ours."""
    if not NAME.match(name):
        return None
    try:
        handle = os.open(f"{FOLDER}/{name}", os.O_RDWR if writable else os.O_RDONLY)
    except OSError:
        return None
    try:
        size = os.fstat(handle).st_size
        flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if filled else 0)
        rights = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        return mmap.mmap(handle, size, flags=flags, prot=rights), size
    except (OSError, ValueError):  # no memory for it, or an empty file
        return None
    finally:
        os.close(handle)
