"""Kernels that are shorter than the way to a thread run in the loop; whoever is not, or stops being so, does not."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from offload_kernels import REGISTRY

from towline.offload.cancellation import CancelFlag
from towline.offload.quick import PROVEN_RUNS, QUICK_BYTES, QUICK_S, QuickKernels
from towline.offload.threads import ThreadRunner
from towline.offload.work import Output, Work
from towline.testing import clause

KERNEL = REGISTRY.get("t.scale")


def work(*, nbytes: int = 64, limit_s: float | None = None, done: Any = None, **params: Any) -> Work:
    """One run of a kernel that notes its thread in its output."""

    def body(source: Any, out: Any, **_: Any) -> None:
        out[0] = threading.get_ident()

    return Work(
        body, KERNEL, [np.zeros(nbytes // 8)], [Output(np.dtype(float), (1,))], params, limit_s, CancelFlag(),
        on_done=done or (lambda arrays, seconds: None), on_failed=lambda report, seconds: pytest.fail(report.message),
    )  # fmt: skip


def proven(times: int = PROVEN_RUNS) -> QuickKernels:
    """A memory of so many quick runs."""
    quick = QuickKernels()
    for _ in range(times):
        quick.observe(work(), QUICK_S / 2, in_loop=False)
    return quick


@clause("OFF-112")
def test_a_kernel_must_prove_that_it_is_quick() -> None:
    """A kernel in the loop keeps the agent from answering: only small, unlimited runs of a proven one may."""
    assert not proven(PROVEN_RUNS - 1).is_quick(work())
    quick = proven()

    assert quick.is_quick(work())
    assert not quick.is_quick(work(by=2.0))
    assert not quick.is_quick(work(nbytes=QUICK_BYTES + 8))
    assert not quick.is_quick(work(limit_s=1.0))


@clause("OFF-112")
def test_a_slow_run_in_the_loop_costs_its_place_there() -> None:
    """Data may make a quick kernel slow: each time in the loop it has to prove twice as much before the next."""
    quick = proven()
    quick.observe(work(), QUICK_S * 2, in_loop=True)
    for _ in range(2 * PROVEN_RUNS - 1):
        quick.observe(work(), QUICK_S / 2, in_loop=False)
    assert not quick.is_quick(work())

    quick.observe(work(), QUICK_S / 2, in_loop=False)

    assert quick.is_quick(work())


def test_a_busy_machine_is_forgiven() -> None:
    """A run that the system interrupted looks slow; without an end to the doubling the loop would be lost for ever."""
    quick = proven()
    quick.observe(work(), 1.0, in_loop=True)
    for _ in range(4 * PROVEN_RUNS):
        quick.observe(work(), QUICK_S / 2, in_loop=True)

    quick.observe(work(), 1.0, in_loop=True)
    for _ in range(2 * PROVEN_RUNS):
        quick.observe(work(), QUICK_S / 2, in_loop=False)

    assert quick.is_quick(work())


def test_what_always_changes_is_forgotten() -> None:
    """A parameter that is another one in every call must not let the memory grow."""
    quick = QuickKernels()
    for number in range(1_000):
        quick.observe(work(seed=number), QUICK_S / 2, in_loop=False)

    assert len(quick._known) == 256


@clause("OFF-112")
def test_a_proven_kernel_runs_in_the_loop_and_tells_later() -> None:
    """The runner's promise holds in both places: the outcome is never told from inside ``start``."""

    async def run_until_quick() -> set[int]:
        loop = asyncio.get_running_loop()
        runner = ThreadRunner(loop, 1, lambda: None)
        threads: set[int] = set()
        for _ in range(1_000):
            told: asyncio.Future[Any] = loop.create_future()

            def done(arrays: Any, seconds: float, told: asyncio.Future[Any] = told) -> None:
                told.set_result(int(arrays[0][0]))

            runner.start(work(done=done))
            assert not told.done()
            threads.add(await asyncio.wait_for(told, 20))
            if threading.get_ident() in threads:
                break
        runner.close()
        return threads

    threads = asyncio.run(run_until_quick())

    assert threading.get_ident() in threads
    assert len(threads) == 2
