"""Who is connected: how many, and which connection speaks for a session (COORD-H06, H18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from towline.coordination.records import SessionRef

CONNECTION_LIMIT = 1_024
UNGREETED_LIMIT = 16
"""Connections that have not said hello yet."""


class Presence:
    """The connections of a hub, by number."""

    def __init__(self, connection_limit: int = CONNECTION_LIMIT, ungreeted_limit: int = UNGREETED_LIMIT) -> None:
        self._connection_limit, self._ungreeted_limit = connection_limit, ungreeted_limit
        self._connected: set[int] = set()
        self._ungreeted: set[int] = set()
        self._speakers: dict[SessionRef, int] = {}

    def came(self, connection: int) -> str | None:
        """Count a connection; returns why it cannot stay, if so."""
        if len(self._connected) >= self._connection_limit:
            return f"{self._connection_limit} connections are open"
        if len(self._ungreeted) >= self._ungreeted_limit:
            return f"{self._ungreeted_limit} connections have not said hello"
        self._connected.add(connection)
        self._ungreeted.add(connection)
        return None

    def greeted(self, connection: int) -> None:
        """A connection has said hello."""
        self._ungreeted.discard(connection)

    def speaks(self, connection: int, session: SessionRef) -> int | None:
        """Let a connection speak for a session; returns the older one that did until now."""
        older = self._speakers.get(session)
        self._speakers[session] = connection
        return None if older == connection else older

    def left(self, connection: int) -> None:
        """Forget a connection; twice without harm."""
        self._connected.discard(connection)
        self._ungreeted.discard(connection)
        self._speakers = {session: one for session, one in self._speakers.items() if one != connection}
