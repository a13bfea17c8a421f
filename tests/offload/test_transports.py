"""One contract for three transports: the bytes are those of a local run, whatever carries them (OFF-701)."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from clusters import TRANSPORTS, together
from offload_kernels import REGISTRY, add, again, fail, increment, scale, where

from towline.errors import GraphFailedError, KernelFailedError
from towline.offload import Array, KernelRegistry, kernel
from towline.testing import clause

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("transport", TRANSPORTS)]


@kernel("t.two", registry=REGISTRY, executor="thread", min_offload_bytes=0)
def two(source: Array, half: Array, twice: Array) -> None:
    half[...] = source[: half.size] + 1
    twice[...] = source * 2


@clause("OFF-701", "OFF-101", "OFF-412")
async def test_offloaded_bytes_are_local_bytes(transport: str) -> None:
    """A process kernel on inputs that are pulled, and on inputs that ride along."""
    async with together(transport) as t:
        for size in (3, 5_000, 300_000):
            left, right, out = np.random.default_rng(size).random(size), np.ones(size), np.zeros(size)
            graph = t.runtime.graph()
            graph.add(add, [t.buffer(left), t.buffer(right)], [t.buffer(out)])
            result = await graph.execute()

            assert result.offloaded == 1
            assert result.calls[0].ran_on == "w0"
            assert out.tobytes() == (left + right).tobytes()


@clause("OFF-205")
async def test_odd_arrays_travel(transport: str) -> None:
    """Empty, 0-d, big-endian and structured arrays are arrays too."""
    registry = KernelRegistry()

    @kernel("copy", executor="thread", registry=registry)
    def copy(source: Array, out: Array) -> None:
        out[...] = source

    arrays: list[Any] = [
        np.zeros((0, 3)), np.array(7.5), np.arange(5, dtype=">i4"), np.array(["a", "bcd"]), np.array([True, False]),
        np.array([(1, 2.5)], dtype=[("a", "u1"), ("b", "f8")]), np.array(["2026-01-01"], "M8[D]"), np.array([1 + 2j]),
    ]  # fmt: skip
    async with together(transport, registry=registry) as t:
        for source in arrays:
            out = np.zeros_like(source)
            graph = t.runtime.graph()
            graph.add(copy, [t.buffer(source)], [t.buffer(out)])
            result = await graph.execute()
            assert result.offloaded == 1
            assert out.tobytes() == source.tobytes()


@clause("OFF-503", "OFF-510")
async def test_several_outputs_are_committed_together(transport: str) -> None:
    """Small and large outputs of one call, inline and fetched, become visible in one step."""
    async with together(transport, inline_bytes=1000, offer_bytes=5000) as t:
        for size in (10, 1_000, 200_000):
            source, half, twice = np.arange(float(size)), np.zeros(size // 2), np.zeros(size)
            graph = t.runtime.graph()
            graph.add(two, [t.buffer(source)], [t.buffer(half), t.buffer(twice)])
            result = await graph.execute()

            assert result.offloaded == 1
            assert half.tobytes() == (source[: size // 2] + 1).tobytes()
            assert twice.tobytes() == (source * 2).tobytes()


@clause("OFF-108")
async def test_in_out_on_a_worker(transport: str) -> None:
    """The old bytes arrive, the new ones come back, ten times over one buffer."""
    async with together(transport, workers=2) as t:
        field = np.zeros(20_000)
        buffer = t.buffer(field)
        graph = t.runtime.graph()
        for _ in range(10):
            graph.add(increment, [buffer], [buffer])
        result = await graph.execute()

    assert result.offloaded == 10
    assert field.tolist() == [10.0] * 20_000


@clause("OFF-201")
async def test_version_bump_across_local_write_then_offloaded_read(transport: str) -> None:
    """A local write to X makes a new version, so that an offloaded reader sees the fresh bytes (seed)."""
    async with together(transport) as t:
        x, out = np.ones(30_000), np.zeros(30_000)
        bx, bout = t.buffer(x), t.buffer(out)
        graph = t.runtime.graph()
        graph.add(scale, [bx], [bout], {"by": 2.0})
        graph.add(None, [bx], [bx], host=lambda old, new: np.add(old, 4, out=new) is None and None)
        graph.add(scale, [bx], [bout], {"by": 2.0})
        result = await graph.execute()

        assert out[0] == 10
        x[:] = 7
        bx.bump()
        again_graph = t.runtime.graph()
        again_graph.add(scale, [bx], [bout], {"by": 2.0})
        await again_graph.execute()

    assert [call.ran_on for call in result.calls] == ["w0", "local", "w0"]
    assert out.tolist() == [14.0] * 30_000


@clause("OFF-805", "OFF-615")
async def test_a_kernel_error_comes_home_as_a_record(transport: str) -> None:
    """Type, text, traceback and cause of the remote error are there; nothing was unpickled; nothing was retried."""
    async with together(transport) as t:
        out = np.full(10_000, 5.0)
        graph = t.runtime.graph()
        graph.add(fail, [], [t.buffer(out)])
        with pytest.raises(GraphFailedError) as failure:
            await graph.execute()

    (error,) = failure.value.failures
    assert isinstance(error, KernelFailedError)
    assert (error.type_name, error.worker) == ("ValueError", "w0")
    assert "cannot go on" in error.message
    assert "offload_kernels.py" in error.traceback
    assert any("KeyError" in cause for cause in error.causes)
    assert out[0] == 5


@clause("OFF-609", "OFF-615")
async def test_a_call_that_asks_for_another_try_ends_here(transport: str) -> None:
    """After the last counted attempt a call is pinned to this process; its error is then its own."""
    async with together(transport, workers=2) as t:
        graph = t.runtime.graph()
        out = np.zeros(10_000)
        graph.add(again, [], [t.buffer(out)], host=lambda array: array.fill(3))
        result = await graph.execute()
        story = t.cluster.explain(result.calls[0].number)

    assert out[0] == 3
    assert (result.calls[0].attempts, result.declined) == (3, {"pinned_local": 1})
    assert story.text().count("came to nothing: retryable") == 3


@clause("OFF-111")
async def test_process_kernels_run_in_another_process(transport: str) -> None:
    """A kernel that holds the GIL or crashes must not take its agent down."""
    import os

    async with together(transport) as t:
        out = np.zeros(8)
        graph = t.runtime.graph()
        graph.add(where, [], [t.buffer(out)])
        await graph.execute()

    assert int(out[0]) not in (0, os.getpid())


@clause("OFF-505", "OFF-215")
async def test_a_worker_pulls_what_it_lacks_and_no_more(transport: str) -> None:
    """Inputs that are cached, and outputs that the worker itself made, do not travel again."""
    async with together(transport) as t:
        source = t.buffer(np.ones(50_000))
        state = t.runtime.state(np.ones(50_000), shared=t.shared)
        graph = t.runtime.graph()
        for _ in range(5):
            graph.add(add, [source, state.read], [state.write])
            state.step()
        before = t.cluster.stats().bytes_sent
        result = await graph.execute()
        sent = t.cluster.stats().bytes_sent - before

    assert result.offloaded == 5
    assert state.read.array[0] == 6
    assert sent <= 2 * 400_000


async def test_leaving_the_cluster_lets_graphs_go_on_here(transport: str) -> None:
    """Whoever closes the cluster in the middle still gets the result of the graph."""
    async with together(transport) as t:
        field = np.zeros(20_000)
        buffer = t.buffer(field)
        graph = t.runtime.graph()
        for _ in range(30):
            graph.add(increment, [buffer], [buffer])
        running = asyncio.ensure_future(graph.execute())
        await asyncio.sleep(0)
        await t.cluster.close()
        await running

    assert field.tolist() == [30.0] * 20_000


@clause("OFF-951", "OFF-952")
async def test_counters_add_up(transport: str) -> None:
    """Commits from workers and local runs are all succeeded calls; at rest nothing is in flight."""
    async with together(transport) as t:
        graph = t.runtime.graph()
        for _ in range(4):
            graph.add(scale, [t.buffer(np.ones(9_000))], [t.buffer(np.zeros(9_000))], {"by": 2.0})
        graph.add(scale, [t.buffer(np.ones(9))], [t.buffer(np.zeros(9))], {"by": 2.0}, place="local")
        result = await graph.execute()
        stats = t.cluster.stats()

    assert stats.committed == 5
    assert stats.offloaded + stats.local_runs == 5
    assert stats.declined_by_reason["place_local"] == 1
    assert all((call.ran_on == "local") == (call.decline is not None) for call in result.calls)
    assert (stats.in_flight, stats.queued, stats.alive_workers) == (0, 0, 1)


@clause("OFF-618")
async def test_a_drained_worker_leaves_in_order(transport: str) -> None:
    """Rolling a machine out of the cluster loses nothing and counts as no failure."""
    async with together(transport, workers=2) as t:
        field = np.zeros(20_000)
        buffer = t.buffer(field)
        graph = t.runtime.graph()
        for _ in range(10):
            graph.add(increment, [buffer], [buffer])
        running = asyncio.ensure_future(graph.execute())
        await t.cluster.drain("w0")  # type: ignore[arg-type]
        result = await running
        names = [view.worker for view in t.cluster.workers()]
        end = await t.agents[0].serve()

    assert field.tolist() == [10.0] * 20_000
    assert names == ["w1"]
    assert (end.code, end.reason) == (0, "drained")
    assert all(call.state == "succeeded" for call in result.calls)
