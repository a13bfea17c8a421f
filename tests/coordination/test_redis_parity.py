"""The Lua scripts are the ledger: the same operations at the same times give the same replies."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from towline.access.redis_server import RedisServer
from towline.coordination import operations as ops
from towline.coordination.redis.link import RedisLink
from towline.errors.coordination import CoordinationError
from towline.testing import clause
from towline.testing.ledger_model import CHOICE_LIMIT, LedgerDriver, refusal_of

numbers = st.integers(0, CHOICE_LIMIT)
choices = st.lists(st.tuples(numbers, numbers, numbers), min_size=20, max_size=60)
_runs = itertools.count()


async def _answer(link: RedisLink, operation: ops.Operation[Any]) -> object:
    try:
        return await link.call(operation)
    except CoordinationError as error:
        return refusal_of(error)


async def _compare(url: str, steps: list[tuple[int, int, int]]) -> None:
    driver = LedgerDriver(f"parity-{next(_runs)}")
    link = RedisLink(RedisServer(url), driver.run_id, time=lambda: str(driver.now_ms))
    try:
        for choice in steps:
            operation = driver.next_operation(choice)
            expected = driver.apply(operation)
            assert await _answer(link, operation) == expected, operation
        for operation in driver.closing_reads():
            assert await _answer(link, operation) == driver.apply(operation), operation
    finally:
        await link.aclose()


@clause("COORD-R03", "COORD-R04", "COORD-R07", "COORD-R08", "COORD-R12")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=choices)
def test_scripts_answer_as_the_ledger(redis_url: str, steps: list[tuple[int, int, int]]) -> None:
    """Two statements of one logic drift apart unless something compares every reply."""
    asyncio.run(_compare(redis_url, steps))
