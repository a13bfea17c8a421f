"""The master's side of a run: queues tasks, follows the feed, keeps mastership, ends the run (DIST-27 to 57)."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from towline.distributed.feed import MasterFeed
from towline.distributed.sending import Sending
from towline.distributed.watching import WorkerWatch, names
from towline.errors.coordination import (
    CoordinationError,
    LeaseLostError,
    MasterReplacedError,
    RunUnknownError,
    TooFewWorkersError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from towline.coordination.contract import MasterCoordinator
    from towline.coordination.records import RunOpening, WorkerStatus
    from towline.distributed.dispatch import Dispatch, Sent
    from towline.distributed.master_host import MasterHost
    from towline.distributed.options import DistributedOptions

ROUTE_INTERVAL_S = 0.25
TELL_AFTER_S = 3.0
"""A task that has had no worker that fits for so long is spoken of."""
TELL_END_AFTER_S = 1.0
"""A wait for workers at the end of a run that lasts longer says whom it waits for."""
LATE_HEARTBEATS = 1.5
"""A worker that holds nothing and has missed a heartbeat at the end of a run is not waited for: it owes its counts alone."""
DATA_LOSS_JUMPS = 1_000
"""Epoch jumps when the server has lost all: beyond whatever its lost data can have granted (COORD-C48)."""


class _Late(NamedTuple):
    """A worker that has not said goodbye. ``is_waited_for``: it lives, or holds a lease."""

    text: str
    is_waited_for: bool


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
        self._feed: MasterFeed
        self._sending: Sending
        self._watch = WorkerWatch(timeout_s=options.worker_timeout_s, heartbeat_s=options.heartbeat_interval_s)
        self._told_routes: set[str] = set()
        self._wake = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []

    def wake(self) -> None:
        """There is something to send."""
        self._wake.set()

    # ------------------------------------------------------------------ start and end

    async def open(self) -> None:
        """Become the run's master (DIST-05, DIST-50)."""
        self.dispatch.gone = self._watch.gone
        self._feed = MasterFeed(self.coordinator, self.dispatch, self._host, self._refresh_workers, self._watch)
        self._sending = Sending(
            self.coordinator,
            self.dispatch,
            self._host,
            self._feed,
            master_id=self.opening.master_id,
            wake=self.wake,
        )
        await self.coordinator.open_run(self.opening)
        await self._refresh_workers()

    def start(self) -> None:
        """Begin to dispatch, follow and maintain."""
        loop = asyncio.get_running_loop()
        for name, work in (
            ("dispatch", self._dispatch_on),
            ("feed", self._feed.follow),
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
            await self._feed.drain_events()
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
        """Wait for the last words of all workers, but for those that hold nothing and are not heard of any more (DIST-43)."""
        loop = asyncio.get_running_loop()
        began_at, is_told = loop.time(), False
        deadline = began_at + self._options.finalize_timeout_s
        while True:
            late = await self._late()
            # What is being sent is sent whole: a task that ended meanwhile would stay in the queue of the run.
            is_wanted = self._sending.is_busy or any(worker.is_waited_for for worker in late)
            if not is_wanted or loop.time() >= deadline:
                if late:
                    whom = ", ".join(worker.text for worker in late)
                    self._host.warn(f"no final status came from {whom}; their counts are missing")
                return
            if late and not is_told and loop.time() - began_at >= TELL_END_AFTER_S:
                is_told = True
                whom = ", ".join(worker.text for worker in late)
                self._host.warn(f"waits for the last report of {whom}, for {deadline - loop.time():.0f} s at most")
            await self._feed.drain_events()
            await self.coordinator.beat()
            await asyncio.sleep(min(ROUTE_INTERVAL_S, max(0.0, deadline - loop.time())))

    async def _late(self) -> list[_Late]:
        """Return who has not said goodbye yet, with what is known of each."""
        self.statuses = await self.coordinator.worker_statuses()
        final = {status.worker_id for status in self.statuses if status.is_final}
        missing = sorted({worker.worker_id for worker in await self.coordinator.workers()} - final)
        if not missing:
            return []
        holding = {lease.worker_id for lease in await self.coordinator.active_leases()}
        silent = {status.worker_id: status.silent_ms / 1000 for status in self.statuses}
        limit_s = LATE_HEARTBEATS * self._options.heartbeat_interval_s
        found = []
        for worker_id in missing:
            silent_s = silent.get(worker_id)
            heard = "" if silent_s is None else f", last heard of {silent_s:.0f} s ago"
            is_waited_for = worker_id in holding or silent_s is None or silent_s < limit_s
            found.append(_Late(f"{self._watch.called(worker_id)}{heard}", is_waited_for))
        return found

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
            await self._sending.send_all()
            await self._wake.wait()
            self._wake.clear()

    async def _refresh_workers(self) -> None:
        workers = await self.coordinator.workers()
        self.statuses = await self.coordinator.worker_statuses()
        final = {status.worker_id for status in self.statuses if status.is_final}
        self.dispatch.workers = {worker.worker_id: worker for worker in workers if worker.worker_id not in final}
        self._watch.see(self.dispatch.workers.values())
        self.wake()

    async def _maintain(self) -> None:
        """Beat, requeue, look for routes and overdue workers (DIST-28 to 32)."""
        options = self._options
        per_beat = max(1, round(options.heartbeat_interval_s / ROUTE_INTERVAL_S))
        for tick in itertools.count():
            if tick % per_beat == 0:
                jumps = await self.coordinator.beat()
                if jumps > self.opening.epoch_jumps:  # never back: the reply may be of a run that was lost since
                    self.opening = msgspec.structs.replace(self.opening, epoch_jumps=jumps)
                await self.coordinator.requeue_expired()
                await self._refresh_workers()
                for line in self._watch.silences(self.statuses, self.dispatch.holders()):
                    self._host.warn(line)
                await self._watch_queue()
                await self._feed.trim()
                for sent in self.dispatch.overdue():
                    await self._sending.give_up_on(sent)
            if self.dispatch.to_enqueue:
                await self._refresh_workers()
                self._tell_routes()
                self.dispatch.fail_unroutable(0.0 if self._is_complete() else options.registration_timeout_s)
            await asyncio.sleep(min(ROUTE_INTERVAL_S, options.heartbeat_interval_s))

    def _tell_routes(self) -> None:
        """Say, once per requirement, which tasks wait for a worker that has not come yet, and for how long (DIST-28)."""
        waiting: dict[str, list[Sent]] = {}
        for sent in self.dispatch.without_route(TELL_AFTER_S):
            waiting.setdefault(self.dispatch.required(sent.assignment), []).append(sent)
        for required in waiting.keys() - self._told_routes:
            tasks = [sent.run.row.id for sent in waiting[required]]
            seen = "; ".join(self.dispatch.unroutable(waiting[required][0].assignment).workers) or "none"
            self._host.warn(
                f"{names(tasks)} {'waits' if len(tasks) == 1 else 'wait'} for a worker with {required}; none has come yet. "
                f"Workers seen: {seen}. Without one for {self._options.registration_timeout_s:g} s a task fails"
            )
        self._told_routes = set(waiting)

    def _is_complete(self) -> bool:
        """Whether every instance that the run was started with is here: nobody else is to be waited for (DIST-28)."""
        expected = self._options.workers or self._options.total - 1
        names = (f"instance-{number}" for number in range(1, expected + 1))
        return expected > 0 and all(name in self.dispatch.workers for name in names)

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

    # ------------------------------------------------------------------ data loss

    async def _reopen(self) -> None:
        """The server has lost the run: open it anew from what the plan knows, once for all loops (COORD-R19)."""
        if (await self.coordinator.run_state()).state != "unknown":
            return
        self._host.warn("the coordinator has lost the run's data; it is opened anew from the plan")
        jumps = self.opening.epoch_jumps + DATA_LOSS_JUMPS
        self.opening = msgspec.structs.replace(self.opening, epoch_jumps=jumps)
        dispatch = self.dispatch
        self._feed.begin_again()
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
        await self._sending.repeat_signal()
        self.wake()
