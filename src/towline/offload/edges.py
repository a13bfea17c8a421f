"""Which call must wait for which: read after write, write after read, write after write (OFF-302, OFF-303)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

K = TypeVar("K")

DATA, ORDER = True, False
"""A data edge (read after write, or ``after``) carries failure on; an order edge only makes its end wait."""


class AccessTracker(Generic[K]):
    """Remembers, per buffer, the last writer and the readers since.

    The edges depend on the order of declaration and on the buffers alone. Cost: O(1) per access, plus one
    per edge. ``is_final`` lets a long-lived tracker forget calls that ended.
    """

    def __init__(self, is_final: Callable[[K], bool] | None = None) -> None:
        self._writer: dict[int, K] = {}
        self._readers: dict[int, list[K]] = {}
        self._is_final = is_final

    def declare(self, key: K, reads: Iterable[int], writes: Iterable[int]) -> dict[K, bool]:
        """Add one call after all earlier ones; returns its predecessors and the kind of each edge."""
        before: dict[K, bool] = {}
        writer, readers = self._writer, self._readers
        written = tuple(writes)
        for buffer in reads:
            if (last := writer.get(buffer)) is not None:
                before[last] = DATA
            if buffer not in written:
                self._join_readers(buffer, key)
        for buffer in written:
            if (last := writer.get(buffer)) is not None:
                before.setdefault(last, ORDER)
            for reader in readers.pop(buffer, ()):
                before.setdefault(reader, ORDER)
            writer[buffer] = key
        before.pop(key, None)  # one buffer twice in one list
        return before

    def forget(self, buffer: int) -> None:
        """Drop what is known of a released buffer."""
        self._writer.pop(buffer, None)
        self._readers.pop(buffer, None)

    def _join_readers(self, buffer: int, key: K) -> None:
        readers = self._readers.setdefault(buffer, [])
        if self._is_final is not None and len(readers) >= 64 and len(readers) & (len(readers) - 1) == 0:
            readers[:] = [reader for reader in readers if not self._is_final(reader)]
        readers.append(key)
