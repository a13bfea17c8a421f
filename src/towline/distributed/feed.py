"""The master's ear: what the coordinator tells of tasks, and the events that workers send (COORD-C72, EVT-05)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from towline.coordination.records import SessionRef

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from towline.coordination.contract import MasterCoordinator
    from towline.coordination.records import FeedEntry
    from towline.distributed.dispatch import Dispatch
    from towline.distributed.master_host import MasterHost
    from towline.distributed.watching import WorkerWatch

FEED_LIMIT, FEED_WAIT_S = 500, 2.0
GATHER_S = 0.005
"""While workers have more queued than they can do, what they report is taken in batches: nobody waits for the master."""
EVENTS_LIMIT = 100


class MasterFeed:
    """Reads on in the coordinator's feed.

    ``known``: the tasks whose outcome the coordinator has. A run that is opened anew has another set: whoever waited
    for an answer meanwhile tells by the set that it speaks of a coordinator that has forgotten it.
    """

    def __init__(
        self,
        coordinator: MasterCoordinator,
        dispatch: Dispatch,
        host: MasterHost,
        workers_changed: Callable[[], Awaitable[None]],
        watch: WorkerWatch,
    ) -> None:
        self._coordinator, self._dispatch, self._host, self._watch = coordinator, dispatch, host, watch
        self._workers_changed = workers_changed
        self._position = self._trimmed = 0
        self.known: set[str] = set()

    def begin_again(self) -> None:
        """The run was opened anew: its feed begins at one, and the coordinator has no outcome."""
        self.known = set()
        self._position = self._trimmed = 0

    async def follow(self) -> None:
        """Follow it until cancelled; what is heard goes to the dispatch."""
        while True:
            known = self.known
            entries = await self._read(self._position, FEED_WAIT_S)
            if self.known is not known:
                continue  # the run was opened anew meanwhile: its feed has begun again, with lower numbers
            if not entries:
                await self.drain_events()
                continue
            # Before anything is awaited: another loop may open the run anew, whose feed begins at one (COORD-R19).
            self._position = entries[-1].seq
            if any(entry.kind == "finished" and entry.has_events for entry in entries):
                await self.drain_events()  # what a task said precedes its end in the log (EVT-05)
            for entry in entries:
                if entry.kind == "finished" and entry.task_id is not None:
                    known.add(entry.task_id)
            self._tell_losses(entries)
            if self._dispatch.heard(entries):
                await self._workers_changed()
            await asyncio.sleep(0)  # what follows from it goes out before the feed is asked again
            if self._dispatch.is_backlogged:
                await asyncio.sleep(GATHER_S)

    def _tell_losses(self, entries: Sequence[FeedEntry]) -> None:
        """Say which workers are gone with what; before the tasks are seen to be queued again."""
        if not any(entry.kind in ("requeued", "worker_gone") for entry in entries):
            return
        for line in self._watch.losses(entries, self._dispatch.holders()):
            self._host.warn(line)
        for entry in entries:
            sent = self._dispatch.sent.get(entry.task_id or "")
            if entry.kind == "requeued" and sent is not None:
                self._host.note(sent, self._watch.lost_line(entry))

    async def _read(self, after: int, wait_s: float) -> Sequence[FeedEntry]:
        """Read on in the feed; values that came by reference are fetched first."""
        entries = await self._coordinator.feed(after=after, limit=FEED_LIMIT, wait_s=wait_s)
        if not any(entry.outcome is not None and entry.outcome.value_ref is not None for entry in entries):
            return entries
        return [await self._with_value(entry) for entry in entries]

    async def _with_value(self, entry: FeedEntry) -> FeedEntry:
        if entry.outcome is None or entry.outcome.value_ref is None or entry.task_id not in self._dispatch.sent:
            return entry
        return msgspec.structs.replace(entry, outcome=await self._host.with_value(entry.outcome))

    async def drain_events(self) -> None:
        """Write the events that workers have sent, then acknowledge them (COORD-C72)."""
        while True:
            batches = await self._coordinator.receive_events(limit=EVENTS_LIMIT, wait_s=0)
            last: dict[SessionRef, int] = {}
            for batch in batches:
                self._host.take_events(batch)
                last[SessionRef(batch.worker_id, batch.session)] = batch.events[-1].n
            for worker, n in last.items():
                await self._coordinator.acknowledge_events(worker, n)
            if len(batches) < EVENTS_LIMIT:
                return

    async def finished(self) -> Sequence[FeedEntry]:
        """Return every outcome that the coordinator has, those of before this master too."""
        found: list[FeedEntry] = []
        after = 0
        while True:
            entries = await self._read(after, 0)
            if not entries:
                return found
            after = entries[-1].seq
            found += [entry for entry in entries if entry.kind == "finished"]

    async def trim(self) -> None:
        """Drop what the journal has: a successor needs only what this master has not made durable (COORD-R24)."""
        known, position = self.known, self._position
        if position > self._trimmed:
            await self._host.make_durable()
            if self.known is not known:
                return  # the new feed has numbers of its own
            await self._coordinator.trim_feed(up_to=position)
            self._trimmed = position
