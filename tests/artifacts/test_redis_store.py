"""The artifact store on a real Redis: the contract, generations, life, limits."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from towline.access.redis_calls import RedisCalls
from towline.access.redis_keys import PipelineKeys
from towline.access.redis_server import RedisServer
from towline.artifacts.redis_store import CHUNK_BYTES, RedisArtifactStore
from towline.errors import ArtifactCorruptError, ArtifactMissingError, ArtifactTooLargeError
from towline.identity import digest_of
from towline.testing import clause
from towline.testing.artifact_contract import ArtifactStoreCase, artifact_store_cases
from towline.testing.redis_server import RedisTestServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.anyio

_number = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisTestServer]:
    with RedisTestServer() as running:
        yield running


@pytest.fixture
async def calls(server: RedisTestServer) -> AsyncIterator[RedisCalls]:
    made = RedisCalls(RedisServer(server.url), retry_limit_s=5.0)
    yield made
    await made.close()


@pytest.fixture
def keys() -> PipelineKeys:
    """Of a pipeline that no other test has."""
    return PipelineKeys(f"artifacts{next(_number)}")


async def _bytes_of(store: RedisArtifactStore, digest: str) -> bytes:
    return b"".join([chunk async for chunk in store.open(digest)])


async def _names(calls: RedisCalls, keys: PipelineKeys) -> list[bytes]:
    found: list[bytes] = await calls.command("KEYS", keys.base.replace("[", "\\[") + "*")
    return sorted(found)


@clause("ART-15")
@pytest.mark.parametrize("case", artifact_store_cases(), ids=str)
async def test_the_redis_store_keeps_the_contract(
    case: ArtifactStoreCase, calls: RedisCalls, keys: PipelineKeys
) -> None:
    """One contract for every back end: what works on a laptop works on a fleet."""
    await case.run(RedisArtifactStore(calls, keys))


@clause("ART-15")
async def test_large_bytes_go_in_pieces(calls: RedisCalls, keys: PipelineKeys) -> None:
    """No single command blocks the server for long; the pieces come back in order."""
    store = RedisArtifactStore(calls, keys)
    data = bytes(range(256)) * (2 * CHUNK_BYTES // 256) + b"end"

    stored = await store.put([data])

    assert stored.digest == digest_of(data)
    assert await _bytes_of(store, stored.digest) == data
    assert len([name for name in await _names(calls, keys) if b"~chunk/" in name]) == 3


@clause("ART-15")
async def test_what_lost_a_piece_is_not_handed_out(calls: RedisCalls, keys: PipelineKeys) -> None:
    """An evicting server takes single keys: half an artifact must never look like a whole one, and can be stored anew."""
    store = RedisArtifactStore(calls, keys)
    digest = (await store.put([bytes(CHUNK_BYTES), b"end"])).digest
    lost = next(name for name in await _names(calls, keys) if name.endswith(b"/1"))
    await calls.command("DEL", lost)

    assert not await store.exists(digest)
    with pytest.raises(ArtifactCorruptError, match="chunk 1 of 2 is gone"):
        await _bytes_of(store, digest)

    assert (await store.put([bytes(CHUNK_BYTES), b"end"])).digest == digest
    assert await _bytes_of(store, digest) == bytes(CHUNK_BYTES) + b"end"


@clause("ART-15")
async def test_above_the_limit_nothing_stays(calls: RedisCalls, keys: PipelineKeys) -> None:
    """A server's memory is everybody's: the producer fails with the limit, and leaves no litter."""
    store = RedisArtifactStore(calls, keys, limit_bytes=CHUNK_BYTES)

    with pytest.raises(ArtifactTooLargeError, match="4,194,304 bytes"):
        await store.put([bytes(CHUNK_BYTES), b"one more"], run_id="r-1")

    assert await _names(calls, keys) == []


@clause("ART-15")
async def test_all_of_it_lives_as_long_and_use_prolongs_it(calls: RedisCalls, keys: PipelineKeys) -> None:
    """What no run uses any more goes by itself, record and chunks together; what is used stays."""
    store = RedisArtifactStore(calls, keys, life_s=1000.0)
    digest = (await store.put([b"data"], run_id="r-1")).digest
    names = await _names(calls, keys)
    assert len(names) == 3
    for name in names:
        assert 0 < await calls.command("PTTL", name) <= 1_000_000
        await calls.command("PEXPIRE", name, 10_000)

    await _bytes_of(store, digest)

    lives = [await calls.command("PTTL", name) for name in names if b"~run/" not in name]
    assert all(life > 900_000 for life in lives)
    await calls.command("DEL", *names)
    with pytest.raises(ArtifactMissingError, match=r"does not have it \(any more\)"):
        await _bytes_of(store, digest)
