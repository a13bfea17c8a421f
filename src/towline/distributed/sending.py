"""The master's voice: what it tells the coordinator of tasks (DIST-27, DIST-37, DIST-42, DIST-52)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.coordination.records import OutcomeRecord
from towline.coordination.signals import Signal
from towline.errors.coordination import TooManyRequirementsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from towline.coordination.contract import MasterCoordinator
    from towline.distributed.dispatch import Dispatch, Sent
    from towline.distributed.feed import MasterFeed
    from towline.distributed.master_host import MasterHost


class Sending:
    """Carries out what the dispatch has noted: signals, tasks to withdraw, tasks to queue, look-ups in the cache.

    ``wake`` asks for another round of :meth:`send_all`.
    """

    def __init__(
        self,
        coordinator: MasterCoordinator,
        dispatch: Dispatch,
        host: MasterHost,
        feed: MasterFeed,
        *,
        master_id: str,
        wake: Callable[[], None],
    ) -> None:
        self._coordinator, self._dispatch, self._host, self._feed = coordinator, dispatch, host, feed
        self._master_id, self._wake = master_id, wake
        self._signal = Signal.RUNNING
        self.is_busy = False
        """Something is on its way to the coordinator."""

    async def repeat_signal(self) -> None:
        """Tell a coordinator that has lost the run what its workers were told."""
        if self._signal is not Signal.RUNNING:
            await self._coordinator.send_signal(self._signal)

    async def send_all(self) -> None:
        """Send what is due now, the most urgent first."""
        dispatch = self._dispatch
        self.is_busy = True
        try:
            if dispatch.to_signal > self._signal:
                self._signal = await self._coordinator.send_signal(dispatch.to_signal)
            if dispatch.to_withdraw:
                await self._withdraw()
            ready = dispatch.take_routed()
            if ready:
                await self._enqueue(ready)
            if dispatch.to_look_up:
                await self._look_up()
                self._wake()
        finally:
            self.is_busy = False

    async def _look_up(self) -> None:
        """Publish what the cache has, or queue it; one task at a time, for what is due meanwhile comes first (DIST-37)."""
        dispatch = self._dispatch
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
            await self._coordinator.publish_outcome(record, lease=None)

    async def _enqueue(self, ready: Sequence[Sent]) -> None:
        await self._publish_dependencies(ready)
        try:
            queued = await self._coordinator.enqueue([sent.assignment for sent in ready])
        except TooManyRequirementsError as error:
            for sent in ready:
                self._dispatch.fail(sent, error, "error")
            return
        adopted = [sent for sent, fresh in zip(ready, queued, strict=True) if not fresh]
        if adopted:
            await self._adopt(adopted)
        for sent in ready:
            if self._dispatch.sent.get(sent.run.row.id) is not sent:
                await self._tell_end(sent.run.row.id)

    async def _tell_end(self, task_id: str) -> None:
        """Tell of a task that ended while its enqueue was under way: a coordinator that lost the end would run it again."""
        record = await self._host.outcome_record_of(task_id)
        if record is None:
            await self._coordinator.withdraw([task_id])
        else:
            await self._coordinator.publish_outcome(record, lease=None)

    async def _publish_dependencies(self, ready: Sequence[Sent]) -> None:
        """Give the coordinator the outcomes that it does not have and workers will ask for (DIST-27)."""
        known = self._feed.known
        for sent in ready:
            for dependency in sent.assignment.dependencies:
                if dependency.task_id in known:
                    continue
                record = await self._host.outcome_record_of(dependency.task_id)
                if record is not None:
                    await self._coordinator.publish_outcome(record, lease=None)
                    known.add(dependency.task_id)

    async def _adopt(self, adopted: Sequence[Sent]) -> None:
        """Take up what the coordinator already has: finished outcomes, living leases, queued tasks (DIST-52)."""
        known = self._feed.known
        leases = {lease.task_id: lease for lease in await self._coordinator.active_leases()}
        entries = {entry.task_id: entry for entry in await self._feed.finished()}
        for sent in adopted:
            task_id = sent.run.row.id
            entry, lease = entries.get(task_id), leases.get(task_id)
            if entry is not None and entry.outcome is not None:
                if self._dispatch.sent.get(task_id) is sent:
                    self._dispatch.claimed(sent, entry.outcome.worker_id, entry.outcome.epoch)
                    self._dispatch.finished(sent, entry.outcome)
                known.add(task_id)
            elif lease is not None and self._dispatch.sent.get(task_id) is sent and sent.holder is None:
                self._dispatch.claimed(sent, lease.worker_id, lease.epoch)

    async def _withdraw(self) -> None:
        dispatch = self._dispatch
        wanted, dispatch.to_withdraw = dispatch.to_withdraw, []
        unsent = {sent.run.row.id for sent in dispatch.to_enqueue}
        dispatch.to_enqueue = [sent for sent in dispatch.to_enqueue if sent.stop is None]
        asked = [sent.run.row.id for sent in wanted if sent.run.row.id not in unsent]
        removed = await self._coordinator.withdraw(asked) if asked else frozenset()
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
            worker_id=self._master_id,
            state="cancelled",
            reason=sent.stop,
        )
        await self._coordinator.publish_outcome(record, lease=None)

    async def give_up_on(self, sent: Sent) -> None:
        """Record the timeout of a worker that should have been done long ago (DIST-32, COORD-C55)."""
        worker_id, epoch = sent.holder or ("", 0)
        text = f"{worker_id} has not published an outcome within all attempts and the result margin"
        record = OutcomeRecord(
            task_id=sent.run.row.id,
            epoch=epoch,
            worker_id=self._master_id,
            state="timed_out",
            reason="result_timeout",
            reason_text=text,
        )
        await self._coordinator.publish_outcome(record, lease=None)
