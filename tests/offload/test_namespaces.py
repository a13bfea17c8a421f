"""Master and worker in two network namespaces: no common loopback, a token, a network in between that misbehaves."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pytest
import real_workers
from offload_kernels import REGISTRY, increment, scale

from towline.offload import CostAwarePolicy, OffloadAccess, OffloadOptions, Runtime, TcpTransport
from towline.testing import clause
from towline.testing.relay import Relay

TOKEN = "between-two-namespaces"
OPTIONS = OffloadOptions(min_offload_bytes=0, suspect_after_s=0.5, liveness_timeout_s=1.5, heartbeat_interval_s=0.2)


INSIDE = "TOWLINE_TEST_INSIDE_NAMESPACE"
MEANS = "Install iproute2 and util-linux, and run as root or where unprivileged user namespaces are allowed."


class Namespace(NamedTuple):
    """What starts a program on the worker's side, and the master's address on the wire between both."""

    prefix: tuple[str, ...]
    address: str


def run(*words: str) -> None:
    """Run a tool of the system; whoever lacks it, or the right to use it, is told what to do."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(words)} failed: {done.stderr.strip()}. {MEANS}")


@contextmanager
def second_namespace() -> Iterator[Namespace]:
    """A second network namespace, held by a process in it, joined to this one by a pair of virtual interfaces."""
    number = os.getpid() % 250
    near, far = f"tl{number}a", f"tl{number}b"
    # It says a word when it is inside; it ends with its standard input, so also when this process is killed.
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo inside; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != "inside\n":
            pytest.fail(f"unshare --net made no network namespace. {MEANS}")
        there = ("nsenter", f"--net=/proc/{holder.pid}/ns/net")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", str(holder.pid))
        run("ip", "addr", "add", f"10.213.{number}.1/30", "dev", near)
        run("ip", "link", "set", near, "up")
        run(*there, "ip", "addr", "add", f"10.213.{number}.2/30", "dev", far)
        run(*there, "ip", "link", "set", far, "up")
        yield Namespace(there, f"10.213.{number}.1")
    finally:
        holder.kill()  # its namespace goes with it, and with that the pair of interfaces
        holder.communicate(timeout=20)


@clause("OFF-407", "OFF-701", "OFF-707", "OFF-801")
def test_two_namespaces_with_delay_and_a_stall() -> None:
    """Completes, with the bytes of numpy, though the wire stalls until the worker is given up; small work stays here.

    A missing service fails the tests, it never skips them: without root this test runs itself in a user namespace.
    """
    missing = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        pytest.fail(f"{', '.join(missing)} cannot be found. {MEANS}")
    if os.geteuid() == 0:
        with second_namespace() as namespace:
            asyncio.run(delay_and_stall(namespace))
        return
    assert INSIDE not in os.environ, "a user namespace that maps its user to root did not make it root"
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, f"{__file__}::test_two_namespaces_with_delay_and_a_stall"], env={**os.environ, INSIDE: "1"},
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.fail(f"in a user namespace: {done.stdout[-3000:]}{done.stderr[-1000:]}\n{MEANS}")


async def delay_and_stall(namespace: Namespace) -> None:
    """Thirty calls over a wire of 10 ms that stands still until the worker is dead; then a small call."""
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
        worker = real_workers.start(endpoint, "far", prefix=namespace.prefix, TOWLINE_TOKEN=TOKEN)
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
