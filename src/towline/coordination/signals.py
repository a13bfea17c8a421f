"""The run's signal: how much of it is to stop (COORD-C61)."""

from __future__ import annotations

from enum import Enum


class Signal(Enum):
    """An ordered word that only grows while a run lives."""

    RUNNING = "running"
    PIPELINE_FAILED = "pipeline_failed"
    """Cancel what is not always-run; always-run work goes on."""
    STOPPED = "stopped"
    """Cancel everything."""

    @property
    def rank(self) -> int:
        """Place in the order, from 0."""
        return _RANKS[self]

    def __lt__(self, other: Signal) -> bool:
        return self.rank < other.rank

    def __le__(self, other: Signal) -> bool:
        return self.rank <= other.rank

    def __gt__(self, other: Signal) -> bool:
        return self.rank > other.rank

    def __ge__(self, other: Signal) -> bool:
        return self.rank >= other.rank

    @classmethod
    def read(cls, text: str) -> Signal:
        """Read a stored signal; a word of a newer version stops everything, to be safe (COORD-R14)."""
        try:
            return cls(text)
        except ValueError:
            return cls.STOPPED


_RANKS = {signal: rank for rank, signal in enumerate(Signal)}
