"""Body threads: daemon threads that are used again and never waited for."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from contextvars import copy_context
from pathlib import Path

import pytest

import towline
from towline.execution.threads import ThreadPool, current_body
from towline.testing import VirtualLoop, clause

WAIT_S = 10.0
here: contextvars.ContextVar[str] = contextvars.ContextVar("here")


@pytest.mark.anyio
async def test_a_call_runs_in_its_context_and_gives_its_value() -> None:
    """Logs find their task by a context variable: it has to be there in the thread."""
    pool = ThreadPool()
    here.set("task")

    body = pool.start(
        lambda: (here.get(), threading.current_thread().daemon, current_body() is not None), copy_context()
    )

    assert await body.done == ("task", True, True)
    assert not body.is_alive()
    pool.close()


@pytest.mark.anyio
async def test_threads_are_used_again() -> None:
    """Starting a thread costs more than the call."""
    pool = ThreadPool()
    seen = [await pool.start(threading.get_ident, copy_context()).done for _ in range(5)]

    assert len(set(seen)) == 1
    pool.close()


@pytest.mark.anyio
@pytest.mark.parametrize("raised", [ValueError("x"), KeyboardInterrupt(), SystemExit(3)])
async def test_whatever_a_body_raises_reaches_who_awaits_it(raised: BaseException) -> None:
    """A thread that dies silently would leave its task running for ever."""

    def body() -> None:
        raise raised

    pool = ThreadPool()
    with pytest.raises(type(raised)):
        raise (await settled(pool.start(body, copy_context()).done))
    pool.close()


async def settled(done: asyncio.Future[None]) -> BaseException:
    await asyncio.wait((done,), timeout=WAIT_S)
    error = done.exception()
    assert error is not None
    return error


@pytest.mark.anyio
async def test_a_stop_iteration_is_carried_as_a_runtime_error() -> None:
    """No future can hold a StopIteration."""
    pool = ThreadPool()
    error = await settled(pool.start(lambda: next(iter(())), copy_context()).done)

    assert isinstance(error, RuntimeError)
    assert isinstance(error.__cause__, StopIteration)
    pool.close()


@clause("RUN-22")
@pytest.mark.anyio
async def test_the_top_frame_of_a_running_body_is_known() -> None:
    """An abandoned body is found by where it hangs."""
    begun, end = threading.Event(), threading.Event()

    def hangs_here() -> None:
        begun.set()
        while not end.wait(0.01):
            pass

    pool = ThreadPool()
    body = pool.start(hangs_here, copy_context())
    await asyncio.to_thread(begun.wait, WAIT_S)

    frame = next(text for _ in range(1000) if "hangs_here" in (text := body.top_frame()) or "wait" in text)
    assert ".py:" in frame
    assert body.is_alive()
    end.set()
    await asyncio.wait_for(body.done, WAIT_S)
    assert body.top_frame() == ""
    pool.close()


@clause("RUN-26")
def test_a_body_that_never_ends_does_not_hold_the_process() -> None:
    """Exit joins no body thread: they stand outside concurrent.futures."""
    program = """
import asyncio, contextvars, threading
from towline.execution.threads import ThreadPool
async def main():
    begun = threading.Event()
    ThreadPool().start(lambda: (begun.set(), threading.Event().wait()), contextvars.copy_context())
    begun.wait(10)
    print("leaving")
asyncio.run(main())
"""
    root = str(Path(towline.__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S, env={"PYTHONPATH": root}
    )

    assert (ended.returncode, ended.stdout) == (0, "leaving\n")


@clause("TEST-04")
def test_a_thread_holds_a_virtual_clock_while_it_runs() -> None:
    """Else virtual time would jump to the next timeout while the body works."""

    async def main() -> float:
        pool = ThreadPool()
        timer = asyncio.get_running_loop().call_later(3600, lambda: None)
        await pool.start(lambda: threading.Event().wait(0.05), copy_context()).done
        timer.cancel()
        pool.close()
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) < 1


@pytest.mark.anyio
async def test_closing_twice_is_harmless() -> None:
    """Whatever stops, stops twice without harm."""
    pool = ThreadPool()
    await pool.start(lambda: None, copy_context()).done
    pool.close()
    pool.close()
