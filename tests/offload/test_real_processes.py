"""Real workers, really killed, stopped and started again; kernel processes that die or do not end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import QUICK, together
from offload_kernels import REGISTRY, add, die, forever, increment, polite, where
from real_workers import KERNELS, environment, start, workers

from towline.errors import GraphFailedError, KernelCrashedError, KernelTimeoutError
from towline.offload import OffloadOptions, Runtime, TcpTransport
from towline.testing import clause

pytestmark = pytest.mark.anyio
OPTIONS: dict[str, Any] = {**QUICK, "suspect_after_s": 0.5, "liveness_timeout_s": 1.0, "min_offload_bytes": 0}


@clause("OFF-604", "OFF-507", "OFF-609")
async def test_workers_lost_in_the_middle_change_no_byte() -> None:
    """One worker is stopped, one killed and started again under its name, while three step two fields."""
    options = OffloadOptions(**OPTIONS, verify="full")
    async with (
        Runtime(kernels=REGISTRY, options=options) as runtime,
        runtime.cluster(TcpTransport.listen("127.0.0.1:0")) as cluster,
    ):
        with workers(cluster.endpoint, 3) as processes:
            await cluster.wait_for_workers(3, timeout_s=40)
            fields = [runtime.buffer(np.zeros(40_000)), runtime.zeros(40_000, float)]
            graph = runtime.graph()
            for step in range(80):
                graph.add(increment, [fields[step % 2]], [fields[step % 2]])
            committed = 0

            def watch(event: Any) -> None:
                nonlocal committed
                if event.kind != "call_committed":
                    return
                committed += 1
                if committed == 15:
                    processes[0].send_signal(signal.SIGSTOP)
                elif committed == 30:
                    processes[1].kill()
                    processes.append(start(cluster.endpoint, "w1"))

            cluster.on_event(watch)
            result = await graph.execute(timeout_s=60)
            processes[0].send_signal(signal.SIGCONT)

    assert committed >= 30
    assert fields[0].array.tobytes() == fields[1].array.tobytes() == np.full(40_000, 40.0).tobytes()
    assert all(call.state == "succeeded" for call in result.calls)


@clause("OFF-111", "OFF-616")
async def test_a_kernel_that_crashes_never_runs_in_the_masters_process() -> None:
    """Its process dies each time; the master, its arrays and the agent are untouched, and the pool goes on."""
    async with together("tcp", workers=1) as t:
        out = np.full(4, 7.0)
        graph = t.runtime.graph()
        graph.add(die, [], [t.buffer(out)])
        with pytest.raises(GraphFailedError) as failure:
            await graph.execute()
        (error,) = failure.value.failures
        follow = t.runtime.graph()
        pid = np.zeros(1)
        follow.add(where, [], [t.buffer(pid)])
        result = await follow.execute()

    assert isinstance(error, KernelCrashedError)
    assert "SIGKILL" in error.status
    assert out.tolist() == [7.0] * 4
    assert result.offloaded == 1


@clause("OFF-113")
@pytest.mark.parametrize("place", ["local", "remote"])
async def test_a_kernel_beyond_its_time_limit_is_ended(place: Any) -> None:
    """Timeouts are real: the process is ended, here and on a worker, and the call fails without a retry."""
    async with together("tcp") as t:
        graph = t.runtime.graph()
        graph.add(forever, [], [t.buffer(np.zeros(2))], place=place)
        with pytest.raises(GraphFailedError) as failure:
            await graph.execute()

    (error,) = failure.value.failures
    assert isinstance(error, KernelTimeoutError)
    assert error.limit_s == 0.3


@clause("OFF-113", "OFF-115")
async def test_a_thread_beyond_its_limit_is_given_up_and_told() -> None:
    """A thread cannot be ended: its slot is gone, and the kernel may ask whether anyone still waits."""
    async with Runtime(kernels=REGISTRY, options=OffloadOptions(local_slots=2)) as runtime:
        graph = runtime.graph()
        graph.add(polite, [], [np.zeros(1)], time_limit_s=0.05)
        with pytest.raises(GraphFailedError) as failure:
            await graph.execute()
        assert runtime._scheduler.local_slots == 1
        follow = runtime.graph()
        out = np.zeros(3)
        follow.add(increment, [out], [out])
        await follow.execute()

    assert isinstance(failure.value.failures[0], KernelTimeoutError)
    assert out.tolist() == [1, 1, 1]


@clause("OFF-116")
async def test_a_standalone_run_of_a_process_kernel_uses_a_thread() -> None:
    """Nobody pays for a process that protects nothing: without workers there is no link to keep alive."""
    async with Runtime(kernels=REGISTRY) as runtime:
        pid = np.zeros(1)
        graph = runtime.graph()
        graph.add(where, [], [pid])
        await graph.execute()
        assert int(pid[0]) == os.getpid()
        limited = runtime.graph()
        limited.add(where, [], [pid], time_limit_s=20)
        await limited.execute()

    assert int(pid[0]) != os.getpid()


@clause("OFF-708", "OFF-216")
async def test_shared_buffers_are_written_in_place_by_real_workers() -> None:
    """With ``shared=True`` no array byte crosses the socket, and regions are used again."""
    options = OffloadOptions(**OPTIONS)
    async with (
        Runtime(kernels=REGISTRY, options=options) as runtime,
        runtime.cluster(TcpTransport.listen("127.0.0.1:0")) as cluster,
    ):
        with workers(cluster.endpoint, 1):
            await cluster.wait_for_workers(1, timeout_s=30)
            assert cluster.workers()[0].shm == "on"
            state = runtime.state(np.ones(200_000), shared=True)
            step = runtime.buffer(np.full(200_000, 2.0), shared=True)
            graph = runtime.graph()
            for _ in range(6):
                graph.add(add, [state.read, step], [state.write])
                state.step()
            before = cluster.stats()
            result = await graph.execute()
            after = cluster.stats()
            made = len(runtime._regions._made) if runtime._regions is not None else 0

    assert result.offloaded == 6
    assert state.read.array.tolist() == [13.0] * 200_000
    assert after.bytes_sent - before.bytes_sent == 0
    assert after.bytes_received - before.bytes_received < 20_000
    assert made <= 5
    assert not [name for name in os.listdir("/dev/shm") if f"-{os.getpid()}-" in name and name.startswith("towline-")]


@clause("OFF-709")
async def test_large_buffers_of_one_host_go_through_a_segment() -> None:
    """One copy into shared memory instead of two through a socket; the file is gone when the version is."""
    async with together("shared memory", workers=2) as t:
        big, out = t.runtime.buffer(np.ones(200_000)), t.runtime.buffer(np.zeros(200_000))
        graph = t.runtime.graph()
        graph.add(increment, [big], [out])
        before = t.cluster.stats().bytes_sent
        await graph.execute()
        assert t.cluster.stats().bytes_sent == before
        assert t.runtime._regions is not None
        assert len(t.runtime._regions.staging._staged) == 1
        big.bump()
        assert len(t.runtime._regions.staging._staged) == 0

    assert out._data[0] == 1


@clause("OFF-709")
def test_leftovers_of_dead_processes_are_swept() -> None:
    """A killed worker cannot unlink its segments: the next start of the same user does."""
    from towline.offload.regions import FOLDER, sweep

    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    leftover = Path(FOLDER) / f"towline-{os.getuid()}-{child.pid}-{'0' * 16}-0"
    foreign = Path(FOLDER) / f"towline-{os.getuid()}-{child.pid}-other"
    leftover.write_bytes(b"x")
    foreign.write_bytes(b"x")

    try:
        assert sweep() >= 1
        assert not leftover.exists()
        assert foreign.exists()
    finally:
        foreign.unlink()


@clause("OFF-623")
def test_a_listening_agent_prints_its_port_and_drains_on_a_signal() -> None:
    """Port 0 takes a free one, which the next process must be able to read; SIGTERM ends with 143."""
    command = [sys.executable, "-m", "towline.offload.worker", KERNELS, "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=20)

    assert '"listening": "127.0.0.1:' in line
    assert '"listening": "127.0.0.1:0"' not in line
    assert '"code": 0, "reason": "drained"' in rest
    assert process.returncode == 143


@clause("OFF-619")
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [(["absent.py", "--master", "127.0.0.1:1"], 2, "absent.py"), (["json", "--master", "127.0.0.1:1"], 2, "no kernel"),
     ([KERNELS, "--master", "nowhere"], 2, "HOST:PORT"), ([KERNELS], 2, "--master"),
     ([KERNELS, "--master", "127.0.0.1:1", "--master-timeout", "0.3"], 4, "not reached")],
)  # fmt: skip
def test_the_command_says_what_is_wrong_by_exit_code(arguments: list[str], code: int, text: str) -> None:
    """Scripts tell a wrong call from a missing master."""
    command = [sys.executable, "-m", "towline.offload.worker", *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == code
    assert text in done.stdout + done.stderr


@clause("OFF-421")
def test_blas_threads_are_pinned_before_numpy_loads() -> None:
    """Another number of threads sums in another order: bitwise kernels would differ between nodes."""
    from towline.offload.numeric import thread_environment

    program = (
        "import numpy; from threadpoolctl import threadpool_info; print({e['num_threads'] for e in threadpool_info()})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment(), **thread_environment(1)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() in ("{1}", "set()")


@clause("OFF-710", "OFF-904")
async def test_an_agent_that_listens_serves_two_masters() -> None:
    """The roles do not depend on who dials; slots are shared, each master has its own session."""
    from towline.offload import AgentOptions, WorkerAgent
    from towline.offload.door import NoListener

    agent = WorkerAgent(
        TcpTransport.listen("127.0.0.1:0"), REGISTRY, options=AgentOptions(slots=1, hello_retry_s=0.1), name="shared"
    )
    await agent.start()
    options = OffloadOptions(**OPTIONS)

    async def master(number: int) -> Any:
        async with Runtime(kernels=REGISTRY, options=options) as runtime, runtime.cluster(NoListener()) as cluster:
            cluster.dial(agent.endpoint)
            cluster.dial(agent.endpoint)
            await cluster.wait_for_workers(1, timeout_s=20)
            field = np.full(20_000, float(number))
            buffer = runtime.buffer(field)
            graph = runtime.graph()
            for _ in range(5):
                graph.add(increment, [buffer], [buffer])
            result = await graph.execute()
            return field[0], result.offloaded

    first, second = await asyncio.gather(master(10), master(20))
    await agent.stop()

    assert (first, second) == ((15.0, 5), (25.0, 5))
