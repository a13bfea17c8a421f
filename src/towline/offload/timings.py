"""How long kernels take, remembered per kernel and payload size (OFF-407)."""

from __future__ import annotations

FIRST_GUESS_S = 0.5
_WEIGHT = 0.25
MAX_ENTRIES = 10_000
"""Beyond it the oldest entry is dropped."""


class Timings:
    """An exponentially weighted mean of kernel seconds per (kernel, log2 of payload)."""

    def __init__(self) -> None:
        self._mean: dict[tuple[str, int], float] = {}

    def expected_s(self, kernel: str, payload_bytes: int) -> float:
        """Return the seconds a run is expected to take; 0.5 while nothing was measured."""
        return self._mean.get((kernel, payload_bytes.bit_length()), FIRST_GUESS_S)

    def observe(self, kernel: str, payload_bytes: int, seconds: float) -> None:
        """Take a measured run in."""
        key = (kernel, payload_bytes.bit_length())
        known = self._mean.get(key)
        if known is None:
            if len(self._mean) >= MAX_ENTRIES:
                del self._mean[next(iter(self._mean))]
            self._mean[key] = seconds
        else:
            self._mean[key] = known + _WEIGHT * (seconds - known)
