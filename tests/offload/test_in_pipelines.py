"""``ctx.offload`` in real runs: local without more, on agents that the options name, closed with the attempt."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from towline import Context, Options, Pipeline, module
from towline.errors import OffloadUnavailableError
from towline.execution.offload_counts import OffloadCounts
from towline.offload import OffloadAccess, OffloadDoor, OffloadOptions, TcpTransport, WorkerAgent, kernel
from towline.offload.registry import DEFAULT_REGISTRY
from towline.testing import clause
from towline.testing.modes import ModeName, SeenRun, in_modes, run_in_mode
from towline.views.drawing import details
from towline.views.final import final_lines
from towline.views.screen import Screen, advance
from towline.views.words import offload_words

pytestmark = pytest.mark.anyio
SIZE = 32
let_go = threading.Event()
"""Set by the kernel that was told to end."""


@kernel("tests.diffuse", executor="thread")
def diffuse(old: Any, new: Any, *, alpha: float) -> None:
    new[...] = old
    new[1:-1] += alpha * (old[:-2] - 2 * old[1:-1] + old[2:])


@kernel("tests.wait_for_cancel", executor="thread")
def wait_for_cancel(values: Any, out: Any) -> None:
    from towline.offload import cancelled

    while not cancelled():
        pass
    let_go.set()


def start_field() -> Any:
    field = np.zeros(SIZE)
    field[SIZE // 2] = 100.0
    return field


def expected_field(steps: int) -> Any:
    old, new = start_field(), np.empty(SIZE)
    for _ in range(steps):
        diffuse(old, new, alpha=0.1)
        old, new = new, old
    return old


async def heat(offload: OffloadDoor, steps: int) -> tuple[Any, int]:
    """Step the field through one graph; returns it with the number of calls that ran elsewhere."""
    field = offload.state(start_field(), name="field")
    graph = offload.graph("heat")
    for _ in range(steps):
        graph.add(diffuse, [field.read], [field.write], {"alpha": 0.1})
        field.step()
    result = await graph.execute()
    return field.read.snapshot(), result.offloaded


@clause("OFF-901", "OFF-902")
@in_modes("local", "strict", "distributed")
async def test_a_body_steps_a_field_without_any_agent(mode: ModeName) -> None:
    """One line's difference to many nodes: on one node the same module runs, with numpy's own bytes."""

    @module
    async def simulate(ctx: Context) -> list[float]:
        field, offloaded = await heat(ctx.offload, steps=10)
        assert offloaded == 0
        assert ctx.offload is ctx.offload
        return [float(value) for value in field]

    seen = await run_in_mode(Pipeline("heat", [simulate]), mode)

    assert seen.status == "succeeded"
    assert seen.value(simulate) == expected_field(10).tolist()


@clause("OFF-902", "OFF-903", "OFF-909", "OFF-910")
async def test_agents_of_the_options_do_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options name agents, the environment has the token; the run's events say what went where."""
    token = "the-token-of-this-run"
    agent = WorkerAgent(TcpTransport.listen("127.0.0.1:0"), DEFAULT_REGISTRY, access=OffloadAccess(token=token))
    await agent.start()
    monkeypatch.setenv("TOWLINE_TOKEN", token)
    options = OffloadOptions(endpoints=(agent.endpoint,), min_offload_bytes=0)

    @module
    async def simulate(ctx: Context) -> list[float]:
        await ctx.offload.wait_for_workers(1, timeout_s=20)
        field, offloaded = await heat(ctx.offload, steps=6)
        assert offloaded == 6
        return [float(value) for value in field]

    try:
        seen = await run_in_mode(Pipeline("heat", [simulate], options=Options(offload=options)))
    finally:
        await agent.stop()

    assert seen.value(simulate) == expected_field(6).tolist()
    kinds = [event.data["event"] for event in seen.of_kind("offload")]
    assert "worker_joined" in kinds
    closed = next(event.data["detail"] for event in seen.of_kind("offload") if event.data["event"] == "attempt_closed")
    assert closed["offloaded"] == 6
    assert closed["bytes_sent"] > 0
    assert token not in repr(seen.events)


@clause("OFF-909")
@in_modes("local", "distributed")
async def test_report_and_views_say_where_the_calls_ran(mode: ModeName) -> None:
    """Whoever wonders why nothing was offloaded finds the reason in the table at the end, and in ``show``."""

    @module(retries=1)
    async def simulate(ctx: Context) -> None:
        await heat(ctx.offload, steps=3)
        if ctx.attempt == 1:
            raise OSError("later")

    seen = await run_in_mode(Pipeline("heat", [simulate]), mode)
    (task,) = seen.report.tasks
    screen = Screen()
    for event in seen.events:
        advance(screen, event)

    assert task.offload is not None
    assert task.offload.declined == {"not_clustered": 6}
    assert screen.rows["simulate"].offload == task.offload
    assert "6 here (not_clustered 6)" in "\n".join(final_lines(seen.report, 100))
    assert "6 here (not_clustered 6)" in details(screen.rows["simulate"], seen.events[-1].at)


@clause("OFF-909")
def test_counts_of_a_task_read_as_one_line() -> None:
    """Bytes and repetitions belong to the same answer: was it worth it?"""
    counts = OffloadCounts(offloaded=1_200, declined={"all_busy": 2, "below_min_bytes": 1}, redispatched=4,
                           bytes_sent=3 << 20, bytes_received=1 << 19)  # fmt: skip

    assert offload_words(counts) == (
        "1,200 calls offloaded (3.0 MiB out, 512.0 KiB back), 3 here (all_busy 2, below_min_bytes 1), 4 sent again"
    )
    assert offload_words(None) == ""


@clause("OFF-908")
async def test_a_retried_attempt_registers_anew() -> None:
    """Nothing is resumed inside a buffer: the second attempt has a runtime of its own, the first one's is closed."""
    doors: list[OffloadDoor] = []

    @module(retries=1)
    async def simulate(ctx: Context) -> float:
        doors.append(ctx.offload)
        await heat(ctx.offload, steps=1)
        if ctx.attempt == 1:
            raise OSError("later")
        return 1.0

    seen = await run_in_mode(Pipeline("heat", [simulate]))

    assert seen.value(simulate) == 1.0
    first, second = doors
    assert first is not second
    assert len(list(seen.of_kind("offload"))) == 2


@clause("OFF-907")
async def test_a_timeout_ends_the_graph_of_the_body() -> None:
    """A body that is asked to end must not leave kernels behind that nobody waits for."""
    outs: list[Any] = []

    @module(timeout=0.3)
    async def simulate(ctx: Context) -> None:
        out = np.zeros(4)
        outs.append(out)
        graph = ctx.offload.graph()
        graph.add(wait_for_cancel, [ctx.offload.buffer(np.ones(4))], [ctx.offload.buffer(out)])
        await graph.execute()

    seen = await run_in_mode(Pipeline("stuck", [simulate]))

    assert seen.states == {"simulate": "timed_out/timeout"}
    assert let_go.wait(20)
    assert outs[0].tolist() == [0.0] * 4


@clause("OFF-901")
async def test_without_the_extra_the_body_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text names the extra; a pipeline that never asks does not notice."""
    monkeypatch.setitem(sys.modules, "towline.offload", None)

    @module
    async def simulate(ctx: Context) -> str:
        with pytest.raises(OffloadUnavailableError, match=r"towline\[offload\]"):
            ctx.offload  # noqa: B018
        return "told"

    seen: SeenRun = await run_in_mode(Pipeline("without", [simulate]))

    assert seen.value(simulate) == "told"


def test_a_run_that_does_not_ask_loads_no_numpy() -> None:
    """Off means absent: the start-up of every other pipeline must not pay for arrays."""
    program = (
        "import sys\nfrom towline import Context, Pipeline, module\n"
        "@module\nasync def body(ctx: Context) -> int:\n    return 1\n"
        "Pipeline('plain', [body]).run_sync()\n"
        "sys.exit('numpy' in sys.modules or 'towline.offload' in sys.modules)\n"
    )
    source = Path(__file__).resolve().parents[2] / "src"
    ended = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(source)}, cwd=Path(__file__).parent, timeout=60
    )

    assert ended.returncode == 0


def test_the_program_of_the_documentation_runs(tmp_path: Path) -> None:
    """What the type checkers accept as a user's program also runs, its kernel in a process for its time limit."""
    program = (
        "import usage_offload\nfrom towline import Pipeline\n"
        "report = Pipeline('usage', [usage_offload.simulate]).run_sync()\n"
        "print(repr(report.outcome_of(usage_offload.simulate).value))\n"
    )
    tests = Path(__file__).resolve().parents[1]
    path = os.pathsep.join([str(tests.parent / "src"), str(tests / "typing")])
    ended = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path, timeout=100,
        capture_output=True, text=True,
    )  # fmt: skip

    expected = np.ones((64, 64))
    for _ in range(10):
        expected = expected * 0.1
    assert ended.stdout.strip() == repr(float(expected.sum())), ended.stderr
