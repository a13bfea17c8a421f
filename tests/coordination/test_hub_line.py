"""A worker's line over connections that break, and the hub's side of it."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from towline.coordination.hub import Hub, HubCoordinator
from towline.coordination.hub.line import Line
from towline.coordination.hub.loopback import LoopbackListener, connect
from towline.coordination.hub.messages import Claim, Hello, SendEvents
from towline.coordination.memory import MemoryCoordinators
from towline.coordination.records import Closed, Lease
from towline.coordination.signals import Signal
from towline.errors.coordination import (
    MasterLostError,
    ProgramMismatchError,
    SessionEndedError,
    SessionReplacedError,
    WorkerIdTakenError,
)
from towline.errors.hub import FrameTooLargeError, HubRefusedError
from towline.testing import clause, run_virtual
from towline.testing.contract_cases.scene import Actor, events_of, opening_of, outcome_of, registration_of, task
from towline.testing.pipe_wire import PipeWire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from towline.coordination.client import LinkedCoordinator

TOKEN = "a token of the test"


class World:
    """A hub, its master, and in-process connections that the test breaks."""

    run_id = "run-1"
    worker_timeout_s = 30.0

    def __init__(self, **hub: Any) -> None:
        self._coordinators = MemoryCoordinators(poll_s=1_000.0)
        self.hub = Hub(self._coordinators.run(self.run_id), self.run_id, token=TOKEN, poll_s=1_000.0, **hub)
        self.wires: list[PipeWire] = []
        self.serving: list[asyncio.Task[None]] = []
        self.is_away = False
        self.tries = 0
        self.master: LinkedCoordinator
        self.clients: list[HubCoordinator] = []

    async def __aenter__(self) -> World:
        self.master = await self._coordinators.create_master(self.run_id)
        await self.master.open_run(opening_of(self.run_id, self.worker_timeout_s))
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            await client.aclose()
        self.hub.close()
        if self.serving:
            await asyncio.wait(self.serving)

    async def open(self) -> PipeWire:
        self.tries += 1
        if self.is_away:
            raise ConnectionRefusedError("nobody listens")
        near, far = PipeWire.pair()
        self.wires.append(far)
        self.serving.append(asyncio.ensure_future(self.hub.serve(far)))
        return near

    def client(self, *, token: str = TOKEN, run_id: str = "run-1", open_wire: Any = None) -> HubCoordinator:
        made = HubCoordinator(run_id, open_wire or self.open, token=token, lost_after_s=60.0, random=Random(1))
        self.clients.append(made)
        return made

    async def join(self, worker_id: str, session: str = "s1") -> Actor:
        client = self.client()
        registration = registration_of(self, worker_id, session)  # type: ignore[arg-type]
        await client.register(registration)
        return Actor(client, registration)

    def cut(self) -> None:
        """Break the newest connection."""
        self.wires[-1].close(1006, "cut")

    async def held(self) -> list[tuple[str, str, int]]:
        return [(lease.task_id, lease.session, lease.epoch) for lease in await self.master.active_leases()]


def in_world(scenario: Callable[[World], Awaitable[None]], **hub: Any) -> None:
    async def act() -> None:
        async with World(**hub) as world:
            await scenario(world)

    run_virtual(act())


@clause("COORD-H07")
def test_a_closed_connection_keeps_session_and_leases() -> None:
    """A network that blinks costs nobody's work; only what was parked there ends."""

    async def scenario(world: World) -> None:
        worker = await world.join("w")
        await world.master.enqueue([task("a")])
        lease = await worker.claim()
        parked = asyncio.ensure_future(worker.coordinator.wait_for_signal(seen=Signal.RUNNING))
        await asyncio.sleep(0.1)
        assert world.hub.waiting["wait_for_signal"] == 1
        world.is_away = True
        world.cut()
        await asyncio.sleep(0.1)

        assert world.hub.waiting["wait_for_signal"] == 0
        assert await world.held() == [("a", "s1", lease.epoch)]
        assert [one.worker_id for one in await world.master.workers()] == ["w"]
        parked.cancel()

    in_world(scenario)


@clause("COORD-H08")
def test_a_line_comes_back_with_what_it_holds_and_asks_again() -> None:
    """Open requests are repeated, held leases stay, and nobody above notices the break."""

    async def scenario(world: World) -> None:
        worker = await world.join("w")
        await world.master.enqueue([task("a"), task("b")])
        kept = await worker.claim()
        done = await worker.claim()
        await worker.publish(done)
        waiting = asyncio.ensure_future(worker.coordinator.wait_for_signal(seen=Signal.RUNNING))
        await asyncio.sleep(0.1)
        world.is_away = True
        world.cut()
        await asyncio.sleep(3.0)
        world.is_away = False
        await world.master.send_signal(Signal.PIPELINE_FAILED)

        assert await waiting is Signal.PIPELINE_FAILED
        assert await world.held() == [("a", "s1", kept.epoch)]
        assert (await worker.beat(kept)).lost == ()
        assert 3 <= world.tries <= 20, "pauses double from 0.2 s"

    in_world(scenario)


@clause("COORD-H09")
def test_a_grant_whose_answer_was_lost_is_given_again() -> None:
    """The repeated claim has the same token; else the task would wait for a lease that nobody holds."""

    async def scenario(world: World) -> None:
        worker = await world.join("w")
        claim = asyncio.ensure_future(worker.coordinator.claim(worker.ref, token="t-1", wait_s=None))
        await asyncio.sleep(0.1)
        world.wires[-1].is_cut = True  # the answer goes nowhere
        await world.master.enqueue([task("a", at_most_once=True)])
        await asyncio.sleep(0.1)
        granted = await world.held()
        world.wires[-1].is_cut = False
        world.cut()

        lease = await claim

        assert isinstance(lease, Lease)
        assert granted == [("a", "s1", lease.epoch)]
        assert await world.held() == granted

    in_world(scenario)


@clause("COORD-H09")
def test_a_grant_that_nobody_asks_for_again_goes_back() -> None:
    """The worker does not name it when it greets: the task is there for others at once."""

    async def scenario(world: World) -> None:
        worker = await world.join("w")
        claim = asyncio.ensure_future(worker.coordinator.claim(worker.ref, token="t-1", wait_s=None))
        await asyncio.sleep(0.1)
        world.wires[-1].is_cut = True
        await world.master.enqueue([task("a")])
        await asyncio.sleep(0.1)
        assert await world.held()
        claim.cancel()
        await asyncio.wait([claim])
        world.wires[-1].is_cut = False
        world.cut()
        await worker.beat()

        assert await world.held() == []

    in_world(scenario)


@clause("COORD-H10")
def test_a_drop_during_hello_is_one_more_try() -> None:
    """A master that is just starting accepts connections before it can answer."""

    async def scenario(world: World) -> None:
        async def open_wire() -> PipeWire:
            near = await world.open()
            if world.tries < 4:
                near.close(1006, "cut")
            return near

        client = world.client(open_wire=open_wire)
        assert (await client.run_state()).state == "running"
        assert world.tries == 4

    in_world(scenario)


@clause("COORD-H10")
def test_a_refused_greeting_is_final() -> None:
    """A wrong token or run id does not become right by trying again."""

    async def scenario(world: World) -> None:
        for client in (world.client(token="a wrong token here"), world.client(run_id="run-9")):
            before = world.tries
            with pytest.raises(HubRefusedError) as refused:
                await client.run_state()
            assert refused.value.code in ("unauthorized", "wrong_run")
            assert world.tries == before + 1

    in_world(scenario)


@clause("COORD-H11")
@pytest.mark.parametrize("completed", [True, False])
def test_a_line_that_is_lost_says_how_the_run_stood(completed: bool) -> None:
    """A worker whose master ended the run leaves in peace; one whose master died says so."""

    async def scenario(world: World) -> None:
        worker = await world.join("w")
        if completed:
            await world.master.complete()
        await worker.beat()
        world.is_away = True
        world.cut()

        reply = await worker.coordinator.claim(worker.ref, token="t", wait_s=None)

        assert reply == Closed("completed" if completed else "master_lost")
        with pytest.raises(MasterLostError):
            await worker.beat()
        assert asyncio.get_running_loop().time() > 100  # four times the worker timeout: the master timeout of the run

    in_world(scenario)


@clause("COORD-H06")
def test_the_older_connection_of_a_session_is_closed() -> None:
    """Its side of the network has not noticed yet that it is broken; it must not act beside the newer one."""

    async def scenario(world: World) -> None:
        worker = await world.join("w")
        waiting = asyncio.ensure_future(worker.coordinator.wait_for_signal(seen=Signal.RUNNING))
        await asyncio.sleep(0.1)

        newer = await world.join("w")

        with pytest.raises(SessionReplacedError):
            await waiting
        assert not (await newer.beat()).lost
        assert world.tries == 2, "the older line does not fight back"

    in_world(scenario)


def test_errors_are_the_same_on_both_sides() -> None:
    """Whoever handles an error of the coordinator need not know what carries it."""

    async def scenario(world: World) -> None:
        await world.join("w")
        other = world.client()
        with pytest.raises(WorkerIdTakenError) as taken:
            await other.register(registration_of(world, "w", "s2", host="box-2"))  # type: ignore[arg-type]
        assert (taken.value.worker_id, taken.value.host, taken.value.pid) == ("w", "box", 4711)
        with pytest.raises(ProgramMismatchError, match="sha256:other"):
            await other.register(registration_of(world, "v", fingerprint="sha256:other"))  # type: ignore[arg-type]

    in_world(scenario)


def test_a_session_that_was_ended_meanwhile_is_told_so() -> None:
    """The line comes back without it: whoever asks learns it, and may register anew on the same line."""

    async def scenario(world: World) -> None:
        worker = await world.join("w")
        await world.master.expel("w")
        world.cut()
        with pytest.raises(SessionEndedError):
            await worker.beat()
        await worker.coordinator.register(registration_of(world, "w", "s2"))  # type: ignore[arg-type]
        assert [one.session for one in await world.master.workers()] == ["s2"]

    in_world(scenario)


@clause("COORD-H19")
def test_a_message_above_the_limit_is_not_sent() -> None:
    """It would close the connection, and again after each reconnect."""

    async def scenario(world: World) -> None:
        line = Line("run-1", world.open, lambda: Hello(token=TOKEN), lost_after_s=60.0, frame_limit_bytes=2_000)
        worker = await world.join("w")
        batch = events_of(world, worker, 1, 100)  # type: ignore[arg-type]

        with pytest.raises(FrameTooLargeError, match="send_events"):
            await line.ask(SendEvents(batch))
        assert world.tries == 1
        with pytest.raises(HubRefusedError, match="not_registered"):
            await line.ask(Claim(worker.ref, "t", 0))
        await line.aclose()

    in_world(scenario)


@clause("COORD-H27")
def test_a_claim_is_durable_before_it_is_answered() -> None:
    """After a crash the plan knows every lease that a worker can hold; other answers do not wait for that."""
    journal: list[str] = []
    may_go = asyncio.Event()

    async def record(lease: Lease) -> bool:
        await may_go.wait()
        journal.append(lease.task_id)
        return True

    async def scenario(world: World) -> None:
        worker = await world.join("w")
        await world.master.enqueue([task("a"), task("b")])
        claim = asyncio.ensure_future(worker.claim())
        await asyncio.sleep(1.0)
        assert await world.held()
        assert not claim.done()
        assert (await worker.beat()).lost == ()
        may_go.set()
        lease = await claim
        assert journal == ["a"]
        _, both = await worker.coordinator.publish_and_claim(
            outcome_of(lease), lease=lease.ref, worker=worker.ref, token="t-9"
        )
        assert isinstance(both, Lease)
        assert journal == ["a", "b"]

    in_world(scenario, record_claim=record)


@clause("COORD-C33")
def test_a_claim_that_is_cancelled_while_it_is_recorded_keeps_nothing() -> None:
    """Its lease was granted, but nobody ever saw it."""

    async def never(_: Lease) -> bool:
        await asyncio.Event().wait()
        return True

    async def scenario(world: World) -> None:
        worker = await world.join("w")
        await world.master.enqueue([task("a")])
        claim = asyncio.ensure_future(worker.claim())
        await asyncio.sleep(1.0)
        claim.cancel()
        await asyncio.wait([claim])
        assert await world.held() == []

    in_world(scenario, record_claim=never)


@clause("COORD-H27")
def test_a_claim_that_cannot_be_recorded_is_taken_back() -> None:
    """The disk of the master is full: its worker must not begin what no plan knows of, nor the run wait for its lease."""

    async def refuse(_: Lease) -> bool:
        return False

    async def scenario(world: World) -> None:
        worker = await world.join("w")
        await world.master.enqueue([task("a")])
        assert await worker.ask() == Closed("stopped")
        assert await world.held() == []

    in_world(scenario, record_claim=refuse)


class SlowReader(PipeWire):
    """The hub's end of a connection whose worker has stopped to read."""

    @property
    def queued_bytes(self) -> int:
        return 9 * 1024 * 1024


@clause("COORD-H21")
def test_who_does_not_read_is_cut_off() -> None:
    """Replies that pile up would take the master's memory; the session lives on, as after any break."""

    async def scenario(world: World) -> None:
        worker = await world.join("w")
        far = world.wires[-1]
        far.__class__ = SlowReader

        assert (await worker.beat()).lost == ()

        assert world.tries == 2, "a new connection answers"
        assert [one.session for one in await world.master.workers()] == ["s1"]

    in_world(scenario)


@clause("COORD-C47")
def test_no_lease_is_lost_while_the_masters_loop_stands_still() -> None:
    """A body that blocks the master, or a SIGSTOP: heartbeats of workers lie unread, and count once it goes on."""

    async def scenario() -> None:
        runs = MemoryCoordinators()
        listener = LoopbackListener(Hub(runs.run("run-1"), "run-1", token=TOKEN))
        port = await listener.start()
        master = await runs.create_master("run-1")
        await master.open_run(opening_of("run-1", 30.0))
        client = HubCoordinator("run-1", lambda: connect(port), token=TOKEN)
        world: Any = SimpleNamespace(run_id="run-1")
        registration = registration_of(world, "w")
        await client.register(registration)
        worker = Actor(client, registration)
        await master.enqueue([task("a")])
        lease = await worker.claim()
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        time = loop.time
        loop.time = lambda: time() + 100.0  # type: ignore[method-assign]

        assert await master.requeue_expired() == ()
        assert [one.worker_id for one in await master.workers()] == ["w"]
        assert (await worker.beat(lease)).lost == ()

        await client.aclose()
        await listener.stop()

    asyncio.run(scenario())


def test_a_stopped_listener_is_gone() -> None:
    """Its port is free and its connections are closed; twice without harm, also before the start."""

    async def scenario() -> None:
        runs = MemoryCoordinators()
        listener = LoopbackListener(Hub(runs.run("run-1"), "run-1", token=TOKEN))
        await listener.stop()
        port = await listener.start()
        wire = await connect(port)
        await listener.stop()
        assert await wire.receive() is None
        await listener.stop()
        with pytest.raises(OSError, match="Connect"):
            await connect(port)

    asyncio.run(scenario())


@clause("COORD-H03")
def test_a_connection_without_hello_is_closed() -> None:
    """After five seconds nobody waits for it any more."""

    async def scenario(world: World) -> None:
        near = await world.open()
        assert await near.receive() is None
        assert near.close_code == 1008
        assert asyncio.get_running_loop().time() == pytest.approx(5.0, abs=0.1)

    in_world(scenario)
