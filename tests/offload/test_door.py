"""What a pipeline's body gets as ``ctx.offload`` (section 7.9)."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from clusters import QUICK
from offload_kernels import REGISTRY, scale

from towline.errors import OffloadUnavailableError
from towline.errors.coordination import LeaseLostError
from towline.offload import (
    AgentOptions,
    OffloadAccess,
    OffloadDoor,
    OffloadOptions,
    PipelineOffload,
    TcpTransport,
    WorkerAgent,
)
from towline.testing import clause

pytestmark = pytest.mark.anyio
OPTIONS = OffloadOptions(min_offload_bytes=0, **QUICK)
TOKEN = "a-token-of-the-run-itself"


async def agent(**options: Any) -> WorkerAgent:
    made = WorkerAgent(
        TcpTransport.listen("127.0.0.1:0"),
        REGISTRY,
        options=AgentOptions(hello_retry_s=0.1),
        access=OffloadAccess(token=TOKEN),
        **options,
    )
    await made.start()
    return made


def door(endpoint: str, **options: Any) -> PipelineOffload:
    return PipelineOffload(
        endpoints=[endpoint], kernels=REGISTRY, options=OPTIONS, access=OffloadAccess(token=TOKEN), **options
    )


async def run_once(offload: OffloadDoor) -> Any:
    out = np.zeros(9_000)
    graph = offload.graph("body")
    graph.add(scale, [offload.buffer(np.ones(9_000))], [offload.buffer(out)], {"by": 2.0})
    result = await graph.execute()
    assert out[0] == 2
    return result


async def repeat(offload: OffloadDoor) -> None:
    for _ in range(200):
        await run_once(offload)


@clause("OFF-901", "OFF-902", "OFF-903", "OFF-909", "OFF-910")
async def test_a_body_uses_the_agents_of_the_other_nodes() -> None:
    """The module sees buffers and graphs; endpoints and token come from the run, events go back to it."""
    worker = await agent()
    kinds: list[str] = []
    offload = door(worker.endpoint, on_event=lambda event: kinds.append(event.kind))
    await offload.open()
    try:
        await offload.wait_for_workers(1, timeout_s=20)
        result = await run_once(offload)
    finally:
        await offload.close()
        await worker.stop()

    assert result.offloaded == 1
    assert "call_committed" in kinds
    assert TOKEN not in repr(vars(offload)["_cluster"]._access)


@clause("OFF-902", "OFF-903")
async def test_without_other_nodes_all_is_local(caplog: pytest.LogCaptureFixture) -> None:
    """One node, a switched-off setting, or an agent that is gone cost nothing but speed, and one log line."""
    lonely = PipelineOffload()
    off = PipelineOffload(endpoints=["127.0.0.1:1"], options=OffloadOptions(enabled=False))
    with caplog.at_level(logging.WARNING, "towline.offload"):
        gone = PipelineOffload(endpoints=["127.0.0.1:1"], options=OPTIONS)
        for offload in (lonely, off, gone):
            await offload.open()
            assert (await run_once(offload)).offloaded == 0
        with pytest.raises(OffloadUnavailableError):
            await gone.wait_for_workers(1, timeout_s=0.2)
        for offload in (lonely, off, gone):
            await offload.close()
            await offload.close()

    assert sum("cannot be reached" in record.message for record in caplog.records) == 1


@clause("OFF-905")
async def test_an_agent_of_another_program_is_refused() -> None:
    """Kernels are part of the program: another build of it must not answer for this one."""
    worker = await agent(program="sha256:other")
    offload = door(worker.endpoint, program="sha256:mine")
    events: list[Any] = []
    offload._cluster.on_event(events.append)
    await offload.open()
    try:
        with pytest.raises(OffloadUnavailableError):
            await offload.wait_for_workers(1, timeout_s=0.4)
    finally:
        await offload.close()
        await worker.stop()

    assert any(event.detail.get("reason") == "program_mismatch" for event in events)


@clause("OFF-906", "OFF-907")
async def test_an_older_claim_of_the_task_is_fenced_out() -> None:
    """A node that lost its lease and does not know it yet must not go on with the agents of the run."""
    worker = await agent()
    old, new = door(worker.endpoint, task="solve", epoch=3), door(worker.endpoint, task="solve", epoch=4)
    await old.open()
    await old.wait_for_workers(1, timeout_s=20)
    await new.open()
    try:
        await new.wait_for_workers(1, timeout_s=20)
        with pytest.raises(LeaseLostError, match="epoch 3"):
            await repeat(old)
        assert (await run_once(new)).offloaded == 1
    finally:
        await old.close()
        await new.close()
        await worker.stop()
