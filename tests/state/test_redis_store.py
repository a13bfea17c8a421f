"""State on a real Redis: the contract kits, ownership as a lease, restarts, full memory, lost scripts."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest

from state.envs import StoreCursorEnv
from towline.state.redis_store import RedisStateStore
from towline.testing import clause
from towline.testing.cursor_contract import CursorEnv, cursor_cases
from towline.testing.store_contract import StoreEnv, store_cases

if TYPE_CHECKING:
    from towline.state.store import StateStore
    from towline.testing.cases import Case
    from towline.testing.redis_server import RedisTestServer

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
