"""State on a real Redis: the contract kits, ownership as a lease, restarts, full memory, lost scripts."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from state.envs import PLAN_ID, StoreCursorEnv, open_files, record, snapshot
from towline.errors import OwnershipLostError, PlanOwnedError, StateLostError, StateUnsupportedError
from towline.errors.state import LeaseLostError, OwnerUnreadableError
from towline.state import ABSENT, ANYTHING, Entry, Fence
from towline.state.planfile import PlanFile
from towline.state.redis_ownership import Holder
from towline.state.redis_store import RedisStateStore
from towline.testing import clause
from towline.testing.cursor_contract import CursorEnv, cursor_cases
from towline.testing.redis_server import RedisTestServer
from towline.testing.store_contract import StoreEnv, an_owner, store_cases

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from towline.state.store import Ownership, StateStore
    from towline.testing.cases import Case

_number = itertools.count(1)


class RedisStoreEnv:
    """A pipeline of its own on a server; leases are short, so that a living owner is known soon."""

    def __init__(self, server: RedisTestServer) -> None:
        self.url, self.pipeline = server.url, f"p{next(_number)}"
        self._stores: list[RedisStateStore] = []

    async def store(self) -> StateStore:
        self._stores.append(RedisStateStore(self.url, self.pipeline, lease_s=2.0, retry_limit_s=5.0))
        return self._stores[-1]

    async def aclose(self) -> None:
        for store in self._stores:
            await store.close()


async def _run(case: Case[StoreEnv], env: RedisStoreEnv) -> None:
    try:
        await case.run(env)
    finally:
        await env.aclose()


@clause("STATE-01", "STATE-19")
@pytest.mark.parametrize("case", store_cases(), ids=str)
@pytest.mark.parametrize("kind", ["single", "cluster"])
def test_redis_keeps_the_contract(
    case: Case[StoreEnv], kind: str, redis_server: RedisTestServer, redis_cluster: RedisTestServer
) -> None:
    """What resumes from a folder resumes from a server."""
    asyncio.run(_run(case, RedisStoreEnv(redis_server if kind == "single" else redis_cluster)))


@clause("TEST-10")
@pytest.mark.parametrize("case", cursor_cases(), ids=str)
def test_cursors_keep_the_contract(case: Case[CursorEnv], redis_server: RedisTestServer) -> None:
    """A migration goes on at its item when its worker was another machine."""

    async def run() -> None:
        env = StoreCursorEnv(RedisStoreEnv(redis_server))  # type: ignore[arg-type]
        try:
            await case.run(env)
        finally:
            await env.aclose()

    asyncio.run(run())


async def _owned(env: RedisStoreEnv) -> tuple[RedisStateStore, Ownership, PlanFile]:
    store = await env.store()
    assert isinstance(store, RedisStateStore)
    ownership = await store.acquire(an_owner())
    plan = PlanFile(store, ownership)
    await plan.write_snapshot([snapshot()], generation=1, plan_id=PLAN_ID, owner_epoch=ownership.epoch)
    return store, ownership, plan


async def _append(plan: PlanFile, seq: int) -> None:
    waiting = plan.append([record(seq)])
    assert waiting is not None
    await waiting


@pytest.fixture
def server() -> Iterator[RedisTestServer]:
    """A server that a test may stop; it keeps its data."""
    with RedisTestServer(persistent=True) as running:
        yield running


@pytest.fixture
async def env(redis_server: RedisTestServer) -> AsyncIterator[RedisStoreEnv]:
    made = RedisStoreEnv(redis_server)
    yield made
    await made.aclose()


@pytest.fixture
async def own(server: RedisTestServer) -> AsyncIterator[RedisStoreEnv]:
    made = RedisStoreEnv(server)
    yield made
    await made.aclose()


@pytest.mark.anyio
@clause("STATE-19")
async def test_keys_carry_the_pipeline_and_values_are_what_was_given(env: RedisStoreEnv) -> None:
    """An operator finds the state of a pipeline by its name, and reads it with any client."""
    store, _, _ = await _owned(env)
    await store.write("cursors/a.json", b"\x00any bytes", ABSENT)

    keys = await store.calls.command("KEYS", f"towline:{{{env.pipeline}}}:*")

    assert f"towline:{{{env.pipeline}}}:plan.json".encode() in keys
    assert await store.calls.command("GET", f"towline:{{{env.pipeline}}}:cursors/a.json") == b"\x00any bytes"
    assert [key async for key in store.list("")] == ["cursors/a.json", "plan.journal", "plan.json"]


@pytest.mark.anyio
@clause("STATE-20", "STATE-21")
async def test_only_the_owner_runs_out(env: RedisStoreEnv) -> None:
    """A dead owner is forgotten after the worker timeout; what it wrote waits for a resume of days later."""
    store, _, plan = await _owned(env)
    await _append(plan, 1)
    await store.write("cursors/a.json", b"{}", ABSENT)

    lives = {name: await store.calls.command("PTTL", name) for name in await store.calls.command("KEYS", _all(env))}

    owner = store.keys.owner.encode()
    assert 0 < lives.pop(owner) <= 2000
    assert len(lives) == 5
    assert set(lives.values()) == {-1}


@pytest.mark.anyio
@clause("STATE-21")
async def test_with_a_life_everything_goes_together(env: RedisStoreEnv) -> None:
    """state_ttl_s bounds what an abandoned pipeline holds; no part may go before the rest."""
    env.url += "?state_ttl_s=100"
    store, _, plan = await _owned(env)
    await _append(plan, 1)
    await store.write("cursors/a.json", b"{}", ABSENT)
    await store.calls.command("PEXPIRE", store.keys.document("cursors/a.json"), 5_000)

    async def life(name: str) -> int:
        left: int = await store.calls.command("PTTL", name)
        return left

    async with asyncio.timeout(10):
        while await life(store.keys.document("cursors/a.json")) < 50_000:  # noqa: ASYNC110 - the server cannot tell
            await asyncio.sleep(0.05)  # the next renewal prolongs all
    names = (store.keys.epoch, store.keys.index, store.keys.document("plan.json"), store.keys.document("plan.journal"))
    assert all([50_000 < await life(name) <= 100_000 for name in names])


@pytest.mark.anyio
@clause("STATE-22")
@pytest.mark.parametrize(
    ("persistent", "option", "refused"), [(False, "", True), (False, "?assume_durable=1", False), (True, "", False)]
)
async def test_power_durability_needs_a_server_that_syncs(persistent: bool, option: str, refused: bool) -> None:
    """Who asks to survive a power cut must not find out afterwards that the server kept all in memory."""
    with RedisTestServer(persistent=persistent) as running:
        store = RedisStateStore(running.url + option, "p", durability="power")
        try:
            if refused:
                with pytest.raises(StateUnsupportedError, match="appendonly no"):
                    await store.acquire(an_owner())
            else:
                await store.acquire(an_owner())
        finally:
            await store.close()


@pytest.mark.anyio
@clause("STATE-22")
async def test_a_server_that_evicts_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """A plan that a cache policy throws away is a lost run."""
    with RedisTestServer(options={"maxmemory-policy": "allkeys-lru"}) as running:
        store = RedisStateStore(running.url, "p")
        await store.acquire(an_owner())
        await store.close()
    assert "may evict state (maxmemory-policy allkeys-lru)" in caplog.text


@pytest.mark.anyio
@clause("STATE-07", "STATE-11")
async def test_a_server_that_is_away_is_waited_for(own: RedisStoreEnv, server: RedisTestServer) -> None:
    """Stopped and started with its data: calls in between wait, and nothing is written twice."""
    store, _, plan = await _owned(own)
    await _append(plan, 1)
    server.stop()
    writing = [
        asyncio.ensure_future(_append(plan, 2)),
        asyncio.ensure_future(store.write("steps/a/b.json", b"1", ABSENT)),
    ]
    done, _ = await asyncio.wait(writing, timeout=0.3)
    assert not done

    server.start()

    await asyncio.gather(*writing)
    loaded = await PlanFile(await own.store()).load()
    assert [msgspec.json.decode(raw)["seq"] for raw in loaded.records] == [1, 2]


@pytest.mark.anyio
@clause("STATE-07")
async def test_a_server_that_stays_away_is_an_error_with_a_bound(own: RedisStoreEnv, server: RedisTestServer) -> None:
    """It names server, port and what was being done, and never the password."""
    store = RedisStateStore(f"redis://:hunter2@127.0.0.1:{server.port}", "p", retry_limit_s=0.3)
    server.stop()
    with pytest.raises(
        StateLostError, match=rf"reading plan.json in redis://127.0.0.1:{server.port}/0 \(p\)"
    ) as caught:
        await store.read("plan.json")
    assert "hunter2" not in str(caught.value)
    await store.close()


@pytest.mark.anyio
@clause("STATE-07")
async def test_a_write_whose_answer_was_lost_is_not_done_twice(env: RedisStoreEnv) -> None:
    """The connection breaks after the server has done it: the repetition finds its own bytes, and is a success."""
    store, ownership, plan = await _owned(env)
    calls = store.calls
    connections = calls._open()
    execute = connections.execute

    async def deaf(*parts: Any) -> Any:
        reply = await execute(*parts)
        if parts[0] == "EVALSHA":
            connections.execute = execute  # type: ignore[method-assign]
            raise ConnectionError("the answer was lost")
        return reply

    def lose_next_answer() -> None:
        connections.execute = deaf  # type: ignore[method-assign]

    await _append(plan, 1)
    lose_next_answer()
    await _append(plan, 2)
    lose_next_answer()
    version = await store.write("steps/a/b.json", b"1", ABSENT)
    await store.append("runs/r/log.txt", b"one\n", Fence(ownership.epoch))
    lose_next_answer()
    await store.append("runs/r/log.txt", b"two\n", Fence(ownership.epoch))

    loaded = await PlanFile(await env.store()).load()
    assert [msgspec.json.decode(raw)["seq"] for raw in loaded.records] == [1, 2]
    assert (await store.read("steps/a/b.json")) == Entry(b"1", version)
    log = await store.read("runs/r/log.txt")
    assert log is not None
    assert log.data == b"one\ntwo\n"


@pytest.mark.anyio
@clause("STATE-19")
async def test_lost_scripts_are_sent_again(env: RedisStoreEnv) -> None:
    """A restarted or flushed script cache costs one more message, no more."""
    store, _, plan = await _owned(env)
    await store.calls.command("SCRIPT", "FLUSH")
    await _append(plan, 1)
    await store.write("steps/a/b.json", b"1", ABSENT)


@pytest.mark.anyio
async def test_a_full_server_stops_the_writing_and_says_so() -> None:
    """What the server refuses is not tried again for ever: the plan on it stays as it was."""
    with RedisTestServer(options={"maxmemory": "3mb"}) as running:
        own = RedisStoreEnv(running)
        store, _, plan = await _owned(own)
        await store.calls.command("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StateLostError, match="maxmemory"):
            await _append(plan, 1)
        with pytest.raises(StateLostError):
            plan.append([record(2)])
        await own.aclose()


@pytest.mark.anyio
@clause("STATE-23")
async def test_a_server_that_lost_the_owner_is_not_written_anew(own: RedisStoreEnv, server: RedisTestServer) -> None:
    """An empty server under a living owner: it stops, for what it has in memory is not the plan."""
    store, ownership, plan = await _owned(own)
    server.stop()
    server.clear()
    server.start()

    with pytest.raises(StateLostError, match="came back without data"):
        await _append(plan, 1)
    with pytest.raises((StateLostError, OwnershipLostError)):
        await store.append("runs/r/log.txt", b"x\n", Fence(ownership.epoch))
    assert await store.read("plan.json") is None


@pytest.mark.anyio
@clause("STATE-23")
async def test_a_server_that_lost_a_tail_is_not_continued(env: RedisStoreEnv) -> None:
    """A fail-over may cut the last second off: the next record must not close the gap unseen."""
    store, _, plan = await _owned(env)
    await _append(plan, 1)
    await store.calls.command("SET", store.keys.document("plan.journal"), b"shorter\n")
    with pytest.raises(StateLostError, match="came back without data"):
        await _append(plan, 2)


@pytest.mark.anyio
@clause("STATE-10")
async def test_an_owner_that_cannot_renew_loses_the_plan_at_the_end_of_its_lease(
    own: RedisStoreEnv, server: RedisTestServer
) -> None:
    """Another machine may have taken over by then: whoever waits for the loss hears of it, and nothing is written."""
    _, ownership, plan = await _owned(own)
    losing = asyncio.ensure_future(ownership.wait_for_loss())
    server.stop()

    done, _ = await asyncio.wait([losing], timeout=10)

    assert done
    with pytest.raises(OwnershipLostError):
        plan.append([record(1)])
    server.start()


@pytest.mark.anyio
@clause("STATE-08", "DIST-51")
async def test_a_dead_owner_of_the_same_run_is_waited_for(env: RedisStoreEnv) -> None:
    """A master that is started again after kill -9 need not be started a third time: the lease runs out."""
    store = await env.store()
    assert isinstance(store, RedisStateStore)
    holder = Holder(id="m-1", host="build-4", pid=1, run_id="r-1", since="2026-03-01T10:00:00.000Z")
    await store.calls.command("SET", store.keys.owner, msgspec.json.encode(holder), "PX", 700)
    await store.calls.command("SET", store.keys.epoch, 7)

    ownership = await store.acquire(an_owner("m-2"))

    assert ownership.epoch == 8


@pytest.mark.anyio
@clause("STATE-08")
async def test_an_owner_of_another_run_is_refused_at_once(env: RedisStoreEnv) -> None:
    """It may live: nobody waits for a run that was not asked for."""
    store = await env.store()
    assert isinstance(store, RedisStateStore)
    holder = Holder(id="m-1", host="build-4", pid=1, run_id="r-other", since="2026-03-01T10:00:00.000Z")
    await store.calls.command("SET", store.keys.owner, msgspec.json.encode(holder), "PX", 60_000)

    with pytest.raises(PlanOwnedError, match=r"r-other.*build-4"):
        await store.acquire(an_owner("m-2"))


@pytest.mark.anyio
@clause("STATE-08")
@pytest.mark.parametrize("life", [(), ("PX", 60_000)], ids=["for ever", "for a minute"])
async def test_an_owner_that_cannot_be_read_is_named_with_the_way_out(
    env: RedisStoreEnv, life: tuple[str | int, ...]
) -> None:
    """It counts as living; but there is no run to wait for, and only an operator can tell that none lives."""
    store = await env.store()
    assert isinstance(store, RedisStateStore)
    await store.calls.command("SET", store.keys.owner, b"\xffgarbage", *life)

    with pytest.raises(OwnerUnreadableError) as refused:
        await store.acquire(an_owner("m-2"))

    assert store.keys.owner in str(refused.value)
    assert ("runs out in 60 s" if life else "never runs out") in str(refused.value)
    assert str(rebuilt(refused.value)) == str(refused.value)
    await store.calls.command("DEL", store.keys.owner)
    assert (await store.acquire(an_owner("m-2"))).epoch == 1


def rebuilt(error: OwnerUnreadableError) -> OwnerUnreadableError:
    """As it is rebuilt in another process: from its class and its arguments."""
    return type(error)(*error.args)


@pytest.mark.anyio
@clause("STATE-09")
async def test_a_lost_counter_does_not_lower_the_epoch(env: RedisStoreEnv) -> None:
    """The plan's own mention counts: a fence that began anew would let former owners in."""
    store = await env.store()
    assert isinstance(store, RedisStateStore)
    await store.calls.command("SET", store.keys.document("plan.json"), b'{"schema":1,"plan_id":"00000041-be27d441"}')
    assert (await store.acquire(an_owner())).epoch == 42


@pytest.mark.anyio
@clause("STATE-11")
async def test_a_closed_store_holds_no_connection(server: RedisTestServer) -> None:
    """Not one file of a closed store stays open, in any thread."""
    before = open_files()
    own = RedisStoreEnv(server)
    _, _, plan = await _owned(own)
    await _append(plan, 1)
    await own.aclose()
    await own.aclose()
    await asyncio.sleep(0)  # transports close at the next turn of the loop
    await asyncio.sleep(0)
    assert open_files() == before


@pytest.mark.anyio
@clause("DIST-34")
async def test_one_state_has_one_id_under_any_address(env: RedisStoreEnv) -> None:
    """A worker that reaches the server as localhost has the state of a master that says 127.0.0.1."""
    one = RedisStateStore(env.url, env.pipeline)
    other = RedisStateStore(env.url.replace("127.0.0.1", "localhost"), env.pipeline)
    another = RedisStateStore(env.url, env.pipeline + "x")
    assert await one.identity() == await other.identity() != await another.identity()
    for store in (one, other, another):
        await store.close()


@pytest.mark.anyio
@clause("STATE-12", "PLAN-37")
async def test_results_of_any_size_are_found_again(env: RedisStoreEnv) -> None:
    """Small ones lie in lines, large ones beside them, and larger than one message goes too."""
    _, ownership, plan = await _owned(env)
    datas = {f"t{n}": b'"%b"' % (bytes([97 + n % 26]) * size) for n, size in enumerate((10, 5_000, 40_000, 9_000_000))}
    places = {task: plan.results.append(task, data) for task, data in datas.items()}
    await _append(plan, 1)

    reader = PlanFile(await env.store())
    for task, data in datas.items():
        assert await reader.results.read(task, places[task]) == data
    assert await reader.results.missing(places.items()) == []

    moved = await plan.results.compact([("t1", places["t1"])], force=True)
    place = plan.results.append("t9", b'"later"')
    await _append(plan, 2)
    assert await reader.results.read("t1", moved["t1"]) == datas["t1"]
    assert await reader.results.read("t9", place) == b'"later"'
    assert await reader.results.missing([("t3", places["t3"])]) == ["t3"]
    assert ownership.epoch == 1


def _all(env: RedisStoreEnv) -> str:
    return f"towline:{{{env.pipeline}}}:*"


@pytest.mark.anyio
@clause("STATE-03", "CUR-05")
async def test_a_claim_that_comes_between_look_and_write_wins(
    env: RedisStoreEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence is judged here and held there: a cursor that changed meanwhile is judged again before anything is written."""
    store, other = await env.store(), await env.store()
    assert isinstance(store, RedisStateStore)
    await other.write("cursors/a.json", b'{"plan_id":"00000001-aa","epoch":3}', ABSENT)
    look = store._mark

    async def look_then_lose(fence: Fence | None) -> tuple[str, str]:
        seen = await look(fence)
        monkeypatch.setattr(store, "_mark", look)
        await other.write("cursors/a.json", b'{"plan_id":"00000001-aa","epoch":4}', ANYTHING)
        return seen

    monkeypatch.setattr(store, "_mark", look_then_lose)

    with pytest.raises(LeaseLostError):
        await store.append("cursors/a.skips.jsonl", b"{}\n", Fence(3, "a", "00000001-aa"))

    assert await other.read("cursors/a.skips.jsonl") is None
