"""The Redis coordinator keeps the whole contract, on a single server and in a cluster."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from towline.testing import clause
from towline.testing.coordinator_contract import ContractCase, coordinator_cases
from towline.testing.coordinator_envs import RedisEnv

_numbers = itertools.count()


@clause("COORD-R03", "COORD-R06", "COORD-R08", "COORD-R12", "COORD-R14")
@pytest.mark.parametrize("case", coordinator_cases(), ids=str)
def test_redis_keeps_the_contract(case: ContractCase, redis_url: str) -> None:
    """The scripts restate the ledger; whatever a worker relies on must hold here as well."""
    asyncio.run(case.run(_env(case, redis_url)))


@pytest.mark.parametrize("case", coordinator_cases()[::3], ids=str)
def test_a_cluster_keeps_the_contract(case: ContractCase, cluster_url: str) -> None:
    """A cluster refuses scripts whose keys lie in several slots; every third case meets every script."""
    asyncio.run(case.run(_env(case, cluster_url)))


def _env(case: ContractCase, url: str) -> RedisEnv:
    # A long poll: what wakes a waiter is the notification. Only the look at a lost master is part of the poll.
    poll_s = 0.2 if case.clause == "COORD-C85" else 30.0
    return RedisEnv(url, f"run-{next(_numbers)}", poll_s=poll_s)
