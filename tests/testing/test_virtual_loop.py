"""The virtual-time loop, proven by what the suite relies on."""

from __future__ import annotations

import asyncio
import threading

import anyio
import anyio.to_thread
import pytest

from towline.errors.virtual_time import RealTimeError, VirtualDeadlockError
from towline.testing import clause
from towline.testing.virtual_loop import SEED_VARIABLE, VirtualLoop, run_virtual


@clause("TEST-04")
def test_hours_cost_no_time() -> None:
    """A lease of a week is waited out exactly, timers in order."""

    async def main() -> list[tuple[float, str]]:
        seen = []

        async def wait(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((asyncio.get_running_loop().time(), name))

        await asyncio.gather(wait("week", 7 * 86_400), wait("hour", 3_600), wait("tick", 0.25))
        return seen

    assert run_virtual(main()) == [(0.25, "tick"), (3_600, "hour"), (604_800, "week")]


def test_anyio_scopes_and_groups_follow_virtual_time() -> None:
    """The engine is written with anyio: its deadlines and shields must see the jumps."""

    async def main() -> tuple[bool, float]:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 50)
            with anyio.move_on_after(20) as scope:
                await anyio.sleep(600)
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + 5):
                await anyio.sleep(600)
        return scope.cancelled_caught, anyio.current_time()

    assert run_virtual(main()) == (True, 50)


@clause("TEST-04")
def test_wait_without_timer_names_the_waiters() -> None:
    """A lost wake-up must not hang the suite: it ends at once and says who waits where."""

    async def never() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(never, name="the forgotten one")
            await asyncio.sleep(9)
            await never()

    with pytest.raises(VirtualDeadlockError) as caught:
        run_virtual(main())
    assert caught.value.now_s == 9
    assert any(
        "the forgotten one" in waiter and "test_virtual_loop.py" not in waiter for waiter in caught.value.waiters
    )
    assert len(caught.value.waiters) == 2


@pytest.mark.parametrize(
    "act",
    [
        lambda: asyncio.open_connection("127.0.0.1", 9),
        lambda: asyncio.create_subprocess_exec("true"),
        lambda: asyncio.start_server(print, "127.0.0.1", 0),
    ],
)
@clause("TEST-04")
def test_real_input_and_output_are_refused(act: object) -> None:
    """A real socket in a simulation would make it depend on the machine."""

    async def main() -> None:
        await act()  # type: ignore[operator]

    with pytest.raises(RealTimeError, match="takes real time"):
        run_virtual(main())


@clause("TEST-04")
def test_registered_thread_holds_the_clock() -> None:
    """A sync body in a thread takes no virtual time, however long it really runs."""
    may_end = threading.Event()

    async def main() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        late = loop.create_task(asyncio.sleep(5))
        loop.call_soon(may_end.set)
        value = await loop.run_in_executor(None, lambda: "done" if may_end.wait(10) else "stuck")
        at = loop.time()
        await late
        return value, at

    assert run_virtual(main()) == ("done", 0)


def test_thread_that_waits_for_the_loop_lets_time_go_on() -> None:
    """A sync body that asks the loop to sleep would stop the clock it waits for."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        hold = loop.hold_clock("body")
        ended, answered = asyncio.Event(), threading.Event()

        async def answer() -> None:
            await asyncio.sleep(30)
            hold.resume()
            answered.set()

        def body() -> None:
            with hold:
                loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(answer())))
                hold.pause()
                assert answered.wait(10)
                loop.call_soon_threadsafe(ended.set)

        tasks: list[asyncio.Task[None]] = []
        threading.Thread(target=body).start()
        await ended.wait()
        return loop.time()

    assert run_virtual(main()) == 30


@clause("TEST-04")
def test_unregistered_thread_is_refused() -> None:
    """Its call would come at a moment that no seed repeats."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        errors: list[BaseException] = []

        def intrude() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except RealTimeError as error:
                errors.append(error)

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        assert len(errors) == 1
        await asyncio.sleep(0)

    with pytest.raises(RealTimeError, match="thread"):
        run_virtual(main())


async def order_of_ten() -> list[int]:
    """Let ten tasks that are ready at once write down their turn."""
    seen: list[int] = []

    async def note(number: int) -> None:
        await asyncio.sleep(1)
        seen.append(number)

    await asyncio.gather(*map(note, range(10)))
    return seen


@clause("TEST-05")
def test_ready_callbacks_run_in_order_or_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interleaving that a seed found must come back with that seed, and only with it."""
    monkeypatch.delenv(SEED_VARIABLE, raising=False)
    assert run_virtual(order_of_ten()) == list(range(10))
    orders = {seed: run_virtual(order_of_ten(), seed=seed) for seed in range(5)}
    assert len({tuple(order) for order in orders.values()}) == 5
    assert orders == {seed: run_virtual(order_of_ten(), seed=seed) for seed in range(5)}


@clause("TEST-05")
def test_failure_says_its_seed_and_the_variable_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A red run in CI is worth its seed alone."""
    monkeypatch.delenv(SEED_VARIABLE, raising=False)

    async def fails() -> None:
        raise AssertionError(await order_of_ten())

    with pytest.raises(AssertionError) as caught:
        run_virtual(fails(), seed="random")
    note = caught.value.__notes__[0]
    seed = note.split(f"{SEED_VARIABLE}=")[1].split()[0]

    monkeypatch.setenv(SEED_VARIABLE, seed)
    with pytest.raises(AssertionError) as again:
        run_virtual(fails(), seed=1)
    assert again.value.args == caught.value.args


def test_spin_reaches_the_deadline_that_ends_it() -> None:
    """A body that swallows its cancellation is always ready: time must still come to its end."""

    async def main() -> int:
        turns = 0
        with anyio.move_on_after(1):
            while True:
                await asyncio.sleep(0)
                turns += 1
        return turns

    assert 1_000 < run_virtual(main()) < 20_000


@pytest.mark.virtual_time(seeds=3)
async def test_marker_runs_async_tests_on_virtual_time(tmp_path: object) -> None:
    """Tests should not each need an inner main()."""
    await anyio.sleep(3_600)
    assert asyncio.get_running_loop().time() == 3_600
    assert tmp_path is not None
