"""An event loop whose time jumps to the next timer: hours of waiting cost milliseconds (TEST-04, TEST-05)."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import threading
from random import Random
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from towline.errors.virtual_time import RealTimeError, VirtualDeadlockError
from towline.testing.waiters import describe_waiters

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Coroutine
    from contextvars import Context

T = TypeVar("T")
Seed = int | Literal["random"] | None

SEED_VARIABLE = "TOWLINE_TEST_SEED"

_BUSY_TURNS = 1_000
"""Turns at one moment after which a turn costs time: a spin (a body that swallows its cancellation,
a loop over ``sleep(0)``) must reach the deadline that ends it."""
_BUSY_TURN_S = 1e-4
_HOLD_LIMIT_S = 30.0
"""Real seconds that a thread may hold the clock before the run is given up."""


class ClockHold:
    """A thread's claim on the clock: virtual time stands still until it is released.

    Taken with :meth:`VirtualLoop.hold_clock` on the loop's thread *before* the thread starts, released by the
    thread after its last call into the loop. A thread that waits for the loop gives the clock back meanwhile:
    it calls :meth:`pause`, and the loop calls :meth:`resume` before it hands over the answer.
    """

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self._loop = loop
        self._claims = 0

    def pause(self) -> None:
        """Let time go on. Each pause needs its :meth:`resume`; which of the two comes first does not matter."""
        self._loop._claim(self, -1)

    def resume(self) -> None:
        """Hold the clock again."""
        self._loop._claim(self, +1)

    def release(self) -> None:
        """Let go for good; harmless when it was done before."""
        self._loop._claim(self, -self._claims)

    def __enter__(self) -> ClockHold:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class _OrderedTask(asyncio.Task[Any]):
    """A task that hashes by its number: sets of tasks then iterate alike in every process (exact replay)."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _OrderedTimer(asyncio.TimerHandle):
    """A timer that comes after those set before it for the same moment, which virtual time makes common."""

    __slots__ = ("number",)
    _when: float
    _scheduled: bool

    def __init__(self, number: int, when: float, *options: Any) -> None:
        super().__init__(when, *options)
        self.number = number

    def __lt__(self, other: Any) -> bool:
        return (self._when, self.number) < (other._when, other.number)


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio event loop on virtual time, starting at second 0.

    Callbacks that are ready run in order, or shuffled by ``seed``. When none is ready, time jumps to the
    next timer; without any, :class:`VirtualDeadlockError` lists who waits. Sockets, pipes, subprocesses and
    signals raise :class:`RealTimeError`. ``run_in_executor`` works: its thread holds the clock.
    """

    # What asyncio's own ``_run_once`` works on; the same in 3.11 to 3.13.
    _ready: deque[Any]
    _scheduled: list[Any]
    _stopping: bool
    _thread_id: int | None
    _check_closed: Callable[[], None]

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self.seed = seed
        self._random = None if seed is None else Random(seed)
        self._now = 0.0
        self._clock_resolution = 1e-6
        self._busy_turns = 0
        self._holds: set[ClockHold] = set()
        self._wake = threading.Condition()
        self._foreign_call: RealTimeError | None = None
        self._numbers = itertools.count()
        self.set_task_factory(self._make_task)

    # -------------------------------------------------------------- time

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule at a virtual moment; timers of one moment run in the order they were set."""
        self._check_closed()
        timer = _OrderedTimer(next(self._numbers), when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def hold_clock(self, name: str = "a thread") -> ClockHold:
        """Let a thread that is about to start hold the clock; ``name`` is for the error text."""
        hold = ClockHold(self, name)
        hold.resume()
        return hold

    def _claim(self, hold: ClockHold, change: int) -> None:
        with self._wake:
            hold._claims += change
            (self._holds.add if hold._claims > 0 else self._holds.discard)(hold)
            self._wake.notify_all()

    # -------------------------------------------------------------- one turn

    def _run_once(self) -> None:
        """Run one turn; called by ``run_forever`` in place of asyncio's own, which polls a selector."""
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False
        if self._foreign_call is not None:
            error, self._foreign_call = self._foreign_call, None
            raise error
        if not self._ready and not self._stopping:
            self._move_time()
        elif self._busy_turns < _BUSY_TURNS:
            self._busy_turns += 1
        else:
            self._now += _BUSY_TURN_S
        due = self._now + self._clock_resolution
        while self._scheduled and self._scheduled[0]._when < due:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False
            self._ready.append(timer)
        turn = [self._ready.popleft() for _ in range(len(self._ready))]
        if self._random is not None:
            self._random.shuffle(turn)
        for handle in turn:
            if not handle._cancelled:
                handle._run()

    def _move_time(self) -> None:
        """Wait for the threads that hold the clock, else jump to the next timer."""
        with self._wake:
            if self._holds:
                if not self._wake.wait_for(lambda: self._ready or not self._holds, timeout=_HOLD_LIMIT_S):
                    holders = tuple(f"thread {hold.name!r} holds the clock" for hold in self._holds)
                    raise VirtualDeadlockError(self._now, (*holders, *describe_waiters(self)))
                return
        if not self._scheduled:
            raise VirtualDeadlockError(self._now, describe_waiters(self))
        self._now = max(self._now, self._scheduled[0]._when)
        self._busy_turns = 0

    # -------------------------------------------------------------- threads

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule from a thread that holds the clock, or from the loop's own.

        Raises:
            RealTimeError: No thread holds the clock; also raised by the loop itself at its next turn.
        """
        with self._wake:
            if not self._holds and self.is_running() and self._thread_id != threading.get_ident():
                self._foreign_call = RealTimeError(f"a call from thread {threading.current_thread().name!r}")
                raise self._foreign_call
            handle = self.call_soon(callback, *args, context=context)
            self._wake.notify_all()
        return handle

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Call in a thread of its own that holds the clock; ``executor`` is not used."""
        future: asyncio.Future[T] = self.create_future()
        hold = self.hold_clock(getattr(func, "__qualname__", repr(func)))

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def work() -> None:
            with hold:
                try:
                    result = func(*args)
                except BaseException as error:  # noqa: BLE001 - it is the caller's, in its future
                    self.call_soon_threadsafe(settle, None, error)
                else:
                    self.call_soon_threadsafe(settle, result, None)

        threading.Thread(target=work, daemon=True).start()
        return future

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> _OrderedTask:
        return _OrderedTask(next(self._numbers), coro, loop=loop, **options)


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(self: VirtualLoop, *args: object, **options: object) -> NoReturn:
        raise RealTimeError(f"loop.{name}()")

    refuse.__name__ = name
    return refuse


for _name in (
    *("add_reader", "remove_reader", "add_writer", "remove_writer", "add_signal_handler", "remove_signal_handler"),
    *("sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto"),
    *("sock_connect", "sock_accept", "sock_sendfile", "sendfile", "getaddrinfo", "getnameinfo", "start_tls"),
    *("create_connection", "create_server", "create_unix_connection", "create_unix_server"),
    *("create_datagram_endpoint", "connect_accepted_socket", "connect_read_pipe", "connect_write_pipe"),
    *("subprocess_exec", "subprocess_shell"),
):
    setattr(VirtualLoop, _name, _refuse(_name))


def chosen_seed(seed: Seed) -> int | None:
    """Say which seed a run uses: that of ``TOWLINE_TEST_SEED`` in place of one given or asked for; ``None`` stays."""
    if seed is None:
        return None
    given = os.environ.get(SEED_VARIABLE)
    if given:
        return int(given)
    return Random().getrandbits(32) if seed == "random" else seed


def run_virtual(coro: Coroutine[Any, Any, T], *, seed: Seed = None) -> T:
    """Run a coroutine to its end on a fresh :class:`VirtualLoop` and return its result.

    ``seed``: shuffle ready callbacks by it, or by a fresh one (``"random"``); ``None`` keeps their order.
    A run that fails says its seed, and ``TOWLINE_TEST_SEED`` repeats it exactly. Tasks that are left at the
    end are cancelled. anyio works inside, with its asyncio back end.

    Raises:
        VirtualDeadlockError: Everything waits for something that cannot happen.
    """
    loop = VirtualLoop(chosen_seed(seed))
    runner = asyncio.Runner(loop_factory=lambda: loop)
    try:
        result = runner.run(coro)
    except BaseException as error:
        if loop.seed is not None:
            error.add_note(f"ready callbacks were shuffled; {SEED_VARIABLE}={loop.seed} repeats this run exactly")
        _close_after_failure(runner, error)
        raise
    runner.close()
    return result


def _close_after_failure(runner: asyncio.Runner, error: BaseException) -> None:
    try:
        runner.close()
    except (VirtualDeadlockError, RealTimeError) as second:
        # The tasks of a failed run are often stuck for the reason it failed for: the first error is the one to read.
        error.add_note(f"and while its tasks were cancelled: {second}")
