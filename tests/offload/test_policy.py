"""Where calls go, and what is said when they stay (sections 7.4, 7.10)."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import numpy as np
import pytest
from clusters import together
from offload_kernels import REGISTRY, scale

from towline.errors import ConfigurationError, OffloadUnavailableError
from towline.offload import (
    Array,
    CallView,
    CostAwarePolicy,
    Decline,
    KernelRegistry,
    LeastLoadedPolicy,
    LocalView,
    OffloadOptions,
    Probe,
    Tolerant,
    WorkerView,
    kernel,
    options_from,
)
from towline.offload.policies import completion_s
from towline.offload.records import CallNumber, WorkerId
from towline.testing import clause

pytestmark = pytest.mark.anyio


def worker(name: str, **facts: Any) -> WorkerView:
    return WorkerView(worker=WorkerId(name), **facts)


def call(**facts: Any) -> CallView:
    return CallView(call=CallNumber(1), kernel="k", **{"payload_bytes": 1_000_000, **facts})


LOCAL = LocalView(slots=2, running=0, backlog_s=0.0, expected_s=0.5)


@clause("OFF-405")
def test_the_least_loaded_worker_is_least_in_seconds() -> None:
    """Round trip, transfer of what is missing, outputs, and backlog per slot decide; ties go by cache, then name."""
    policy = LeastLoadedPolicy()
    near, far = worker("near", rtt_s=0.001), worker("far", rtt_s=0.2)
    busy = worker("a-busy", backlog_s=9.0, slots=2)
    holds = call(missing_bytes={WorkerId("b"): 0, WorkerId("a"): 1_000_000})

    assert policy.pick_worker(call(), [far, near, busy], LOCAL, 0.0, Random(1)) == "near"
    assert policy.pick_worker(holds, [worker("a"), worker("b")], LOCAL, 0.0, Random(1)) == "b"
    assert policy.pick_worker(call(), [worker("y"), worker("x")], LOCAL, 0.0, Random(1)) == "x"
    assert isinstance(policy.pick_worker(call(), [], LOCAL, 0.0, Random(1)), Decline)
    assert completion_s(call(output_bytes=100), worker("w")) == pytest.approx((1_000_000 + 100) / 100e6)


@clause("OFF-407")
def test_the_cost_aware_policy_chooses_the_faster_side() -> None:
    """Of 200 random calls whose sides differ by a fifth or more, at least nine in ten go to the faster side."""
    random, right, judged = Random(7), 0, 0
    policy = CostAwarePolicy(margin=0.1)
    while judged < 200:
        view = call(
            payload_bytes=random.randrange(1 << 10, 1 << 28),
            output_bytes=random.randrange(1 << 20),
            expected_s=random.uniform(0.001, 2),
        )
        there = worker(
            "w",
            rtt_s=random.uniform(1e-4, 0.1),
            up_bytes_per_s=random.uniform(1e7, 2e9),
            backlog_s=random.uniform(0, 3),
            slots=2,
        )
        local = LocalView(slots=2, running=2, backlog_s=random.uniform(0, 6), expected_s=view.expected_s)
        remote_s = completion_s(view, there) + view.expected_s
        local_s = local.backlog_s / local.slots + local.expected_s
        if abs(remote_s - local_s) < 0.2 * max(remote_s, local_s):
            continue
        judged += 1
        picked = policy.pick_worker(view, [there], local, 0.0, Random(1))
        right += (picked == "w") == (remote_s < local_s)

    assert right >= 180
    with pytest.raises(ValueError, match="margin"):
        CostAwarePolicy(margin=1.0)


@clause("OFF-403")
async def test_a_small_payload_stays_here() -> None:
    """Below the limit the round trip costs more than the work; the kernel's own limit wins over the option."""
    registry = KernelRegistry()

    @kernel("plain", executor="thread", registry=registry)
    def plain(out: Array) -> None: ...

    async with together("in-process", registry=registry, min_offload_bytes=1_000) as t:
        graph = t.runtime.graph("demo")
        graph.add(plain, [], [t.buffer(np.zeros(100))])
        graph.add(plain, [], [t.buffer(np.zeros(200))])
        graph.add(plain, [], [t.buffer(np.zeros(10))], place="remote")
        result = await graph.execute()

    assert [c.ran_on for c in result.calls] == ["local", "w0", "w0"]
    assert result.declined == {"below_min_bytes": 1}
    assert "payload 800 bytes, limit 1000 (min_offload_bytes)" in result.summary()


@clause("OFF-402", "OFF-954", "OFF-991")
async def test_a_kernel_that_no_worker_has_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """A typo or an old worker shows in summary, explanation and one warning; the result is right all the same."""
    mine, theirs = KernelRegistry(), KernelRegistry()

    def body(out: Array) -> None:
        out[...] = 2

    newer = kernel("job", version=2, executor="thread", registry=mine, min_offload_bytes=0)(body)
    kernel("job", version=1, executor="thread", registry=theirs)(body)
    async with together("in-process", registry=mine, theirs=theirs) as t:
        out = np.zeros(4)
        buffer = t.buffer(out)
        graph = t.runtime.graph()
        graph.add(newer, [], [buffer])
        graph.add(newer, [], [buffer])
        with caplog.at_level(logging.WARNING, "towline.offload"):
            result = await graph.execute()
        story = t.cluster.explain(result.calls[0].number)
        assert not t.cluster.supports("job")

    assert out[0] == 2
    assert result.declined == {"kernel_unsupported": 2}
    assert "version 1, here 2" in result.summary()
    assert "version 1, here 2" in story.text()
    assert sum("kernel_unsupported" in record.message for record in caplog.records) == 1


@clause("OFF-409")
@pytest.mark.parametrize("fault", ["raises", "names nobody"])
async def test_a_broken_policy_costs_nothing_but_offloading(fault: str) -> None:
    """Foreign code in the decision may be wrong; the graph still ends with its bytes."""

    class Broken:
        def pick_worker(self, *arguments: Any) -> Any:
            if fault == "raises":
                raise ZeroDivisionError
            return WorkerId("nobody")

    async with together("in-process", policy=Broken()) as t:
        out = np.zeros(10_000)
        graph = t.runtime.graph()
        graph.add(scale, [t.buffer(np.ones(10_000))], [t.buffer(out)], {"by": 3.0})
        result = await graph.execute()

    assert out[0] == 3
    assert result.declined == {"policy_error": 1}


@clause("OFF-420", "OFF-422")
async def test_a_worker_that_computes_something_else_is_not_used() -> None:
    """Two builds of a library may differ in the last bit: the golden vector finds it before a result is committed."""

    def golden(random: Random) -> Probe:
        return Probe(reads=[np.array([random.random() for _ in range(16)])], writes=[((16,), "<f8")])

    mine, theirs = KernelRegistry(), KernelRegistry()

    def honest(source: Array, out: Array) -> None:
        out[...] = source * 2

    def slightly_off(source: Array, out: Array) -> None:
        out[...] = np.nextafter(source * 2, 9)

    options: Any = {"executor": "thread", "min_offload_bytes": 0, "probe": golden}
    exact = kernel("exact", registry=mine, **options)(honest)
    close = kernel("close", registry=mine, determinism=Tolerant(rtol=1e-9, atol=0.0), **options)(honest)
    kernel("exact", registry=theirs, **options)(slightly_off)
    kernel("close", registry=theirs, determinism=Tolerant(rtol=1e-9, atol=0.0), **options)(slightly_off)
    async with together("in-process", registry=mine, theirs=theirs) as t:
        graph = t.runtime.graph()
        for which in (exact, close):
            graph.add(which, [t.buffer(np.ones(100))], [t.buffer(np.zeros(100))])
        result = await graph.execute()
        (view,) = t.cluster.workers()

    assert [c.ran_on for c in result.calls] == ["local", "w0"]
    assert result.declined == {"numeric_mismatch": 1}
    assert view.up_bytes_per_s > 0


@clause("OFF-956")
async def test_events_are_told_and_a_broken_listener_is_dropped() -> None:
    """Whoever watches sees joins, calls and deaths; a bug of theirs does not stop the graph."""
    kinds: list[str] = []

    async with together("in-process") as t:
        t.cluster.on_event(lambda event: kinds.append(event.kind))
        t.cluster.on_event(lambda event: 1 / 0)  # type: ignore[arg-type, return-value]
        graph = t.runtime.graph()
        graph.add(scale, [t.buffer(np.ones(9_000))], [t.buffer(np.zeros(9_000))], {"by": 3.0})
        await graph.execute()
        await graph.execute()

    assert kinds.count("call_offloaded") == kinds.count("call_committed") == 2


@clause("OFF-953")
async def test_explain_answers_after_the_graph_ended() -> None:
    """Why a call went where it went is known afterwards, as text and as JSON."""
    async with together("in-process", workers=2) as t:
        graph = t.runtime.graph()
        graph.add(scale, [t.buffer(np.ones(9_000))], [t.buffer(np.zeros(9_000))], {"by": 3.0})
        result = await graph.execute()
        story = t.cluster.explain(result.calls[0].number)

    text = story.text()
    assert "cost w0:" in text
    assert "cost w1:" in text
    assert "attempt 1 on w" in text
    assert '"versions":[2]' in story.to_json()


@clause("OFF-992")
async def test_waiting_for_workers_that_do_not_come_says_how_to_start_one() -> None:
    """The first thing a new user sees when nothing is offloaded is the command to change that."""
    async with together("in-process", workers=0, wait=False) as t:
        with pytest.raises(OffloadUnavailableError, match="towline offload worker MODULE --master HOST:PORT"):
            await t.cluster.wait_for_workers(1, timeout_s=0.01)
        graph = t.runtime.graph()
        graph.add(scale, [t.buffer(np.ones(9_000))], [t.buffer(np.zeros(9_000))], {"by": 3.0})
        result = await graph.execute()

    assert result.declined == {"no_live_worker": 1}
    assert "no worker is connected" in result.summary()


@pytest.mark.parametrize(
    ("values", "named"),
    [({"heartbeat_interval_s": 2.0}, "heartbeat_interval_s"), ({"suspect_after_s": 9.0}, "suspect_after_s"), ({"attempts": 0}, "attempts"),
     ({"min_offload_bytes": -1}, "min_offload_bytes"), ({"verify": "yes"}, "verify")],
)  # fmt: skip
def test_options_are_checked_when_they_are_made(values: dict[str, Any], named: str) -> None:
    """A wrong setting is refused before anything runs, with its name."""
    with pytest.raises(ConfigurationError, match=named):
        OffloadOptions(**values)


def test_options_come_from_variables_over_the_project_file() -> None:
    """An operator can change a setting without touching code, and is told where a wrong one came from."""
    options = options_from({"TOWLINE_OFFLOAD_ATTEMPTS": "5"}, {"attempts": 2, "inline_bytes": 10})

    assert (options.attempts, options.inline_bytes) == (5, 10)
    with pytest.raises(ConfigurationError, match="TOWLINE_OFFLOAD_ATTEMPTS"):
        options_from({"TOWLINE_OFFLOAD_ATTEMPTS": "many"})
    with pytest.raises(ConfigurationError, match="no such setting"):
        options_from({}, {"atempts": 2})


def test_kernels_of_the_tests_are_registered() -> None:
    """The registry that real workers of these tests load by file has all of them."""
    assert "t.add" in REGISTRY
