"""The real transport through a relay that delays, stalls, corrupts and cuts: it ends, and no byte is wrong."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import numpy as np
import pytest
from clusters import QUICK
from offload_kernels import REGISTRY, increment, scale

from towline.offload import AgentOptions, CostAwarePolicy, OffloadOptions, Runtime, TcpTransport, WorkerAgent
from towline.testing import clause
from towline.testing.relay import Relay

pytestmark = pytest.mark.anyio
OPTIONS: dict[str, Any] = {
    **QUICK,
    "suspect_after_s": 0.4,
    "liveness_timeout_s": 0.8,
    "min_offload_bytes": 0,
    "shm": False,
}


async def run_through(relay_faults: dict[str, float], seed: int, *, stall: bool = False) -> tuple[Any, Any, Relay]:
    options = OffloadOptions(**OPTIONS, verify="full")
    async with (
        Runtime(kernels=REGISTRY, options=options) as runtime,
        runtime.cluster(TcpTransport.listen("127.0.0.1:0")) as cluster,
    ):
        relay = Relay(cluster.endpoint, seed)
        endpoint = await relay.start()
        agents = []
        for number in range(2):
            agent = WorkerAgent(
                TcpTransport.connect(endpoint),
                REGISTRY,
                name=f"w{number}",
                random=Random(number),
                options=AgentOptions(slots=2, shm=False, hello_retry_s=0.1, reconnect_s=0.02, reconnect_max_s=0.1),
            )
            agents.append(agent)
            await agent.start()
        await cluster.wait_for_workers(2, timeout_s=20)
        for name, value in relay_faults.items():
            setattr(relay, name, value)
        fields = [np.zeros(30_000), np.full(100, 3.0)]
        buffers = [runtime.buffer(field) for field in fields]
        graph = runtime.graph()
        for step in range(40):
            graph.add(increment, [buffers[step % 2]], [buffers[step % 2]])
        running = asyncio.ensure_future(graph.execute(timeout_s=60))
        if stall:
            dead = asyncio.Event()
            cluster.on_event(lambda event: dead.set() if event.kind == "worker_dead" else None)
            relay.open.clear()
            await asyncio.wait_for(dead.wait(), 10)
            relay.open.set()
        result = await running
        for agent in agents:
            await agent.stop()
        await relay.stop()
    return result, fields, relay


@pytest.mark.parametrize(
    ("faults", "stall"),
    [({"delay_s": 0.005}, False), ({"corrupt": 0.05}, False), ({"cut": 0.05}, False), ({}, True), ({"corrupt": 0.03, "cut": 0.03, "delay_s": 0.002}, False)],
    ids=["delay", "corruption", "cuts", "stall", "all"],
)  # fmt: skip
@clause("OFF-701", "OFF-610")
async def test_a_bad_network_changes_no_byte(faults: dict[str, float], stall: bool) -> None:
    """What the simulation promises holds on real sockets: completed, and equal to a run without faults."""
    result, fields, relay = await run_through(faults, 7, stall=stall)

    assert fields[0].tobytes() == np.full(30_000, 20.0).tobytes()
    assert fields[1].tobytes() == np.full(100, 23.0).tobytes()
    assert all(call.state == "succeeded" for call in result.calls)
    assert relay.harmed or not (faults.keys() & {"corrupt", "cut"})


@clause("OFF-407")
async def test_behind_a_slow_link_small_work_stays_here() -> None:
    """Twenty milliseconds each way are more than a small kernel takes: the cost-aware policy keeps it."""
    async with (
        Runtime(kernels=REGISTRY, options=OffloadOptions(**OPTIONS)) as runtime,
        runtime.cluster(TcpTransport.listen("127.0.0.1:0"), policy=CostAwarePolicy()) as cluster,
    ):
        relay = Relay(cluster.endpoint, 1)
        endpoint = await relay.start()
        relay.delay_s = 0.02
        agent = WorkerAgent(
            TcpTransport.connect(endpoint), REGISTRY, options=AgentOptions(shm=False, hello_retry_s=0.5)
        )
        await agent.start()
        await cluster.wait_for_workers(1, timeout_s=20)
        source, out = runtime.buffer(np.ones(2_000)), runtime.buffer(np.zeros(2_000))
        learn = runtime.graph()
        learn.add(scale, [source], [out], {"by": 2.0}, place="local")
        await learn.execute()
        probe = runtime.graph()
        probe.add(scale, [source], [out], {"by": 2.0}, place="remote")
        await probe.execute()
        graph = runtime.graph()
        for _ in range(5):
            graph.add(scale, [source], [out], {"by": 2.0})
        result = await graph.execute()
        await agent.stop()
        await relay.stop()

    assert result.declined == {"local_faster": 5}
