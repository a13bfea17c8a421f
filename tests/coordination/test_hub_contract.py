"""Workers over the hub's link keep the whole contract, whatever carries it."""

from __future__ import annotations

import asyncio

import pytest

from towline.testing import clause, run_virtual
from towline.testing.coordinator_contract import ContractCase, coordinator_cases
from towline.testing.coordinator_envs import HubEnv


def _poll_s(case: ContractCase) -> float:
    # A long poll: what wakes a waiter is the notification. Only the look at a lost master is part of the poll.
    return 0.2 if case.clause == "COORD-C85" else 1_000.0


@pytest.mark.parametrize("case", coordinator_cases(), ids=str)
def test_the_hub_keeps_the_contract_in_virtual_time(case: ContractCase) -> None:
    """Every interleaving here replays; the protocol is the same as on a socket."""
    run_virtual(case.run(HubEnv("pipe", poll_s=_poll_s(case))))


@pytest.mark.parametrize("case", coordinator_cases(), ids=str)
def test_the_hub_keeps_the_contract_over_a_socket(case: ContractCase) -> None:
    """Whatever a worker relies on must hold over a connection as it does in one process."""
    asyncio.run(case.run(HubEnv("socket", poll_s=_poll_s(case))))


@clause("DIST-21")
@pytest.mark.parametrize("case", coordinator_cases(), ids=str)
def test_the_hub_keeps_the_contract_from_a_thread(case: ContractCase) -> None:
    """Worker processes have their line on a thread of its own: cancelling and closing cross two loops."""
    asyncio.run(case.run(HubEnv("thread", poll_s=_poll_s(case))))
