"""A node that is given a lease: whatever comes next, the lease has an end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from towline.clock import SystemClock
from towline.coordination.records import Lease
from towline.pipeline.worker_node import WorkerNode
from towline.testing import clause
from towline.testing.contract_cases.scene import task

if TYPE_CHECKING:
    from towline.coordination.records import OutcomeRecord


pytestmark = pytest.mark.virtual_time


@clause("DIST-23")
async def test_a_task_that_is_stopped_as_it_comes_has_an_end() -> None:
    """The run ends while a lease is on its way: without an outcome its worker, and the master, would wait for ever."""
    facts: Any = SimpleNamespace(
        clock=SystemClock(),
        worker_id="w",
    )
    node = object.__new__(WorkerNode)  # of its parts, none is reached before the first turn of the task
    vars(node).update(
        _facts=facts,
        _clock=facts.clock,
        _loop=asyncio.get_running_loop(),
        _node=SimpleNamespace(runs={}),
        _leases={},
        _starting={},
        _stops={},
    )
    lease = Lease(
        task_id="a", epoch=1, worker_id="w", session="s", assignment=task("a"), claimed_at="", expires_in_ms=1_000
    )
    ended: list[OutcomeRecord] = []

    node.start(lease, ended.append)
    node.stop(lease, "stopped")
    await asyncio.sleep(0.1)

    assert [(one.state, one.reason) for one in ended] == [("cancelled", "stopped")]
