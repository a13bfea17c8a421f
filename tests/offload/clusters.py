"""Real clusters in one process, over each transport, for tests that must pass on all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from offload_kernels import REGISTRY

from towline.offload import (
    AgentOptions,
    Cluster,
    InProcessFabric,
    KernelRegistry,
    OffloadAccess,
    OffloadOptions,
    OffloadPolicy,
    Runtime,
    TcpTransport,
    WorkerAgent,
)

TRANSPORTS = ("in-process", "tcp", "shared memory")
QUICK = {
    "heartbeat_interval_s": 0.05, "suspect_after_s": 1.5, "liveness_timeout_s": 4.0, "hello_retry_s": 0.1, "reconnect_s": 0.02,
    "result_resend_s": 0.5, "local_slots": 2,
}  # fmt: skip


class Together:
    """A runtime, its cluster and its agents."""

    def __init__(self, runtime: Runtime, cluster: Cluster, agents: list[WorkerAgent], shared: bool) -> None:
        self.runtime, self.cluster, self.agents, self.shared = runtime, cluster, agents, shared

    def buffer(self, source: Any, **options: Any) -> Any:
        return self.runtime.buffer(source, shared=self.shared, **options)


@asynccontextmanager
async def together(
    transport: str,
    *,
    workers: int = 1,
    registry: KernelRegistry = REGISTRY,
    theirs: KernelRegistry | None = None,
    access: OffloadAccess | None = None,
    policy: OffloadPolicy | None = None,
    wait: bool = True,
    slots: int = 2,
    **options: Any,
) -> AsyncIterator[Together]:
    """Enter a cluster with so many agents, all in this process."""
    settings = OffloadOptions(
        **{"min_offload_bytes": 0, "verify": "full", "shm": transport == "shared memory", **QUICK, **options}
    )
    agent_options = AgentOptions(slots=slots, shm=transport == "shared memory", hello_retry_s=0.1, reconnect_s=0.02)
    fabric = InProcessFabric(Random(1))
    listener = fabric.master() if transport == "in-process" else TcpTransport.listen("127.0.0.1:0")
    async with (
        Runtime(kernels=registry, options=settings, random=Random(2)) as runtime,
        runtime.cluster(listener, access=access, policy=policy) as cluster,
    ):
        agents = []
        for number in range(workers):
            name = f"w{number}"
            link = fabric.worker(name) if transport == "in-process" else TcpTransport.connect(cluster.endpoint)
            agent = WorkerAgent(
                link, theirs or registry, options=agent_options, access=access, name=name, random=Random(number)
            )
            agents.append(agent)
            await agent.start()
        try:
            if wait:
                await cluster.wait_for_workers(workers, timeout_s=20)
            yield Together(runtime, cluster, agents, transport == "shared memory")
        finally:
            for agent in agents:
                await agent.stop()
