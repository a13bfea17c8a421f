"""The ordered log of a run: numbers events, hands them on in batches, keeps them for later (EVT)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from towline.events.records import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Facts: TypeAlias = tuple[str, str, dict[str, Any], str | None, int | None, int | None]
"""What an event says before it has its number: kind, moment, data, task, epoch, attempt."""

BYTES_LIMIT = 256 * 1024 * 1024
COUNT_LIMIT = 1_000_000
"""Caps of one log (EVT-07)."""

DROPPABLE = frozenset({"log", "output", "progress", "command", "offload"})
"""Kinds that are dropped, and counted, above the caps; all others are kept."""


class EventLog:
    """Gives each event its number and passes batches on, in order.

    ``keep`` receives the events for ``events.jsonl``; ``None`` keeps nothing. Listeners are called
    in the loop's thread with each batch, after it was handed to ``keep``; they must not wait. One that raises
    is dropped, and ``broken`` hears why: the run goes on (REP-13). Without ``broken`` its error passes to the
    emitter. The caller emits a transition only when its journal record is durable (EVT-04).
    """

    def __init__(
        self,
        *,
        source: str,
        session: str,
        keep: Callable[[Sequence[Event]], int] | None,
        broken: Callable[[Exception], None] | None = None,
    ) -> None:
        self._source, self._session, self._keep, self._broken = source, session, keep, broken
        self._n = 0
        self._bytes = 0
        self._dropped: dict[str, int] = {}
        self._listeners: list[Callable[[Sequence[Event]], None]] = []

    @property
    def last_n(self) -> int:
        """Number of the last event, 0 before the first."""
        return self._n

    def subscribe(self, listener: Callable[[Sequence[Event]], None]) -> None:
        """Hand every later batch to this listener too."""
        self._listeners.append(listener)

    def event(
        self,
        kind: str,
        at: str,
        data: dict[str, Any],
        task: str | None = None,
        epoch: int | None = None,
        attempt: int | None = None,
    ) -> Event:
        """Make the next event; it must be emitted before another one is made."""
        self._n += 1
        return Event(
            seq=self._n,
            source=self._source,
            session=self._session,
            n=self._n,
            at=at,
            kind=kind,
            task=task,
            epoch=epoch,
            attempt=attempt,
            data=data,
        )

    def emit_facts(self, facts: Sequence[Facts]) -> None:
        """Make events of what :meth:`event` takes, in their order, and emit them: one call for all of a turn."""
        n, source, session = self._n, self._source, self._session
        batch = []
        for kind, at, data, task, epoch, attempt in facts:
            n += 1
            batch.append(
                Event(
                    seq=n,
                    source=source,
                    session=session,
                    n=n,
                    at=at,
                    kind=kind,
                    task=task,
                    epoch=epoch,
                    attempt=attempt,
                    data=data,
                )
            )
        self._n = n
        self.emit(batch)

    def emit(self, batch: Sequence[Event]) -> None:
        """Keep and pass on events made just before, in their order."""
        if self._n > COUNT_LIMIT or self._bytes > BYTES_LIMIT:
            batch = self._within_caps(batch)
        if self._keep is not None and batch:
            self._bytes += self._keep(batch)
        for listener in tuple(self._listeners) if self._listeners else ():
            try:
                listener(batch)
            except Exception as error:
                if self._broken is None:
                    raise
                self._listeners.remove(listener)
                self._broken(error)

    def _within_caps(self, batch: Sequence[Event]) -> Sequence[Event]:
        kept = []
        for event in batch:
            if event.kind in DROPPABLE:
                self._dropped[event.kind] = self._dropped.get(event.kind, 0) + 1
            else:
                kept.append(event)
        return kept

    def close(self, at: str) -> None:
        """Say what was dropped, if anything was."""
        if self._dropped:
            dropped, self._dropped = self._dropped, {}
            data = {"kinds": sorted(dropped), "dropped": sum(dropped.values())}
            self.emit([self.event("truncated", at, data)])
