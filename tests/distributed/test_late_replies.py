"""A reply that was on its way when the coordinator lost all its data, and comes after the run was opened anew."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from towline.coordination.records import FeedEntry, OutcomeRecord
from towline.distributed.feed import MasterFeed
from towline.distributed.master import DATA_LOSS_JUMPS, Master
from towline.distributed.sending import Sending
from towline.testing import clause
from towline.testing.contract_cases.scene import opening_of
from towline.testing.virtual_loop import run_virtual

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Coordinator:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.feeds: list[asyncio.Future[Sequence[FeedEntry]]] = []
        self.asked_after: list[int] = []
        self.jumps = 0
        self.published: list[OutcomeRecord] = []
        self.withdrawn: list[str] = []
        self.during_enqueue: Any = None

    async def feed(self, *, after: int, limit: int, wait_s: float) -> Sequence[FeedEntry]:
        self.asked_after.append(after)
        answer: asyncio.Future[Sequence[FeedEntry]] = asyncio.get_running_loop().create_future()
        self.feeds.append(answer)
        return await answer

    async def beat(self) -> int:
        return self.jumps

    async def requeue_expired(self) -> None:
        return None

    async def workers(self) -> list[Any]:
        return []

    async def worker_statuses(self) -> list[Any]:
        return []

    async def enqueue(self, assignments: Sequence[Any]) -> list[bool]:
        self.during_enqueue()
        return [True for _ in assignments]

    async def publish_outcome(self, outcome: OutcomeRecord, *, lease: object) -> None:
        self.published.append(outcome)

    async def withdraw(self, tasks: Sequence[str]) -> frozenset[str]:
        self.withdrawn += tasks
        return frozenset(tasks)


def _finished(seq: int, task: str) -> FeedEntry:
    return FeedEntry(seq=seq, kind="finished", task_id=task, epoch=1, worker_id="w", has_events=False)


@clause("COORD-R19")
def test_a_feed_from_before_the_loss_is_no_news_of_the_new_run() -> None:
    """Its numbers are higher than any of the new feed: the master would wait for the next ones, and hear nothing more."""

    async def scenario() -> None:
        coordinator, heard = _Coordinator(), list[FeedEntry]()
        dispatch = SimpleNamespace(heard=lambda entries: heard.extend(entries), is_backlogged=False, sent={})
        feed = MasterFeed(coordinator, dispatch, None, None, None)  # type: ignore[arg-type]
        following = asyncio.ensure_future(feed.follow())
        await asyncio.sleep(0)
        feed.begin_again()
        coordinator.feeds[0].set_result([_finished(69, "old")])
        await asyncio.sleep(1)
        coordinator.feeds[1].set_result([_finished(1, "new")])
        await asyncio.sleep(1)
        following.cancel()

        assert [entry.task_id for entry in heard] == ["new"]
        assert feed.known == {"new"}
        assert coordinator.asked_after == [0, 0, 1]

    run_virtual(scenario())


@clause("COORD-R19")
@pytest.mark.parametrize(("reply", "then"), [(3, DATA_LOSS_JUMPS), (DATA_LOSS_JUMPS + 5, DATA_LOSS_JUMPS + 5)])
def test_the_base_of_epochs_never_goes_back(reply: int, then: int) -> None:
    """The next loss would give epochs a second time: two workers would hold one task under one fence."""

    async def scenario() -> None:
        coordinator = _Coordinator()
        opening = opening_of("r", 6.0, master_id="m", owner_epoch=1, epoch_jumps=DATA_LOSS_JUMPS)
        options = SimpleNamespace(heartbeat_interval_s=1.0, worker_timeout_s=6.0, registration_timeout_s=60.0)
        master = Master(coordinator, opening, options, None)  # type: ignore[arg-type]
        quiet: Any = SimpleNamespace(to_enqueue=[], overdue=list, holders=dict, unrouted_in_queue=lambda _: ([], []))
        master.dispatch = quiet

        async def trim() -> None:
            return None

        master._feed = SimpleNamespace(trim=trim)  # type: ignore[assignment]
        coordinator.jumps = reply
        with suppress(TimeoutError):
            await asyncio.wait_for(master._maintain(), 0.1)

        assert master.opening.epoch_jumps == then

    run_virtual(scenario())


@clause("COORD-R19")
@pytest.mark.parametrize("has_outcome", [True, False])
def test_a_task_that_ends_while_it_is_queued_is_told_as_ended(has_outcome: bool) -> None:
    """The call may have been repeated at a coordinator that forgot the end: it would have the task run again, for nobody."""

    async def scenario() -> None:
        coordinator = _Coordinator()
        record = OutcomeRecord(task_id="a", epoch=1, worker_id="w", state="succeeded")

        async def outcome_record_of(task: str) -> OutcomeRecord | None:
            return record if has_outcome else None

        sent = SimpleNamespace(
            run=SimpleNamespace(row=SimpleNamespace(id="a")), assignment=SimpleNamespace(dependencies=())
        )
        dispatch = SimpleNamespace(sent={"a": sent})
        coordinator.during_enqueue = dispatch.sent.clear
        sending = Sending(
            coordinator,  # type: ignore[arg-type]
            dispatch,  # type: ignore[arg-type]
            SimpleNamespace(outcome_record_of=outcome_record_of),  # type: ignore[arg-type]
            SimpleNamespace(known=set()),  # type: ignore[arg-type]
            master_id="m",
            wake=lambda: None,
        )
        await sending._enqueue([sent])  # type: ignore[list-item]

        assert coordinator.published == ([record] if has_outcome else [])
        assert coordinator.withdrawn == ([] if has_outcome else ["a"])

    run_virtual(scenario())


@clause("DIST-43")
def test_a_run_ends_only_when_what_it_sends_is_sent() -> None:
    """A task that ended while its enqueue was under way would be left in the queue of a run that has ended."""

    async def scenario() -> None:
        options = SimpleNamespace(heartbeat_interval_s=1.0, worker_timeout_s=6.0, finalize_timeout_s=30.0)
        opening = opening_of("r", 6.0, master_id="m", owner_epoch=1)
        master = Master(_Coordinator(), opening, options, None)  # type: ignore[arg-type]

        async def drain_events() -> None:
            return None

        master._feed = SimpleNamespace(drain_events=drain_events)  # type: ignore[assignment]
        sending = SimpleNamespace(is_busy=True)
        master._sending = sending  # type: ignore[assignment]
        collecting = asyncio.ensure_future(master._collect_goodbyes())
        await asyncio.sleep(5)
        waited = not collecting.done()
        sending.is_busy = False
        await asyncio.wait_for(collecting, 1.0)

        assert waited

    run_virtual(scenario())
