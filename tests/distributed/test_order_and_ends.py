"""Claims that fail, the order of work, what is durable first, and a master that was replaced."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from distributed.together import run_together
from towline import Context, Pipeline, module, result_of
from towline.coordination.client import LinkedCoordinator
from towline.coordination.memory import MemoryCoordinators, MemoryLink
from towline.coordination.records import (
    Assignment,
    Closed,
    HeartbeatReply,
    Lease,
    LeaseRef,
    LostLease,
    NoWork,
    OutcomeRecord,
    PublishReply,
)
from towline.coordination.signals import Signal
from towline.distributed.keeper import HeldLeases
from towline.distributed.options import DistributedOptions
from towline.distributed.slots import Slots
from towline.distributed.spool import Spool
from towline.distributed.worker import Worker
from towline.errors.coordination import CoordinationError, MasterReplacedError, SessionEndedError
from towline.execution.options import Options
from towline.execution.run_request import RunRequest
from towline.pipeline.master_session import MasterSession
from towline.testing import clause, run_virtual
from towline.testing.contract_cases.scene import registration_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.coordination.records import WorkerStatus


ran: list[str] = []


class _Failing:
    """A coordinator whose claims fail a few times; says when it was asked."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.asked_at: list[float] = []

    async def claim(self, worker: Any, *, token: str, wait_s: float | None) -> Closed:
        self.asked_at.append(asyncio.get_running_loop().time())
        if len(self.asked_at) <= self.failures:
            raise CoordinationError("the store is out of order")
        return Closed("completed")

    async def wait_for_signal(self, *, seen: Signal) -> Signal:
        await asyncio.Event().wait()
        raise AssertionError


@clause("DIST-16")
def test_a_claim_that_fails_is_repeated_with_growing_pauses() -> None:
    """A broken store is asked again, not hammered; what it says goes to the log each time."""
    said: list[str] = []
    coordinator: Any = _Failing(8)
    scene: Any = SimpleNamespace(run_id="r")
    registration = registration_of(scene, "w")
    executor: Any = SimpleNamespace()

    async def scenario() -> str:
        worker = Worker(
            coordinator,
            registration,
            executor,
            slots=Slots(1),
            spool=Spool(registration.ref, "r"),
            held=HeldLeases(),
            random=Random(1),
            tell=said.append,
        )
        return await worker.run()

    assert run_virtual(scenario()) == "completed"
    times = coordinator.asked_at
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert 0.05 <= pauses[0] <= 0.1
    assert all(1.0 <= pause <= 2.0 for pause in pauses[-3:])
    assert len(said) == 8
    assert "out of order" in said[0]


class _LastLease(_Failing):
    """A coordinator that gives one lease and then says that the run is over."""

    async def claim(self, worker: Any, *, token: str, wait_s: float | None) -> Any:
        if self.asked_at:
            return Closed("completed")
        self.asked_at.append(0.0)
        return Lease(
            task_id="a",
            epoch=1,
            worker_id="w",
            session="s1",
            assignment=Assignment(task_id="a", module="a"),
            claimed_at="",
            expires_in_ms=60_000,
        )


@clause("DIST-25")
def test_what_runs_on_after_the_end_is_dropped() -> None:
    """A task that another worker has finished may wait here for data that was cleaned up: its worker must still leave."""
    stopped: list[str] = []
    coordinator: Any = _LastLease(0)
    scene: Any = SimpleNamespace(run_id="r")
    registration = registration_of(scene, "w")

    class Stuck:
        def start(self, lease: Lease, ended: Any) -> None:
            self.ended = ended

        def stop(self, lease: Lease, code: str) -> None:
            stopped.append(code)
            self.ended(OutcomeRecord(task_id="a", epoch=1, worker_id="w", state="cancelled"))

    async def scenario() -> str:
        spool = Spool(registration.ref, "r")
        executor: Any = Stuck()
        worker = Worker(coordinator, registration, executor, slots=Slots(2), spool=spool, held=HeldLeases())
        asyncio.get_running_loop().call_later(30, worker.drop_leftovers)
        return await worker.run()

    assert run_virtual(scenario()) == "completed"
    assert stopped == ["stopped"]


class _LeavesInTheMiddle(_LastLease):
    """A coordinator whose worker is told to leave while a call is under way; ``grants``: what the claim on an outcome gets."""

    def __init__(self, call: str, *, grants: bool = False) -> None:
        super().__init__(0)
        self.call, self.grants = call, grants
        self.leave: Any = None
        self.calls: list[tuple[str, Any]] = []

    def lease(self, task_id: str) -> Lease:
        assignment = Assignment(task_id=task_id, module=task_id)
        return Lease(
            task_id=task_id,
            epoch=1,
            worker_id="w",
            session="s1",
            assignment=assignment,
            claimed_at="",
            expires_in_ms=60_000,
        )

    async def claim(self, worker: Any, *, token: str, wait_s: float | None) -> Any:
        self.calls.append(("claim", token))
        claims = sum(1 for name, _ in self.calls if name == "claim")
        if claims == 1:
            return self.lease("a")
        if self.call == "claim":
            self.leave()
            return self.lease("b")
        return await asyncio.Event().wait()

    async def publish_and_claim(self, outcome: OutcomeRecord, *, token: str, **_: Any) -> Any:
        self.calls.append(("publish_and_claim", token))
        if self.call == "publish_and_claim":
            self.leave()
        await asyncio.sleep(1)
        return PublishReply(accepted=True), self.lease("b") if self.grants else NoWork(1)

    async def publish_outcome(self, outcome: OutcomeRecord, **_: Any) -> Any:
        self.calls.append(("publish_outcome", outcome.task_id))
        return PublishReply(accepted=True)

    async def withdraw_claim(self, worker: Any, *, token: str) -> None:
        self.calls.append(("withdraw_claim", token))

    async def release(self, worker: Any, lease: LeaseRef, *, started: bool) -> bool:
        await asyncio.sleep(1)
        self.calls.append(("release", (lease.task_id, started)))
        return True


class _Bodies:
    """Executes at once, or when told to; says what began."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.began: list[str] = []
        self.takes_s = takes_s

    def start(self, lease: Lease, ended: Any) -> None:
        self.began.append(lease.task_id)
        outcome = OutcomeRecord(task_id=lease.task_id, epoch=1, worker_id="w", state="succeeded")
        asyncio.get_running_loop().call_later(self.takes_s, ended, outcome)

    def accepted(self, outcome: OutcomeRecord) -> None: ...


def _drained(coordinator: Any, bodies: Any, slots: int = 1, leave_after_s: float | None = None) -> None:
    scene: Any = SimpleNamespace(run_id="r")
    registration = registration_of(scene, "w")

    async def scenario() -> str:
        spool = Spool(registration.ref, "r")
        worker = Worker(coordinator, registration, bodies, slots=Slots(slots), spool=spool, held=HeldLeases())
        coordinator.leave = worker.drain
        if leave_after_s is not None:
            asyncio.get_running_loop().call_later(leave_after_s, worker.drain)
        return await worker.run()

    assert run_virtual(scenario()) == "drained"


@clause("DIST-24", "COORD-R11")
def test_a_worker_that_leaves_withdraws_the_claim_that_stands() -> None:
    """To ask once more what it was granted would be a claim: one task more, and an epoch of it spent."""
    coordinator, bodies = _LeavesInTheMiddle("publish_and_claim"), _Bodies()
    _drained(coordinator, bodies)
    [(_, first), (_, rode_on), *rest] = coordinator.calls
    assert first != rode_on
    assert rest == [("withdraw_claim", rode_on)]


@clause("DIST-24")
@pytest.mark.parametrize(("call", "slots"), [("publish_and_claim", 1), ("claim", 2)])
def test_what_is_granted_in_the_moment_of_leaving_is_given_back_unbegun(call: str, slots: int) -> None:
    """It was on its way when the worker was told to leave: a body begun now would hold the process for its whole length."""
    coordinator, bodies = _LeavesInTheMiddle(call, grants=True), _Bodies(0.0 if slots == 1 else 5.0)
    _drained(coordinator, bodies, slots)
    assert bodies.began == ["a"]
    assert ("release", ("b", False)) in coordinator.calls


@clause("DIST-24")
def test_a_task_that_ends_while_its_worker_leaves_brings_no_other() -> None:
    """Its outcome is handed over alone: no claim rides along after the signal."""
    coordinator, bodies = _LeavesInTheMiddle("none"), _Bodies(5.0)
    _drained(coordinator, bodies, leave_after_s=2.0)
    assert [name for name, _ in coordinator.calls] == ["claim", "publish_outcome"]


@clause("DIST-22")
def test_an_outcome_that_is_on_its_way_is_not_called_lost() -> None:
    """A server that froze took the outcome and kept the reply: the next heartbeat calls the task finished, by this very worker."""
    coordinator, bodies, said = _LeavesInTheMiddle("none"), _Bodies(), list[str]()
    scene: Any = SimpleNamespace(run_id="r")
    registration = registration_of(scene, "w")

    async def scenario() -> Worker:
        spool, executor = Spool(registration.ref, "r"), cast("Any", bodies)
        worker = Worker(
            cast("Any", coordinator),
            registration,
            executor,
            slots=Slots(1),
            spool=spool,
            held=HeldLeases(),
            tell=said.append,
        )
        finished = HeartbeatReply(lost=(LostLease(task_id="a", epoch=1, why="finished"),), signal=Signal.RUNNING)
        asyncio.get_running_loop().call_later(0.5, worker.heard, finished)  # within the second that the reply takes
        asyncio.get_running_loop().call_later(3, worker.drain)
        await worker.run()
        return worker

    assert run_virtual(scenario()).lost_leases == 0
    assert said == []


@clause("DIST-26", "DIST-72")
def test_a_worker_that_slept_through_the_end_leaves_in_peace() -> None:
    """Its session was swept and the run cleaned up meanwhile; its tasks are done by others, and its exit code is 0."""
    said: list[str] = []
    scene: Any = SimpleNamespace(run_id="r")
    registration = registration_of(scene, "w")

    async def scenario() -> None:
        swept: Any = SimpleNamespace(heartbeat=_swept)
        executor: Any = SimpleNamespace()
        spool = Spool(registration.ref, "r")
        worker = Worker(swept, registration, executor, slots=Slots(1), spool=spool, held=HeldLeases(), tell=said.append)
        await worker.say_goodbye({"a": 3})

    run_virtual(scenario())
    assert "without this worker's counts" in said[0]


async def _swept(status: WorkerStatus) -> HeartbeatReply:
    raise SessionEndedError(status.worker_id, status.session, False)


@module(matrix={"number": list(range(6))})
async def waits(ctx: Context, number: int) -> str:
    ran.append(f"{ctx.worker_id} +")
    await asyncio.sleep(10)
    ran.append(f"{ctx.worker_id} -")
    return ctx.worker_id


@clause("DIST-16")
def test_a_node_may_lower_the_parallelism_and_a_slot_comes_before_a_claim() -> None:
    """A small machine in a run of large ones takes what it can hold, and leaves the rest in the queue for others."""
    ran.clear()
    run = run_virtual(run_together([waits], options={"parallelism": 50}, max_parallelism=2, workers={"w": ()}))
    assert run.report.status == "succeeded"
    running = most = 0
    for line in ran:
        running += 1 if line.endswith("+") else -1
        most = max(most, running)
    assert most == 2


@module
async def short(ctx: Context) -> int:
    ran.append("short")
    return 1


@module
async def head(ctx: Context) -> int:
    ran.append("head")
    return 1


@module
async def middle(ctx: Context, value: int = result_of(head)) -> int:
    return value


@module
async def tail(ctx: Context, value: int = result_of(middle)) -> int:
    return value


@clause("COORD-C31", "SCHED-04")
def test_the_longest_chain_is_begun_first() -> None:
    """The end of a run is the end of its longest chain: workers take its head before what nobody waits for."""
    ran.clear()
    run = run_virtual(run_together([short, tail], options={"parallelism": 1}, workers={"w": ()}))
    assert run.report.status == "succeeded"
    assert ran == ["head", "short"]


@module
async def seeds(ctx: Context) -> list[int]:
    return [1, 2, 3]


@module(each=result_of(seeds))
async def grown(ctx: Context, item: int) -> int:
    await asyncio.sleep(20)
    return item


class _Watched(LinkedCoordinator):
    """A coordinator that looks into the plan's files whenever something is queued."""

    folder: Path
    missing: list[str]
    queued: list[str]

    async def enqueue(self, assignments: Sequence[Assignment]) -> Sequence[bool]:
        written = "".join(path.read_text("utf-8") for path in self.folder.rglob("plan.j*"))
        for one in assignments:
            self.queued.append(one.task_id)
            if f'"{one.task_id}"' not in written:
                self.missing.append(one.task_id)
        return await super().enqueue(assignments)


class _Watching(MemoryCoordinators):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.missing: list[str] = []
        self.queued: list[str] = []

    async def create_master(self, run_id: str) -> LinkedCoordinator:
        made = _Watched(MemoryLink(self.run(run_id)), run_id)
        made.folder, made.missing, made.queued = self.folder, self.missing, self.queued
        return made


def _request(coordinator: Any, state: str = "memory:", **fields: Any) -> RunRequest:
    made = DistributedOptions(coordinator=coordinator, **{"registration_timeout_s": 60.0, **fields})
    return RunRequest(options=Options(state=state, raise_on_failure=False), distributed=made, run_id="run-1")


@clause("DIST-57", "PLAN-57")
def test_grown_tasks_are_in_the_plan_before_a_worker_can_hold_them(tmp_path: Path) -> None:
    """A restarted master finds every task that somebody works on: it was written before it was queued."""
    factory = _Watching(tmp_path)
    request = _request(factory, str(tmp_path / "state"))
    report, _ = asyncio.run(Pipeline("p", [grown_quickly]).run_for(request))
    assert report.status == "succeeded"
    assert len(factory.queued) == 4
    assert factory.missing == []


@module(each=result_of(seeds))
async def grown_quickly(ctx: Context, item: int) -> int:
    return item


@clause("COORD-R24", "DIST-33")
def test_the_feed_is_trimmed_to_what_the_journal_lacks() -> None:
    """A run of a million tasks must not keep each of its moves in the store until its end."""
    shared = MemoryCoordinators()
    report, _ = run_virtual(Pipeline("p", [grown]).run_for(_request(shared, master_parallelism=1)))
    assert report.status == "succeeded"
    state = shared.run("run-1").state
    assert state.feed_seq >= 8
    assert len(state.feed) <= 3


@clause("DIST-56")
def test_a_replaced_master_writes_nothing_more() -> None:
    """Two masters over one plan would undo each other: the older one stops where it is, with exit code 4."""
    shared = MemoryCoordinators()
    look: list[Any] = []
    seen: list[Any] = []

    async def scenario() -> None:
        request = msgspec.structs.replace(_request(shared, master_parallelism=2), look=look.append)
        running = asyncio.ensure_future(Pipeline("p", [grown]).run_for(request))
        await asyncio.sleep(5)
        session = look[0]._session
        opening = session._master.opening
        newer = await shared.create_master("run-1")
        await newer.open_run(
            msgspec.structs.replace(opening, master_id="m-2", owner_epoch=opening.owner_epoch + 1, replaces=1)
        )
        with pytest.raises(MasterReplacedError) as raised:
            await running
        seen.append(raised.value)
        seen.append([row.state for row in session.opened.plan.document.tasks if row.parent])

    run_virtual(scenario())
    assert seen[0].exit_code == 4
    assert seen[1] == ["running", "running", "queued"]
    assert shared.run("run-1").state.completed is False


class _DiesError(Exception):
    """The process was killed here."""


@clause("DIST-43", "DIST-44")
def test_a_master_that_died_after_the_end_is_restarted_to_record_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody was sent home, only the end was not written: the next master writes it, and does not call the id used."""
    ran.clear()

    async def dies(self: MasterSession, status: str) -> None:
        raise _DiesError

    async def scenario() -> str:
        request = _request(MemoryCoordinators(), str(tmp_path / "state"))
        with monkeypatch.context() as patch:
            patch.setattr(MasterSession, "record_end", dies)
            with pytest.raises(_DiesError):
                await Pipeline("p", [short]).run_for(request)
        report, _ = await Pipeline("p", [short]).run_for(request)
        return report.status

    assert asyncio.run(scenario()) == "succeeded"
    assert ran == ["short"]
