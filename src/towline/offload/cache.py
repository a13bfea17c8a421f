"""Copies of buffers on a worker, by (run, buffer, version): immutable, pinned while a job uses them (OFF-505, OFF-972). Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from towline.offload.pieces import Piece

Key = tuple[bytes, int, int]
MAX_EVICTED = 4_096


class CopyCache:
    """Least recently used copies go first; pinned ones never. Both count against the limit."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.pinned_bytes = 0
        self.high_water = 0
        self._copies: OrderedDict[Key, Piece] = OrderedDict()
        self._pins: dict[Key, int] = {}
        self.evicted: dict[bytes, deque[tuple[int, int]]] = {}

    def get(self, key: Key) -> Piece | None:
        """Return exactly this copy, or None; never another version."""
        piece = self._copies.get(key)
        if piece is not None:
            self._copies.move_to_end(key)
        return piece

    def put(self, key: Key, piece: Piece) -> None:
        """Keep a copy; one that is there already stays, for both hold the same bytes."""
        if key in self._copies:
            return
        self._copies[key] = piece
        self.used_bytes += piece.nbytes
        self._shrink()

    def pin(self, key: Key) -> None:
        """Keep the copy while a job uses it."""
        if self._pins.get(key, 0) == 0:
            self.pinned_bytes += self._copies[key].nbytes
        self._pins[key] = self._pins.get(key, 0) + 1

    def unpin(self, key: Key) -> None:
        """One job less uses the copy."""
        left = self._pins.get(key, 0) - 1
        if left > 0:
            self._pins[key] = left
            return
        self._pins.pop(key, None)
        if key in self._copies:
            self.pinned_bytes -= self._copies[key].nbytes
        self._shrink()

    def drop(self, key: Key) -> None:
        """Forget a copy that nobody needs any more, unless it is pinned."""
        if key in self._copies and key not in self._pins:
            self.used_bytes -= self._copies.pop(key).nbytes

    def drop_run(self, run: bytes) -> None:
        """Forget everything of one run."""
        for key in [key for key in self._copies if key[0] == run]:
            self.drop(key)
        self.evicted.pop(run, None)

    def room_for(self, nbytes: int) -> bool:
        """Say whether that much could be held beside what is pinned."""
        return self.pinned_bytes + nbytes <= self.limit_bytes

    def _shrink(self) -> None:
        self.high_water = max(self.high_water, self.used_bytes)
        if self.used_bytes <= self.limit_bytes:
            return
        for key in [key for key in self._copies if key not in self._pins]:
            if self.used_bytes <= self.limit_bytes:
                return
            self.used_bytes -= self._copies.pop(key).nbytes
            self.evicted.setdefault(key[0], deque(maxlen=MAX_EVICTED)).append((key[1], key[2]))
