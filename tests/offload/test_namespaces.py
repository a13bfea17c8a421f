"""Master and worker in two network namespaces: no common loopback, a token, a network in between that misbehaves."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
import real_workers
from offload_kernels import REGISTRY, increment, scale

from towline.offload import CostAwarePolicy, OffloadAccess, OffloadOptions, Runtime, TcpTransport
from towline.testing import clause
from towline.testing.relay import Relay

pytestmark = pytest.mark.anyio
TOKEN = "between-two-namespaces"
OPTIONS = OffloadOptions(min_offload_bytes=0, suspect_after_s=0.5, liveness_timeout_s=1.5, heartbeat_interval_s=0.2)


class Namespace(NamedTuple):
    """The worker's side, and the master's address on the wire between both."""

    name: str
    address: str


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """A second namespace, joined to this one by a pair of virtual interfaces."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    number = os.getpid() % 250
    name, near, far = f"towline{number}", f"tl{number}a", f"tl{number}b"
    try:
        ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this kernel makes no network namespaces: {error.stderr.decode().strip()}")
    try:
        ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        ip("addr", "add", f"10.213.{number}.1/30", "dev", near)
        ip("link", "set", near, "up")
        ip("-n", name, "addr", "add", f"10.213.{number}.2/30", "dev", far)
        ip("-n", name, "link", "set", far, "up")
        yield Namespace(name, f"10.213.{number}.1")
    finally:
        ip("netns", "del", name)


@clause("OFF-407", "OFF-701", "OFF-707", "OFF-801")
async def test_two_namespaces_with_delay_and_a_stall(namespace: Namespace) -> None:
    """Completes, with the bytes of numpy, though the wire stalls until the worker is given up; small work stays here."""
    access = OffloadAccess(token=TOKEN)
    async with (
        Runtime(kernels=REGISTRY, options=OPTIONS) as runtime,
        runtime.cluster(TcpTransport.listen("127.0.0.1:0"), access=access, policy=CostAwarePolicy()) as cluster,
    ):
        relay = Relay(cluster.endpoint, 1)
        endpoint = await relay.start(namespace.address)
        relay.delay_s = 0.01
        dead = asyncio.Event()
        cluster.on_event(lambda event: dead.set() if event.kind == "worker_dead" else None)
        worker = real_workers.start(
            endpoint, "far", prefix=("ip", "netns", "exec", namespace.name), TOWLINE_TOKEN=TOKEN
        )
        try:
            await cluster.wait_for_workers(1, timeout_s=60)
            field, small = np.zeros(30_000), np.zeros(100)
            buffer = runtime.buffer(field)
            graph = runtime.graph()
            for _ in range(30):
                graph.add(increment, [buffer], [buffer], place="remote")
            running = asyncio.ensure_future(graph.execute(timeout_s=120))
            relay.open.clear()
            await asyncio.wait_for(dead.wait(), 30)
            relay.open.set()
            far = await running

            learn, auto = runtime.graph(), runtime.graph()
            learn.add(scale, [runtime.buffer(np.ones(100))], [runtime.buffer(small)], {"by": 2.0}, place="local")
            await learn.execute()
            auto.add(scale, [runtime.buffer(np.ones(100))], [runtime.buffer(small)], {"by": 3.0})
            near = await auto.execute()
        finally:
            worker.kill()
            worker.communicate(timeout=20)
            await relay.stop()

    assert far.offloaded == 30
    assert field.tobytes() == np.full(30_000, 30.0).tobytes()
    assert near.declined == {"local_faster": 1}
    assert small.tobytes() == np.full(100, 3.0).tobytes()
