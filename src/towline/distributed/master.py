"""The master's side of a run: queues tasks, follows the feed, keeps mastership, ends the run (DIST-27 to 57)."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from towline.coordination.records import OutcomeRecord, SessionRef
from towline.coordination.signals import Signal
from towline.errors.coordination import (
    CoordinationError,
    LeaseLostError,
    MasterReplacedError,
    RunUnknownError,
    TooFewWorkersError,
    TooManyRequirementsError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from towline.coordination.contract import MasterCoordinator
    from towline.coordination.records import EventBatch, FeedEntry, RunOpening, WorkerStatus
    from towline.distributed.dispatch import Dispatch, Sent
    from towline.distributed.options import DistributedOptions

_log = logging.getLogger("towline.master")

ROUTE_INTERVAL_S = 0.25
FEED_LIMIT, FEED_WAIT_S = 500, 2.0
GATHER_S = 0.005
"""While workers have more queued than they can do, what they report is taken in batches: nobody waits for the master."""
EVENTS_LIMIT = 100
DATA_LOSS_JUMPS = 1_000
"""Epoch jumps when the server has lost all: beyond whatever its lost data can have granted (COORD-C48)."""


class MasterHost(Protocol):
    """What the master needs of the run around it."""

    async def outcome_record_of(self, task_id: str) -> OutcomeRecord | None:
        """Return the outcome of a task that ended before, or without, the coordinator; ``None`` if it has none."""
        ...

    async def cached(self, sent: Sent) -> OutcomeRecord | None:
        """Look into the master's cache for a task; ``None``: a worker has to run it (DIST-37)."""
        ...

    async def make_durable(self) -> None:
        """Return once all that was heard from the feed so far is in the journal."""
        ...

    async def with_value(self, record: OutcomeRecord) -> OutcomeRecord:
        """Return the outcome with the value that it refers to (COORD-C57)."""
        ...

    def take_events(self, batch: EventBatch) -> None:
        """Write a worker's events into the run's log."""
        ...

    def warn(self, text: str) -> None:
        """Tell the operator."""
        ...

    def is_lost(self, error: Exception) -> None:
        """Mastership or coordinator are lost: the run ends here, with this error."""
        ...


class Master:
    """Drives the coordinator for one run. Start it after the plan is durable; ``finish`` it last, always (DIST-43)."""

    def __init__(
        self,
        coordinator: MasterCoordinator,
        opening: RunOpening,
        options: DistributedOptions,
        host: MasterHost,
    ) -> None:
        self.coordinator = coordinator
        self.opening = opening
        self.statuses: Sequence[WorkerStatus] = ()
        self.dispatch: Dispatch  # set by whoever composes both: each knows the other
        self._options, self._host = options, host
        self._position = self._trimmed = 0
        self._known: set[str] = set()
        """Tasks whose outcome the coordinator has."""
        self._wake = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._signal = Signal.RUNNING

    def wake(self) -> None:
        """There is something to send."""
        self._wake.set()

    # ------------------------------------------------------------------ start and end

    async def open(self) -> None:
        """Become the run's master (DIST-05, DIST-50)."""
        await self.coordinator.open_run(self.opening)
        await self._refresh_workers()

    def start(self) -> None:
        """Begin to dispatch, follow and maintain."""
        loop = asyncio.get_running_loop()
        for name, work in (
            ("dispatch", self._dispatch_on),
            ("feed", self._follow),
            ("maintenance", self._maintain),
        ):
            self._loops.append(loop.create_task(self._guarded(work), name=f"towline-master-{name}"))

    async def wait_for_workers(self) -> None:
        """Wait for the workers that the run wants before it starts (DIST-06).

        Raises:
            TooFewWorkersError: They did not come, and the run requires them.
        """
        wanted, limit_s = self._options.minimum_workers, self._options.registration_timeout_s
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        while len(self.dispatch.workers) < wanted:
            if loop.time() >= deadline:
                error = TooFewWorkersError(wanted, len(self.dispatch.workers), limit_s)
                if self._options.require_workers:
                    raise error
                self._host.warn(str(error))
                return
            await asyncio.sleep(ROUTE_INTERVAL_S)

    async def finish(self) -> None:
        """Say that the run has ended, wait for the workers' last words, stop (DIST-43)."""
        try:
            await self.complete()
            await self._collect_goodbyes()
            await self.drain_events()
        except (MasterReplacedError, RunUnknownError) as error:
            self._host.warn(str(error))
        finally:
            await self.stop()

    async def complete(self) -> None:
        """Say that there will be no more work; twice without harm."""
        try:
            await self.coordinator.complete()
        except RunUnknownError:
            # The server lost the run at its very end: workers must learn from the new one that nothing is left.
            await self.coordinator.open_run(self.opening)
            await self.coordinator.complete()

    async def stop(self) -> None:
        """End the loops; twice without harm."""
        loops, self._loops = self._loops, []
        for task in loops:
            task.cancel()
        if loops:
            await asyncio.wait(loops)

    async def _collect_goodbyes(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.finalize_timeout_s
        while True:
            self.statuses = await self.coordinator.worker_statuses()
            final = {status.worker_id for status in self.statuses if status.is_final}
            missing = sorted({worker.worker_id for worker in await self.coordinator.workers()} - final)
            if not missing:
                return
            if loop.time() >= deadline:
                self._host.warn(f"no final status came from {', '.join(missing)}; their counts are missing")
                return
            await self.drain_events()
            await self.coordinator.beat()
            await asyncio.sleep(min(ROUTE_INTERVAL_S, max(0.0, deadline - loop.time())))

    # ------------------------------------------------------------------ loops

    async def _guarded(self, work: Callable[[], object]) -> None:
        """Run a loop; what ends it ends the run (DIST-31, DIST-56)."""
        while True:
            try:
                await work()  # type: ignore[misc]
            except RunUnknownError:
                try:
                    await self._reopen()
                except CoordinationError as error:
                    self._host.is_lost(error)
                    return
            except Exception as error:  # noqa: BLE001 - handed to whoever awaits the run
                self._host.is_lost(error)
                return

    async def _dispatch_on(self) -> None:
        while True:
            await self._send_all()
            await self._wake.wait()
            self._wake.clear()

    async def _send_all(self) -> None:
        dispatch = self.dispatch
        if dispatch.to_signal > self._signal:
            self._signal = await self.coordinator.send_signal(dispatch.to_signal)
        if dispatch.to_withdraw:
            await self._withdraw()
        ready = dispatch.take_routed()
        if ready:
            await self._enqueue(ready)
        if dispatch.to_look_up:
            await self._look_up()
            self.wake()

    async def _look_up(self) -> None:
        """Publish what the cache has, or queue it; one task at a time, for what is due meanwhile comes first (DIST-37)."""
        dispatch = self.dispatch
        sent = dispatch.to_look_up.popleft()
        try:
            record = await self._host.cached(sent) if dispatch.is_wanted(sent) else None
        except Exception as error:  # noqa: BLE001 - a fault of the look-up is the task's failure, as on a worker
            dispatch.fail(sent, error, "error")
            return
        if not dispatch.is_wanted(sent):
            dispatch.withdrawn(sent)
        elif record is None:
            dispatch.to_enqueue.append(sent)
        else:
            await self.coordinator.publish_outcome(record, lease=None)

    async def _enqueue(self, ready: Sequence[Sent]) -> None:
        await self._publish_dependencies(ready)
        try:
            queued = await self.coordinator.enqueue([sent.assignment for sent in ready])
        except TooManyRequirementsError as error:
            for sent in ready:
                self.dispatch.fail(sent, error, "error")
            return
        adopted = [sent for sent, fresh in zip(ready, queued, strict=True) if not fresh]
        if adopted:
            await self._adopt(adopted)

    async def _publish_dependencies(self, ready: Sequence[Sent]) -> None:
        """Give the coordinator the outcomes that it does not have and workers will ask for (DIST-27)."""
        for sent in ready:
            for dependency in sent.assignment.dependencies:
                if dependency.task_id in self._known:
                    continue
                record = await self._host.outcome_record_of(dependency.task_id)
                if record is not None:
                    await self.coordinator.publish_outcome(record, lease=None)
                    self._known.add(dependency.task_id)

    async def _adopt(self, adopted: Sequence[Sent]) -> None:
        """Take up what the coordinator already has: finished outcomes, living leases, queued tasks (DIST-52)."""
        leases = {lease.task_id: lease for lease in await self.coordinator.active_leases()}
        entries = {entry.task_id: entry for entry in await self._finished_entries()}
        for sent in adopted:
            task_id = sent.run.row.id
            entry, lease = entries.get(task_id), leases.get(task_id)
            if entry is not None and entry.outcome is not None:
                if self.dispatch.sent.get(task_id) is sent:
                    self.dispatch.claimed(sent, entry.outcome.worker_id, entry.outcome.epoch)
                    self.dispatch.finished(sent, entry.outcome)
                self._known.add(task_id)
            elif lease is not None and self.dispatch.sent.get(task_id) is sent and sent.holder is None:
                self.dispatch.claimed(sent, lease.worker_id, lease.epoch)

    async def _finished_entries(self) -> Sequence[FeedEntry]:
        """Read the feed up to where this master follows it, for outcomes of before."""
        found: list[FeedEntry] = []
        after = 0
        while True:
            entries = await self._feed(after, 0)
            if not entries:
                return found
            after = entries[-1].seq
            found += [entry for entry in entries if entry.kind == "finished"]

    async def _withdraw(self) -> None:
        dispatch = self.dispatch
        wanted, dispatch.to_withdraw = dispatch.to_withdraw, []
        unsent = {sent.run.row.id for sent in dispatch.to_enqueue}
        dispatch.to_enqueue = [sent for sent in dispatch.to_enqueue if sent.stop is None]
        asked = [sent.run.row.id for sent in wanted if sent.run.row.id not in unsent]
        removed = await self.coordinator.withdraw(asked) if asked else frozenset()
        for sent in wanted:
            task_id = sent.run.row.id
            if task_id in removed or task_id in unsent:
                dispatch.withdrawn(sent)
            elif sent.holder is not None and sent.stop is not None and self._signal is Signal.RUNNING:
                await self._cancel_one(sent)

    async def _cancel_one(self, sent: Sent) -> None:
        """End one leased task from outside; its holder learns it by its next heartbeat (DIST-42)."""
        record = OutcomeRecord(
            task_id=sent.run.row.id,
            epoch=sent.holder[1] if sent.holder else 0,
            worker_id=self.opening.master_id,
            state="cancelled",
            reason=sent.stop,
        )
        await self.coordinator.publish_outcome(record, lease=None)

    async def _follow(self) -> None:
        while True:
            after = self._position
            entries = await self._feed(after, FEED_WAIT_S)
            if self._position != after:
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
                    self._known.add(entry.task_id)
            if self.dispatch.heard(entries):
                await self._refresh_workers()
            if self.dispatch.is_backlogged:
                await asyncio.sleep(GATHER_S)

    async def _feed(self, after: int, wait_s: float) -> Sequence[FeedEntry]:
        """Read on in the feed; values that came by reference are fetched first."""
        entries = await self.coordinator.feed(after=after, limit=FEED_LIMIT, wait_s=wait_s)
        if not any(entry.outcome is not None and entry.outcome.value_ref is not None for entry in entries):
            return entries
        return [await self._with_value(entry) for entry in entries]

    async def _with_value(self, entry: FeedEntry) -> FeedEntry:
        if entry.outcome is None or entry.outcome.value_ref is None or entry.task_id not in self.dispatch.sent:
            return entry
        return msgspec.structs.replace(entry, outcome=await self._host.with_value(entry.outcome))

    async def drain_events(self) -> None:
        """Write the events that workers have sent, then acknowledge them (COORD-C72)."""
        while True:
            batches = await self.coordinator.receive_events(limit=EVENTS_LIMIT, wait_s=0)
            last: dict[SessionRef, int] = {}
            for batch in batches:
                self._host.take_events(batch)
                last[SessionRef(batch.worker_id, batch.session)] = batch.events[-1].n
            for worker, n in last.items():
                await self.coordinator.acknowledge_events(worker, n)
            if len(batches) < EVENTS_LIMIT:
                return

    async def _refresh_workers(self) -> None:
        workers = await self.coordinator.workers()
        final = {status.worker_id for status in await self.coordinator.worker_statuses() if status.is_final}
        self.dispatch.workers = {worker.worker_id: worker for worker in workers if worker.worker_id not in final}
        self.wake()

    async def _maintain(self) -> None:
        """Beat, requeue, look for routes and overdue workers (DIST-28 to 32)."""
        options = self._options
        per_beat = max(1, round(options.heartbeat_interval_s / ROUTE_INTERVAL_S))
        for tick in itertools.count():
            if tick % per_beat == 0:
                jumps = await self.coordinator.beat()
                if jumps != self.opening.epoch_jumps:
                    self.opening = msgspec.structs.replace(self.opening, epoch_jumps=jumps)
                await self.coordinator.requeue_expired()
                await self._watch_queue()
                await self._trim_feed()
                for sent in self.dispatch.overdue():
                    await self._give_up_on(sent)
            if self.dispatch.to_enqueue:
                await self._refresh_workers()
                self.dispatch.fail_unroutable(options.registration_timeout_s)
            await asyncio.sleep(min(ROUTE_INTERVAL_S, options.heartbeat_interval_s))

    async def _watch_queue(self) -> None:
        """Say when the last worker that fits queued tasks is gone; fail them when none has come in time (DIST-29)."""
        limit_s = self._options.registration_timeout_s
        found, overdue = self.dispatch.unrouted_in_queue(limit_s)
        if found:
            first = self.dispatch.unroutable(found[0].assignment)
            more = f" {len(found) - 1} more tasks wait in the queue likewise." if len(found) > 1 else ""
            self._host.warn(f"{first}{more} Such a worker is waited for {limit_s:g} s.")
        if overdue:
            removed = await self.coordinator.withdraw([sent.run.row.id for sent in overdue])
            for sent in overdue:
                if sent.run.row.id in removed:
                    self.dispatch.fail_without_route(sent)

    async def _trim_feed(self) -> None:
        """Drop what the journal has: a successor needs only what this master has not made durable (COORD-R24)."""
        position = self._position
        if position > self._trimmed:
            await self._host.make_durable()
            await self.coordinator.trim_feed(up_to=position)
            self._trimmed = position

    async def _give_up_on(self, sent: Sent) -> None:
        """Record the timeout of a worker that should have been done long ago (DIST-32, COORD-C55)."""
        worker_id, epoch = sent.holder or ("", 0)
        text = f"{worker_id} has not published an outcome within all attempts and the result margin"
        record = OutcomeRecord(
            task_id=sent.run.row.id,
            epoch=epoch,
            worker_id=self.opening.master_id,
            state="timed_out",
            reason="result_timeout",
            reason_text=text,
        )
        await self.coordinator.publish_outcome(record, lease=None)

    # ------------------------------------------------------------------ data loss

    async def _reopen(self) -> None:
        """The server has lost the run: open it anew from what the plan knows, once for all loops (COORD-R19)."""
        if (await self.coordinator.run_state()).state != "unknown":
            return
        self._host.warn("the coordinator has lost the run's data; it is opened anew from the plan")
        jumps = self.opening.epoch_jumps + DATA_LOSS_JUMPS
        self.opening = msgspec.structs.replace(self.opening, epoch_jumps=jumps)
        dispatch = self.dispatch
        self._known.clear()
        self._position = self._trimmed = 0
        await self.coordinator.open_run(self.opening)
        for sent in list(dispatch.sent.values()):
            if sent.holder is not None and sent.assignment.at_most_once:
                error = LeaseLostError(sent.run.row.id, sent.holder[1], sent.holder[1], sent.holder[0])
                dispatch.fail(sent, error, "lease_lost")
                continue
            floor = max(sent.assignment.epoch_floor, sent.holder[1] if sent.holder else 0)
            sent.assignment = msgspec.structs.replace(sent.assignment, epoch_floor=floor)
            sent.holder = sent.backstop_at = None
            if sent not in dispatch.to_enqueue:
                dispatch.to_enqueue.append(sent)
        if self._signal is not Signal.RUNNING:
            await self.coordinator.send_signal(self._signal)
        self.wake()
