"""The Lua scripts are the ledger: the same operations at the same times give the same replies."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import hiredis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from towline.access.redis_server import RedisServer
from towline.coordination import operations as ops
from towline.coordination.records import Lease, SessionRef
from towline.coordination.redis import replies
from towline.coordination.redis.link import RedisLink
from towline.errors.coordination import CoordinationError
from towline.testing import clause
from towline.testing.ledger_model import CHOICE_LIMIT, LedgerDriver, refusal_of

if TYPE_CHECKING:
    from collections.abc import Iterator

numbers = st.integers(0, CHOICE_LIMIT)
choices = st.lists(st.tuples(numbers, numbers, numbers), min_size=20, max_size=60)
claims_and_tasks = st.lists(
    st.tuples(st.sampled_from((1, 2, 4, 8, 5, 9, 12)), numbers, numbers), min_size=30, max_size=60
)
# The run is opened, three workers register, and all three find nothing: what follows has somebody to serve.
WORKERS_WAIT = [(1, 1, 1), *((8, number, 1) for number in range(3)), *((1, number, 2) for number in range(1, 4))]

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


def _parts(message: bytes) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(message)
    parts: list[bytes] = reader.gets()
    return parts


class _Listener:
    """Hears the wake-ups of the driver's workers, as their own coordinators would; its messages are in order."""

    def __init__(self, url: str, run_id: str) -> None:
        self._client = Redis.from_url(url)
        self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._base = f"towline:run:{{{run_id}}}:"
        self._pubsub.subscribe(f"{self._base}fence", *(f"{self._base}wake:w{number}" for number in range(3)))

    def granted(self) -> Iterator[tuple[str, bytes]]:
        """Give what was granted until now: worker, and the message."""
        self._client.publish(f"{self._base}fence", "")
        while True:
            message = self._pubsub.get_message(timeout=5.0)
            if message is None:
                continue  # the confirmation of a subscription
            channel = message["channel"].decode().removeprefix(self._base)
            if channel == "fence":
                return
            if message["data"]:
                yield channel.removeprefix("wake:"), message["data"]

    def close(self) -> None:
        self._pubsub.close()
        self._client.close()


async def _compare_served(url: str, steps: list[tuple[int, int, int]]) -> int:
    driver = LedgerDriver(f"served-{next(_runs)}")
    link = RedisLink(RedisServer(url), driver.run_id, time=lambda: str(driver.now_ms))
    listener = _Listener(url, driver.run_id)
    count = 0
    try:
        for choice in steps:
            operation = driver.next_operation(choice)
            expected = driver.apply(operation)
            assert await _answer(link, operation) == expected, operation
            for worker_id, message in listener.granted():
                session, token = (part.decode() for part in _parts(message)[:2])
                worker = SessionRef(worker_id, session)
                lease = replies.granted(message, worker, token)
                assert lease == driver.apply(ops.Claim(worker=worker, token=token)), operation
                assert isinstance(lease, Lease)
                assert not lease.assignment.at_most_once
                assert replies.granted(message, worker, "of another claim") is None
                count += 1
        for operation in driver.closing_reads():
            assert await _answer(link, operation) == driver.apply(operation), operation
    finally:
        listener.close()
        await link.aclose()
    return count


@clause("COORD-R11")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=claims_and_tasks)
def test_what_is_granted_with_a_wake_up_is_a_claim_of_the_ledger(
    redis_url: str, steps: list[tuple[int, int, int]]
) -> None:
    """An enqueue that serves idle workers does what their claims would do next: same order, epochs, feed and repetition."""
    asyncio.run(_compare_served(redis_url, WORKERS_WAIT + steps))


@clause("COORD-R03", "COORD-R04", "COORD-R07", "COORD-R08", "COORD-R12")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=choices)
def test_scripts_answer_as_the_ledger(redis_url: str, steps: list[tuple[int, int, int]]) -> None:
    """Two statements of one logic drift apart unless something compares every reply."""
    asyncio.run(_compare(redis_url, steps))
