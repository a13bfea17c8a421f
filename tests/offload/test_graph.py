"""A graph orders its calls by the arrays they touch, and ends the same way wherever they run."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.errors import (
    GraphFailedError,
    GraphStateError,
    KernelFailedError,
    OffloadError,
    ParameterError,
)
from towline.errors.offload import GraphTimeoutError
from towline.offload import Array, KernelRegistry, OffloadOptions, Runtime, kernel
from towline.offload.edges import AccessTracker
from towline.testing import clause

pytestmark = pytest.mark.anyio
REGISTRY = KernelRegistry()


@kernel("g.mix", executor="thread", registry=REGISTRY, variadic=True)
def mix(reads: list[Array], writes: list[Array], *, salt: int) -> None:
    for index, out in enumerate(writes):
        out += np.uint64(salt + index)
        for position, source in enumerate(reads):
            out += source * np.uint64(position + 3)


@kernel("g.fail", executor="thread", registry=REGISTRY)
def fail(out: Array) -> None:
    raise ValueError("on purpose")


@kernel("g.one", executor="thread", registry=REGISTRY)
def one(out: Array) -> None:
    out[...] = 1


@kernel("g.returns", executor="thread", registry=REGISTRY)
def returns(out: Array) -> None:
    return out  # type: ignore[return-value]


@kernel("g.cheat", executor="thread", registry=REGISTRY)
def cheat(source: Array, out: Array) -> None:
    source[0] = 9


def runtime(**options: Any) -> Runtime:
    return Runtime(kernels=REGISTRY, options=OffloadOptions(local_slots=2, verify="full", **options))


ACCESS = st.lists(
    st.tuples(st.sets(st.integers(0, 4), max_size=3), st.sets(st.integers(0, 4), max_size=2)), max_size=25
)


@clause("OFF-301", "OFF-302")
@settings(max_examples=200, deadline=None)
@given(ACCESS)
def test_conflicting_calls_are_ordered_and_others_are_not(calls: list[tuple[set[int], set[int]]]) -> None:
    """Every pair with a conflict has a path between them, and no edge joins calls without one."""
    tracker: AccessTracker[int] = AccessTracker()
    before: dict[int, set[int]] = {}
    for index, (reads, writes) in enumerate(calls):
        direct = tracker.declare(index, sorted(reads), sorted(writes))
        before[index] = set(direct).union(*(before[other] for other in direct))
        for other in direct:
            assert calls[other][1] & (reads | writes) or writes & calls[other][0]
        for other in range(index):
            if calls[other][1] & (reads | writes) or writes & calls[other][0]:
                assert other in before[index], f"{other} and {index} conflict and are not ordered"


@clause("OFF-303")
async def test_edges_are_the_same_everywhere() -> None:
    """A golden list: the order of execution may not depend on a machine, a hash seed or a Python version."""
    graph = runtime().graph()
    a, b, c = (np.zeros(1, np.uint64) for _ in range(3))
    graph.add(mix, [], [a], {"salt": 1})
    graph.add(mix, [a], [b], {"salt": 2})
    graph.add(mix, [a], [c], {"salt": 3})
    graph.add(mix, [b], [a], {"salt": 4})
    graph.add(mix, [a, c], [b, c], {"salt": 5})
    graph.add(None, host=lambda: None, after=[0])

    assert graph.edges() == ((0, 1), (0, 2), (0, 3), (0, 5), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4))


@clause("OFF-301", "OFF-304")
@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 3), max_size=3), st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True)
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 12),
)
def test_any_graph_gives_the_bytes_of_a_serial_run(calls: list[tuple[list[int], list[int]]], cut: int) -> None:
    """Two graphs that execute at once are one stream in the order of their execute calls."""
    expected = [np.zeros(3, np.uint64) for _ in range(4)]
    for salt, (reads, writes) in enumerate(calls):
        old = [array.copy() for array in expected]
        outs = [old[w].copy() if w in reads else np.zeros(3, np.uint64) for w in writes]
        mix.function([old[r] for r in reads], outs, salt=salt)
        for write, out in zip(writes, outs, strict=True):
            expected[write] = out

    async def run() -> list[Array]:
        async with runtime() as rt:
            buffers = [rt.buffer(np.zeros(3, np.uint64)) for _ in range(4)]
            graphs = [rt.graph("first"), rt.graph("second")]
            for salt, (reads, writes) in enumerate(calls):
                graphs[salt >= cut].add(mix, [buffers[r] for r in reads], [buffers[w] for w in writes], {"salt": salt})
            await asyncio.gather(*(graph.execute() for graph in graphs))
            return [buffer.array for buffer in buffers]

    for mine, wanted in zip(asyncio.run(run()), expected, strict=True):
        assert mine.tobytes() == wanted.tobytes()


@clause("OFF-305")
async def test_after_orders_calls_without_data() -> None:
    """A step that prints what another one computed must not run before it."""
    order: list[str] = []
    async with runtime() as rt:
        graph = rt.graph()
        slow = graph.add(None, host=lambda: (time.sleep(0.01), order.append("first"))[0])
        graph.add(None, host=lambda: order.append("second"), after=[slow])
        with pytest.raises(ParameterError, match="after"):
            graph.add(None, host=lambda: None, after=[7])  # type: ignore[list-item]
        await graph.execute()

    assert order == ["first", "second"]


@clause("OFF-307")
async def test_host_replaces_the_body_here() -> None:
    """Local runs may use a library that workers do not have; the arrays are the same."""
    async with runtime() as rt:
        out = np.zeros(2)
        graph = rt.graph()
        graph.add(one, [], [out], host=lambda array: array.fill(7))
        await graph.execute()

    assert out.tolist() == [7, 7]


@clause("OFF-309")
async def test_a_graph_can_be_executed_again_and_not_changed_while_it_runs() -> None:
    """Declaring once and stepping often is the normal loop of a simulation."""
    gate = threading.Event()
    async with runtime() as rt:
        state = np.ones(1, np.uint64)
        graph = rt.graph("loop")
        graph.add(mix, [state], [state], {"salt": 0}, host=lambda reads, writes=None, salt=0: gate.wait(5) and None)
        empty = await rt.graph().execute()
        running = asyncio.ensure_future(graph.execute())
        await asyncio.sleep(0)
        with pytest.raises(GraphStateError, match="running"):
            graph.add(one, [], [state])
        with pytest.raises(GraphStateError, match="running"):
            await graph.execute()
        gate.set()
        await running
        await graph.execute()

    assert empty.calls == ()
    with pytest.raises(GraphStateError, match="not entered"):
        await graph.execute()


@clause("OFF-310")
async def test_a_failure_stops_the_rest_and_names_itself() -> None:
    """The user sees the kernel's own error, and which calls it kept from running."""
    async with runtime() as rt:
        a, b, c = np.zeros(1), np.zeros(1), np.zeros(1)
        graph = rt.graph("doomed")
        graph.add(one, [], [a], name="fine")
        graph.add(fail, [], [b], name="broken", after=[0])  # type: ignore[list-item]
        graph.add(one, [], [c], after=[1])  # type: ignore[list-item]
        with pytest.raises(GraphFailedError) as failure:
            await graph.execute()

    assert failure.value.failed == ("broken",)
    (cause,) = failure.value.failures
    assert isinstance(cause, KernelFailedError)
    assert (cause.type_name, cause.message, cause.kind) == ("ValueError", "on purpose", "kernel_error")
    assert (a[0], c[0]) == (1, 0)


@clause("OFF-310")
async def test_keep_going_runs_all_that_does_not_need_the_failure() -> None:
    """Order edges wait for a failed call and then go on; data edges do not."""
    async with runtime() as rt:
        a, b, other = np.zeros(1), np.zeros(1), np.zeros(1)
        graph = rt.graph()
        graph.add(fail, [], [a])
        graph.add(cheat, [a], [b])
        graph.add(one, [], [a])
        graph.add(one, [], [other])
        with pytest.raises(GraphFailedError) as failure:
            await graph.execute(keep_going=True)

    assert len(failure.value.failed) == 1
    assert (a[0], b[0], other[0]) == (1, 0, 1)


@clause("OFF-107", "OFF-110")
async def test_kernels_that_break_their_contract_fail_and_change_nothing() -> None:
    """Writing to an input and returning a value are errors of the kernel, seen where they happen."""
    async with runtime() as rt:
        source, out = np.zeros(2), np.zeros(2)
        for call, kind in (
            (lambda g: g.add(cheat, [source], [out]), "ValueError"),
            (lambda g: g.add(returns, [], [out]), "ndarray"),
        ):
            graph = rt.graph()
            call(graph)
            with pytest.raises(GraphFailedError) as failure:
                await graph.execute()
            assert failure.value.failures[0].type_name == kind  # type: ignore[attr-defined]

    assert source.tolist() == out.tolist() == [0, 0]


@clause("OFF-108", "OFF-109")
async def test_outputs_are_fresh_and_zero_and_in_out_comes_twice() -> None:
    """A kernel sees old bytes only where it asked for them, and never writes into them."""
    seen: dict[str, Any] = {}
    registry = KernelRegistry()

    @kernel("look", executor="thread", registry=registry)
    def look(old: Array, new: Array, out: Array) -> None:
        seen.update(old=old.tolist(), new=new.tolist(), out=out.tolist(), same=np.shares_memory(old, new))
        new[...] = 5

    async with Runtime(kernels=registry) as rt:
        both, out = np.full(2, 3.0), np.full(2, 4.0)
        graph = rt.graph()
        graph.add(look, [both], [both, out])
        await graph.execute()

    assert seen == {"old": [3, 3], "new": [3, 3], "out": [0, 0], "same": False}
    assert (both.tolist(), out.tolist()) == ([5, 5], [0, 0])


@clause("OFF-311")
async def test_a_time_out_ends_the_graph_and_drops_late_results() -> None:
    """Whoever gave a limit gets control back at it, whatever a kernel does."""
    gate = threading.Event()
    async with runtime() as rt:
        out = np.zeros(1)
        graph = rt.graph("slow")
        graph.add(None, [], [out], host=lambda array: (gate.wait(5), array.fill(1))[1])
        with pytest.raises(GraphTimeoutError, match="slow"):
            await graph.execute(timeout_s=0.02)
        gate.set()
        await rt.graph().execute()
        assert rt.stats().queued == 0
        follow = rt.graph()
        follow.add(one, [], [np.zeros(1)])
        await follow.execute()

    assert out[0] == 0


@clause("OFF-311")
async def test_cancelling_execute_cancels_its_calls() -> None:
    """A cancelled task of the user leaves nothing running that could still write."""
    gate = threading.Event()
    async with runtime() as rt:
        out = np.zeros(1)
        graph = rt.graph()
        graph.add(None, [], [out], host=lambda array: (gate.wait(5), array.fill(1))[1])
        running = asyncio.ensure_future(graph.execute())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        gate.set()

    assert out[0] == 0


@clause("OFF-312")
def test_declaring_calls_costs_linear_work() -> None:
    """Ten times the calls make ten times the edges and steps: 100,000 calls must compile."""

    def steps(count: int) -> int:
        tracker: AccessTracker[int] = AccessTracker()
        return sum(len(tracker.declare(i, [i % 50, (i * 7) % 50], [(i * 3) % 50])) + 1 for i in range(count))

    assert steps(20_000) < 10 * steps(2_000) * 1.1


@clause("OFF-401")
async def test_without_a_cluster_nothing_of_the_network_exists() -> None:
    """Off means absent: no socket, no protocol core, no shared memory."""
    async with runtime() as rt:
        graph = rt.graph("demo")
        for _ in range(3):
            graph.add(one, [], [np.zeros(1)])
        result = await graph.execute()
        engine = rt._engine
        assert engine is not None
        assert engine.core is None
        assert rt._regions is None

    assert result.declined == {"not_clustered": 3}
    assert result.summary().splitlines()[1].split() == ["3", "not_clustered"]
    assert "towline offload worker MODULE --master HOST:PORT" in result.summary()


async def test_every_error_survives_a_trip_by_its_arguments() -> None:
    """Errors cross process borders as type and arguments."""
    import inspect

    import towline.errors.offload as errors

    for kind in vars(errors).values():
        if not (inspect.isclass(kind) and issubclass(kind, OffloadError) and kind is not OffloadError):
            continue
        sample = {"str": "x", "int": 1, "float": 1.5}
        parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
        args = [sample.get(str(p.annotation), ()) for p in parameters]
        error = kind(*args)
        assert str(kind(*error.args)) == str(error)
