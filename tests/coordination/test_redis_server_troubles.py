"""What Redis and the network do to a coordinator: lost scripts, killed connections, outages, secrets, key life."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from typing import Any

import pytest

from towline.access.redis_server import RedisServer
from towline.coordination import operations as ops
from towline.coordination.redis.coordinator import RedisCoordinators
from towline.coordination.redis.link import RedisLink
from towline.coordination.signals import Signal
from towline.errors.coordination import CoordinatorLostError, RecordRefusedError, TooManyRequirementsError
from towline.testing import clause
from towline.testing.contract_cases.scene import Actor, opening_of, registration_of, task
from towline.testing.coordinator_envs import RedisEnv
from towline.testing.redis_server import RedisTestServer

_runs = itertools.count()


class Desk:
    """One run on a server, and a raw way to that server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.port = int(url.rpartition(":")[2])
        self.env = RedisEnv(url, f"trouble-{next(_runs)}", poll_s=0.5)

    def raw(self, line: str) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
            link.sendall(line.encode() + b"\r\n")
            return link.recv(1 << 20)

    async def join(self, worker_id: str, **fields: Any) -> Actor:
        coordinator = await self.env.worker()
        registration = registration_of(self.env, worker_id, **fields)
        await coordinator.register(registration)
        return Actor(coordinator, registration)

    def key(self, kind: str) -> str:
        return f"towline:run:{{{self.env.run_id}}}:{kind}"


@pytest.fixture
def desk(redis_url: str) -> Desk:
    return Desk(redis_url)


@clause("COORD-R01")
@pytest.mark.anyio
async def test_scripts_are_loaded_again(desk: Desk) -> None:
    """A server may forget its scripts at any moment; nobody notices."""
    master = await desk.env.master()
    worker = await desk.join("w")
    desk.raw("SCRIPT FLUSH")
    await master.enqueue([task("a")])
    desk.raw("SCRIPT FLUSH")
    assert (await worker.claim()).task_id == "a"
    await desk.env.aclose()


@clause("COORD-R02")
@pytest.mark.anyio
async def test_a_claim_costs_the_same_in_a_long_queue(desk: Desk) -> None:
    """A queue that is scanned blocks the server for everybody; here only the heads of four buckets are read."""
    master = await desk.env.master()
    worker = await desk.join("w", capabilities=("a", "b", "c"))
    requirements = ((), (("a",),), (("b",),), (("c",),))

    def tasks(first: int, count: int) -> list[Any]:
        return [task(f"t{n}", requirements[n % 4]) for n in range(first, first + count)]

    def spent_us() -> float:
        """Microseconds that the server itself has spent in scripts: it does not see how busy this machine is."""
        stats = desk.raw("INFO commandstats").decode()
        return float(stats.partition("cmdstat_evalsha:")[2].partition("usec=")[2].partition(",")[0])

    async def cost() -> float:
        costs = []
        for _ in range(25):
            before = spent_us()
            await worker.claim()
            costs.append(spent_us() - before)
        return sorted(costs)[len(costs) // 4]

    await master.enqueue(tasks(0, 100))
    short = await cost()
    await master.enqueue(tasks(100, 20_000))
    assert await cost() <= 3 * short
    await desk.env.aclose()


@clause("COORD-R05")
@pytest.mark.anyio
async def test_too_many_requirements_are_refused(desk: Desk) -> None:
    """Each one is a queue that every claim looks into."""
    master = await desk.env.master()
    with pytest.raises(TooManyRequirementsError, match="257"):
        await master.enqueue([task(f"t{n}", ((f"c{n}",),)) for n in range(257)])
    assert list(await master.enqueue([task("a")])) == [True]
    await desk.env.aclose()


@clause("COORD-R09", "COORD-R10")
@pytest.mark.anyio
async def test_waiters_survive_a_killed_subscription(desk: Desk) -> None:
    """A result that was stored while the subscriber was away is found by the read that follows every subscription."""
    master = await desk.env.master()
    worker = await desk.env.worker()
    waiters = [asyncio.ensure_future(worker.wait_for_signal(seen=Signal.RUNNING)) for _ in range(3)]
    await desk.env.waiting("wait_for_signal")
    waiters[0].cancel()
    desk.raw("CLIENT KILL TYPE pubsub")
    await master.send_signal(Signal.STOPPED)
    assert await asyncio.gather(*waiters[1:]) == [Signal.STOPPED] * 2
    await desk.env.aclose()


@clause("COORD-R11")
@pytest.mark.anyio
async def test_one_task_wakes_one_worker(desk: Desk) -> None:
    """A broadcast would make every idle worker ask: the herd costs more than the work."""
    master = await desk.env.master()
    workers = [await desk.join(f"w{n}") for n in range(5)]
    claims = [worker.start_claim() for worker in workers]
    while sum(coordinator.waiting["claim"] for coordinator in desk.env.made) < 5:  # noqa: ASYNC110 - bounded by the timeout of the test
        await asyncio.sleep(0.005)
    await master.enqueue([task("a")])
    await asyncio.wait(claims, return_when=asyncio.FIRST_COMPLETED)
    assert desk.raw(f"ZCARD {desk.key('idle')}").strip() == b":4"
    assert sum(claim.done() for claim in claims) == 1
    for claim in claims:
        claim.cancel()
    await asyncio.wait(claims)
    await desk.env.aclose()


@clause("COORD-R13")
@pytest.mark.anyio
async def test_a_large_enqueue_keeps_its_order(desk: Desk) -> None:
    """It goes in chunks, so that no script holds the server for long; the order is that of the call."""
    master = await desk.env.master()
    worker = await desk.join("w")
    assert all(await master.enqueue([task(f"t{n}") for n in range(1_201)]))
    assert [(await worker.claim()).task_id for _ in range(3)] == ["t0", "t1", "t2"]
    await desk.env.aclose()


@clause("COORD-R15")
@pytest.mark.anyio
async def test_keys_live_as_long_as_the_master_beats(desk: Desk) -> None:
    """A run that nobody leads leaves the server by itself; a long one loses nothing."""
    master = await desk.env.master(key_life_ms=400_000)
    worker = await desk.join("w")
    await master.enqueue([task("a"), task("b")])
    await worker.claim()
    for kind in ("meta", "payload", "index", "queue", "leases", "expiry", "workers", "alive", "feed"):
        assert int(desk.raw(f"PTTL {desk.key(kind)}").strip()[1:]) > 300_000, kind
    desk.raw(f"PEXPIRE {desk.key('payload')} 10000")
    await master.beat()
    assert int(desk.raw(f"PTTL {desk.key('payload')}").strip()[1:]) > 300_000
    with pytest.raises(RecordRefusedError, match="key"):
        await desk.env.master(key_life_ms=1_000, master_id="m-1")
    await desk.env.aclose()


@clause("COORD-R16")
@pytest.mark.anyio
async def test_an_evicted_run_is_not_half_made(desk: Desk) -> None:
    """A script that wrote into a run whose header is gone would make one that nobody can end."""
    await desk.env.master()
    worker = await desk.join("w")
    desk.raw(f"DEL {desk.key('meta')} {desk.key('workers')} {desk.key('alive')} {desk.key('fits')} {desk.key('feed')}")
    state = await worker.coordinator.run_state()
    assert state.state == "unknown"
    with pytest.raises(Exception, match="no run"):
        await worker.beat()
    assert desk.raw(f"EXISTS {desk.key('meta')} {desk.key('status')} {desk.key('alive')}").strip() == b":0"
    await desk.env.aclose()


@clause("COORD-R17")
@pytest.mark.anyio
async def test_another_server_process_lifts_the_epochs(redis_url: str) -> None:
    """A restart may have lost the last claims: no epoch below the next base is granted any more."""
    desk = Desk(redis_url)
    master = await desk.env.master()
    desk.raw(f"HSET {desk.key('meta')} server another-process")
    worker = await desk.join("w")
    await master.enqueue([task("a")])
    assert (await worker.claim()).epoch > 2**20
    assert await master.beat() == 1
    await desk.env.aclose()


@clause("COORD-R20", "COORD-R22", "COORD-R25")
@pytest.mark.anyio
async def test_an_unreachable_server_is_named_without_its_password() -> None:
    """The message is what an operator has: host, port, how long; never the secret."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    made = RedisCoordinators(f"redis://user:s3cret@127.0.0.1:{port}", lost_after_s=0.5)
    coordinator = await made.create_worker("r")
    with pytest.raises(CoordinatorLostError) as caught:
        await coordinator.run_state()
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    await coordinator.aclose()


@clause("COORD-R25")
def test_the_password_may_come_from_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Not everybody wants it on a command line, where other users see it."""
    file = tmp_path / "password"
    file.write_text("from-file\n", encoding="utf-8")
    monkeypatch.setenv("TOWLINE_REDIS_PASSWORD_FILE", str(file))
    assert RedisServer("redis://h").connection_options()["password"] == "from-file"
    monkeypatch.setenv("TOWLINE_REDIS_PASSWORD", "from-variable")
    assert RedisServer("redis://h").connection_options()["password"] == "from-variable"
    secure = RedisServer("rediss://h").connection_options()
    assert (secure["ssl_cert_reqs"], secure["ssl_check_hostname"]) == ("required", True)
    assert RedisServer("rediss://h?tls_insecure=1").connection_options()["ssl_cert_reqs"] == "none"


@clause("COORD-R26")
@pytest.mark.anyio
async def test_an_evicting_server_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """Evicted keys are lost work; the operator hears of it once, at the start."""
    with RedisTestServer(options={"maxmemory": "50mb", "maxmemory-policy": "allkeys-lru"}) as server:
        env = RedisEnv(server.url, "r")
        with caplog.at_level(logging.WARNING, "towline.coordination"):
            await env.master()
        await env.aclose()
    assert [record for record in caplog.records if "allkeys-lru" in record.getMessage()]


@clause("COORD-R21")
@pytest.mark.anyio
async def test_a_refusal_of_the_server_is_not_repeated(desk: Desk) -> None:
    """Trying again cannot help when a key has another type: the text of the server tells why."""
    await desk.env.master()
    desk.raw(f"SET {desk.key('workers')} nonsense")
    worker = await desk.env.worker()
    began = time.monotonic()
    with pytest.raises(Exception, match="WRONGTYPE"):
        await worker.register(registration_of(desk.env, "w"))
    assert time.monotonic() - began < 5
    await desk.env.aclose()


@clause("COORD-R22", "COORD-R23")
@pytest.mark.anyio
async def test_cancelled_calls_cross_no_replies(desk: Desk) -> None:
    """A reply that another call reads would give one worker another's task."""
    await desk.env.master()
    link = RedisLink(RedisServer(desk.url), desk.env.run_id)
    for turn in range(60):
        call = asyncio.ensure_future(link.call(ops.ReadRun()))
        for _ in range(turn % 7):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert (await link.call(ops.ReadRun())).state == "running"
        assert await link.call(ops.ReadWorkVersion()) == 0
    await link.aclose()
    await desk.env.aclose()


@clause("DIST-71", "DIST-72")
@pytest.mark.anyio
async def test_clean_up_leaves_other_runs_and_late_workers_alone(desk: Desk, redis_url: str) -> None:
    """A worker that comes too late is sent home, not left waiting; another run does not notice."""
    from towline.coordination.records import Closed, RunCleanupContext

    other = Desk(redis_url)
    kept = await other.env.master()
    await kept.enqueue([task("a")])
    master = await desk.env.master()
    await desk.join("w")
    await master.enqueue([task("a", (("x",),))])
    await master.complete()
    context = RunCleanupContext(run_id=desk.env.run_id, pipeline="p", outcome="succeeded", deadline_s=5.0)
    await master.clean_up_run(context)  # type: ignore[attr-defined]

    late = await desk.join("late")
    assert await late.ask() == Closed("completed")
    assert desk.raw(f"EXISTS {desk.key('queue')} {desk.key('payload')}").strip() == b":0"
    assert (await (await other.join("w")).claim()).task_id == "a"
    assert opening_of(desk.env.run_id, 1.0).run_id == desk.env.run_id
    await desk.env.aclose()
    await other.env.aclose()
