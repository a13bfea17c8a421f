"""Servers that do not answer: whoever leads a run hears of it once, and once that it is over (STATE-07, COORD-R20)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Listener = Callable[[str, float, str], None]

TELL_AFTER_S: Final = 1.0
"""A server that is back sooner was hardly away: nobody is told."""


class Outages:
    """What the connections of this process have met, whatever thread and loop they are in.

    ``are_known``: some server did not answer at its last call; looked at on every call, so it is a plain attribute.
    """

    def __init__(self) -> None:
        self.are_known = False
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self._told: set[str] = set()
        self._listeners: list[Listener] = []

    def failed(self, server: str, now: float, cause: str, waited_s: float = 0.0) -> None:
        """Note a call without an answer; listeners hear of the first one that comes a second after the outage began.

        ``server`` and ``cause`` have no secret; ``now``: of any loop of this process, which share one clock. ``waited_s``: how
        long this call has waited in vain.
        """
        with self._lock:
            self.are_known = True
            silent_s = now - self._since.setdefault(server, now - waited_s)
            if silent_s < TELL_AFTER_S or server in self._told or not self._listeners:
                return
            self._told.add(server)
            listeners = list(self._listeners)
        for listener in listeners:
            listener(server, silent_s, cause)

    def answered(self, server: str, now: float) -> None:
        """Note an answer; listeners that were told of the outage hear that it is over, with an empty cause."""
        with self._lock:
            since = self._since.pop(server, None)
            self.are_known = bool(self._since)
            was_told = server in self._told
            self._told.discard(server)
            listeners = list(self._listeners)
        if was_told and since is not None:
            for listener in listeners:
                listener(server, now - since, "")

    def hear(self, listener: Listener) -> Callable[[], None]:
        """Call a listener, in any thread, with server, seconds and cause; returns what ends that."""
        with self._lock:
            self._listeners.append(listener)

        def end() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return end


outages: Final = Outages()
"""Of this process: one server is one, however many connections lead to it."""
