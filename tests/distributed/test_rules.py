"""Rules of a distributed run that have a test of their own."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from distributed.together import run_together
from towline import Context, Pipeline, module
from towline.clock import SystemClock
from towline.coordination.client import LinkedCoordinator
from towline.coordination.ledger.state import LedgerState
from towline.coordination.memory import MemoryCoordinators, MemoryLink
from towline.coordination.records import Assignment, RunCleanupContext, WorkerRegistration
from towline.coordination.redis.coordinator import RedisCoordinators
from towline.distributed.dispatch import Dispatch
from towline.distributed.keeper import HeldLeases, Keeper, KeeperThread
from towline.distributed.options import DistributedOptions
from towline.distributed.spool import Spool
from towline.errors.coordination import ProgramMismatchError, RunUnknownError, SessionEndedError
from towline.events.records import Event
from towline.execution.options import Options
from towline.execution.run_request import RunRequest
from towline.offload import KernelRegistry, kernel
from towline.pipeline.master_host import SessionHost
from towline.pipeline.mismatch import KERNELS_DIFFER
from towline.testing import clause, run_virtual
from towline.testing.contract_cases.scene import opening_of, registration_of
from towline.testing.redis_server import RedisTestServer


@module
async def one(ctx: Context) -> int:
    await asyncio.sleep(3)
    return 1


@module
async def other(ctx: Context) -> int:
    return 2


@module
async def fails(ctx: Context) -> int:
    raise ValueError("no")


def _request(coordinator: Any, **fields: Any) -> RunRequest:
    made = DistributedOptions(coordinator=coordinator, **{"registration_timeout_s": 60.0, **fields})
    options = Options(state="memory:", parallelism=2, raise_on_failure=False)
    return RunRequest(options=options, distributed=made, run_id="run-1")


@clause("DIST-08", "DIST-55")
def test_a_worker_with_another_program_is_refused() -> None:
    """Its results would stand under the same names and mean something else."""
    shared = MemoryCoordinators()

    async def scenario() -> Any:
        working = asyncio.ensure_future(Pipeline("p", [other]).work_for(_request(shared), "run-1", worker_id="w"))
        report, _ = await Pipeline("p", [one]).run_for(_request(shared))
        return report, (await asyncio.gather(working, return_exceptions=True))[0]

    report, error = run_virtual(scenario())
    assert report.status == "succeeded"
    assert isinstance(error, ProgramMismatchError)
    assert "fingerprint" in str(error)


@clause("DIST-18")
def test_a_worker_waits_for_its_master_for_a_while() -> None:
    """It may be started first; a wrong run id must not keep it for ever."""
    loop_time: list[float] = []

    async def scenario() -> None:
        with pytest.raises(RunUnknownError, match="run-1"):
            await Pipeline("p", [one]).work_for(_request(MemoryCoordinators()), "run-1", worker_id="w")
        loop_time.append(asyncio.get_running_loop().time())

    run_virtual(scenario())
    assert 60 <= loop_time[0] <= 62


@clause("DIST-21")
def test_a_blocked_loop_costs_no_heartbeat() -> None:
    """A body that computes for a minute in the event loop holds up its own process, not its lease."""
    beats: list[float] = []

    class Host:
        def heard(self, reply: Any) -> None:
            beats.append(time.monotonic())

        def replaced(self, error: Exception) -> None:
            raise AssertionError(error)

    async def scenario(url: str) -> int:
        made = RedisCoordinators(url)
        master = await made.create_master("r")
        await master.open_run(opening_of("r", 1.0, worker_timeout_ms=400))
        scene: Any = SimpleNamespace(run_id="r")
        registration: WorkerRegistration = registration_of(scene, "w")
        await master.register(registration)
        keeper = Keeper(registration, HeldLeases(), Host(), interval_s=0.05)
        thread = KeeperThread(keeper, lambda: made.create_worker("r"))
        thread.start()
        while not beats:  # noqa: ASYNC110 - a real thread
            await asyncio.sleep(0.01)
        time.sleep(1.0)  # noqa: ASYNC251 - the loop is really blocked, for longer than the worker timeout
        alive = len(await master.workers())
        await thread.stop()
        await master.aclose()
        return alive

    with RedisTestServer() as server:
        assert asyncio.run(scenario(server.url)) == 1


@clause("DIST-22")
@pytest.mark.parametrize("expelled", [False, True])
def test_a_worker_that_is_stopped_again_while_it_comes_back_tries_again(expelled: bool) -> None:
    """Twice silent for too long is bad luck, not the end of a worker; only one that was sent away stays away."""
    asked: list[str] = []

    class Coordinator:
        async def register(self, registration: Any) -> None:
            asked.append("register")

        async def heartbeat(self, status: Any) -> Any:
            asked.append("heartbeat")
            if len(asked) < 4:
                raise SessionEndedError("w", "s", expelled and len(asked) == 3)
            return "heard"

    async def scenario() -> None:
        scene: Any = SimpleNamespace(run_id="r")
        host: Any = SimpleNamespace()
        keeper = Keeper(registration_of(scene, "w"), HeldLeases(), host, interval_s=1.0)
        if expelled:
            with pytest.raises(SessionEndedError):
                await keeper._once(Coordinator())  # type: ignore[arg-type]
            return
        assert await keeper._once(Coordinator()) is None  # type: ignore[arg-type]
        assert await keeper._once(Coordinator()) == "heard"  # type: ignore[arg-type]

    run_virtual(scenario())
    assert asked[:3] == ["heartbeat", "register", "heartbeat"]


@clause("DIST-32")
def test_the_backstop_starts_with_the_claim() -> None:
    """Queued work never times out; a claimed task is given up after all attempts, their pauses and the margin."""
    now = [100.0]
    host: Any = SimpleNamespace(moved=lambda run, state: None, ended=lambda run, outcome: None)
    run: Any = SimpleNamespace(
        row=SimpleNamespace(id="a"),
        attempt=SimpleNamespace(worker_id="", epoch=0),
        kind=SimpleNamespace(
            retry=SimpleNamespace(max_s=30.0), spec=SimpleNamespace(settings=SimpleNamespace(cache=None))
        ),
    )
    assignment = Assignment(task_id="a", module="a", timeout_ms=10_000, attempts_allowed=3)
    dispatch = Dispatch(
        host,
        lambda _: assignment,
        clock=SystemClock(),
        master_id="m",
        now=lambda: now[0],
        result_margin_s=60.0,
        keeps_always_run=False,
        wake=lambda: None,
    )
    loop: Any = None
    dispatch.start(run, loop)
    now[0] += 10_000
    assert list(dispatch.overdue()) == []
    dispatch.claimed(dispatch.sent["a"], "w", 1)
    now[0] += 3 * 10 + 3 * 30 + 60 - 1
    assert list(dispatch.overdue()) == []
    now[0] += 2
    assert [sent.run.row.id for sent in dispatch.overdue()] == ["a"]


class _Cleaned(LinkedCoordinator):
    """A coordinator that notes when it is asked to remove a run's data."""

    asked: list[str]

    async def clean_up_run(self, context: RunCleanupContext) -> None:
        self.asked.append(context.outcome)


class _Factory(MemoryCoordinators):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def create_master(self, run_id: str) -> LinkedCoordinator:
        made = _Cleaned(MemoryLink(self.run(run_id)), run_id)
        made.asked = self.asked
        return made


@clause("DIST-70", "DIST-73")
@pytest.mark.parametrize(
    ("what", "policy", "asked"),
    [
        (one, "on_success", ["succeeded"]),
        (fails, "on_success", []),
        (fails, "always", ["failed"]),
        (one, "never", []),
    ],
)
def test_data_is_removed_by_policy_once(what: Any, policy: str, asked: list[str]) -> None:
    """Data of a failed run is what one looks at; a machine that fills up wants it gone anyway."""
    factory = _Factory()
    run_virtual(Pipeline("p", [what]).run_for(_request(factory, cleanup=policy)))
    assert factory.asked == asked


@module(produces={"wheel": "out/*.whl"})
async def build(ctx: Context) -> None:
    folder = ctx.workdir / "out"
    folder.mkdir(exist_ok=True)
    (folder / "a.whl").write_text("wheel", encoding="utf-8")


@module(consumes=[build.artifact("wheel", into="in")])
async def publish(ctx: Context) -> list[str]:
    return sorted(str(path.relative_to(ctx.workdir)) for path in (ctx.workdir / "in").rglob("*.whl"))


@module(produces={"wheel": "out/*.whl"})
async def forgets(ctx: Context) -> None: ...


@module(consumes=[forgets.artifact("wheel", into="in")])
async def wants(ctx: Context) -> None: ...


@clause("COORD-C56", "DIST-19", "DIST-38")
def test_artifacts_move_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer gets the files of the accepted outcome; a producer that made none has failed, and is told for whom."""
    monkeypatch.chdir(tmp_path)
    run = asyncio.run(run_together([publish], options={"state": str(tmp_path / "state")}, workers={"w-1": ()}))
    assert run.report.status == "succeeded"
    found = run.report.outcome_of(publish).value
    assert [Path(name).name for name in found] == ["a.whl"]

    (tmp_path / "out" / "a.whl").unlink()
    run = asyncio.run(run_together([wants], options={"state": str(tmp_path / "other")}, workers={"w-1": ()}))
    assert run.states["forgets"].startswith("failed")
    assert "wheel" in run.report.failures[0].text
    assert "wants" in run.report.failures[0].text


@module
async def wrong_type(ctx: Context) -> int:
    return "no number"  # type: ignore[return-value]


@clause("DIST-20")
def test_a_value_that_cannot_travel_is_a_failure_of_its_task() -> None:
    """Published as such, with the type; the worker goes on with its other work."""
    run = run_virtual(run_together([wrong_type, one], options={"keep_going": True}))
    assert run.states["wrong_type"].startswith("failed")
    assert run.states["one"] == "succeeded"
    assert run.codes == [0, 0]


@clause("DIST-61", "DIST-62")
def test_the_spool_keeps_what_is_not_acknowledged() -> None:
    """A lost reply sends events again, a full spool says what it dropped; what was sent with an outcome is not sent twice."""
    scene: Any = SimpleNamespace(run_id="r")
    spool = Spool(registration_of(scene, "w").ref, "r")
    spool.take([Event(n=n, at="now", kind="log") for n in range(1, 4)])
    first = spool.unsent()
    assert first is not None
    assert [event.n for event in first.events] == [1, 2, 3]
    assert spool.unsent() is None
    spool.take([Event(n=4, at="now", kind="log")])
    from towline.coordination.records import EventsReply

    spool.acknowledge(EventsReply(acked=2))
    again = spool.unsent()
    assert again is not None
    assert [event.n for event in again.events] == [3, 4]


@module
async def counts(ctx: Context) -> None:
    for done in range(1, 101):
        ctx.progress(done, 100)


@clause("PLAN-41")
def test_the_last_count_of_a_task_arrives() -> None:
    """Progress is thinned out on its way; a finished migration that shows 97 of 100 sends an operator searching."""
    seen = run_virtual(run_together([counts]))
    [task] = seen.report.tasks
    assert (task.done, task.total) == (100, 100)


@clause("PLAN-41")
def test_the_last_count_arrives_with_the_outcome_where_events_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of a task that ended as one master followed another come when it has ended: 33 of 40, and succeeded."""
    monkeypatch.setattr(SessionHost, "take_events", lambda host, batch: None)

    seen = run_virtual(run_together([counts]))

    [task] = seen.report.tasks
    assert (task.done, task.total) == (100, 100)


@clause("COORD-R19", "DIST-61")
def test_a_receiver_that_lost_what_it_had_gets_the_rest() -> None:
    """Its data is lost, or the run was cleaned up before a late worker left: without this it would send for ever."""

    async def scenario() -> list[int]:
        shared = MemoryCoordinators()
        opening = opening_of("r", 30.0)
        master = await shared.create_master("r")
        await master.open_run(opening)
        scene: Any = SimpleNamespace(run_id="r")
        spool = Spool(registration_of(scene, "w").ref, "r")
        spool.owner_epoch = 1
        spool.take([Event(n=n, at="now", kind="log") for n in (1, 2)])
        spool.acknowledge(await master.send_events(spool.probe()))
        shared.run("r").state = LedgerState()
        await master.open_run(opening)
        spool.take([Event(n=n, at="now", kind="log") for n in (3, 4)])
        for _ in range(2):
            spool.acknowledge(await master.send_events(spool.probe()))
        assert len(spool) == 0
        return [event.n for batch in await master.receive_events(limit=9, wait_s=0) for event in batch.events]

    assert run_virtual(scenario()) == [3, 4]


@clause("COORD-C08")
def test_a_mismatch_names_the_first_tasks_that_differ(tmp_path: Path) -> None:
    """Two digests say that a deployment is wrong; the task says which."""
    shared = MemoryCoordinators()
    state = str(tmp_path / "state")

    async def scenario() -> Any:
        request = msgspec.structs.replace(_request(shared), options=Options(state=state, raise_on_failure=False))
        running = asyncio.ensure_future(Pipeline("p", [one]).run_for(request))
        with pytest.raises(ProgramMismatchError) as raised:
            await Pipeline("p", [other]).work_for(request, "run-1", worker_id="w")
        await running
        return raised.value

    error = asyncio.run(scenario())
    assert error.differences == ("one is missing here", "other is only here")
    assert "one is missing here" in str(error)


def _step(old: Any, new: Any) -> None:
    new[...] = old


@clause("OFF-905")
def test_a_worker_with_other_kernels_is_refused_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks are those of the run, but what it computes for others would not be."""
    shared = MemoryCoordinators()
    state = str(tmp_path / "state")
    deployed = ModuleType("deployed_by_mistake")
    deployed.step = kernel("rules.step", version=2, executor="thread", registry=KernelRegistry())(_step)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, deployed.__name__, deployed)
    worker = Pipeline("p", [one])
    worker.program = msgspec.structs.replace(worker.program, module_name=deployed.__name__)

    async def scenario() -> Any:
        request = msgspec.structs.replace(_request(shared), options=Options(state=state, raise_on_failure=False))
        running = asyncio.ensure_future(Pipeline("p", [one]).run_for(request))
        with pytest.raises(ProgramMismatchError) as raised:
            await worker.work_for(request, "run-1", worker_id="w")
        await running
        return raised.value

    assert asyncio.run(scenario()).differences == (KERNELS_DIFFER,)
