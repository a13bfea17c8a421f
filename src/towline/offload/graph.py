"""A graph of calls: declared in order, executed as a whole (section 7.3)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, overload

from towline.errors.offload import (
    GraphFailedError,
    GraphStateError,
    GraphTimeoutError,
    KernelDeclarationError,
    ParameterError,
    UnknownKernelError,
    UnregisteredBufferError,
)
from towline.offload.buffers import Buffer
from towline.offload.calls import Call, GraphRun
from towline.offload.edges import AccessTracker
from towline.offload.kernels import KernelFunction, KernelRef
from towline.offload.parameters import bind_params
from towline.offload.records import CallId, GraphResult, Param, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from towline.offload.arrays import ArrayLike
    from towline.offload.runtime import Runtime

HOST_NAME = "host"
MAX_BUFFERS_PER_CALL = 4_096


class Graph:
    """Kernel calls in the order of their arrays; executed as a whole.

    Two calls that touch one buffer, one of them writing, run in the order in which they were added; all
    others may run at the same time, here or on workers. A graph may be executed again when it has ended.
    """

    def __init__(self, runtime: Runtime, name: str | None) -> None:
        self._runtime = runtime
        self._name = name or "graph"
        self._declared: list[Call] = []
        self._after: list[tuple[int, ...]] = []
        self._running = False

    @overload
    def add(
        self,
        kernel: KernelRef,
        reads: Sequence[Buffer | ArrayLike] = (),
        writes: Sequence[Buffer | ArrayLike] = (),
        params: Mapping[str, Param] | None = None,
        *,
        host: Callable[..., None] | None = None,
        after: Sequence[CallId] = (),
        name: str | None = None,
        priority: int = 0,
        place: Place = "auto",
        time_limit_s: float | None = None,
        result_deadline_s: float | None = None,
    ) -> CallId: ...

    @overload
    def add(
        self,
        kernel: None,
        reads: Sequence[Buffer | ArrayLike] = (),
        writes: Sequence[Buffer | ArrayLike] = (),
        params: Mapping[str, Param] | None = None,
        *,
        host: Callable[..., None],
        after: Sequence[CallId] = (),
        name: str | None = None,
        priority: int = 0,
        time_limit_s: float | None = None,
    ) -> CallId: ...

    def add(
        self,
        kernel: KernelRef | None,
        reads: Sequence[Buffer | ArrayLike] = (),
        writes: Sequence[Buffer | ArrayLike] = (),
        params: Mapping[str, Param] | None = None,
        *,
        host: Callable[..., None] | None = None,
        after: Sequence[CallId] = (),
        name: str | None = None,
        priority: int = 0,
        place: Place = "auto",
        time_limit_s: float | None = None,
        result_deadline_s: float | None = None,
    ) -> CallId:
        """Add a kernel call, or with None a step of this process; both are checked here.

        Args:
            kernel: The decorated function, or its name.
            reads: Arrays that it reads, in the order of its parameters.
            writes: Arrays that it writes; one that is in both lists is passed twice.
            params: Its keyword parameters.
            host: Replaces the body in local runs, with equal bytes by your promise.
            after: Calls of this graph that must have succeeded, though no array says so.
            name: For people.
            priority: Higher goes first among calls that are ready.
            place: ``auto``, ``local``, or ``remote``, which waits for a worker.
            time_limit_s: Longest run in seconds; None: as the kernel says.
            result_deadline_s: Longest wait for the result of one dispatch (OFF-622).

        Raises:
            GraphStateError: The graph is running.
            UnknownKernelError: Nobody has the name, and there is no ``host``.
            ParameterError: Arrays or parameters do not fit the kernel.
            UnregisteredBufferError: ``place="remote"`` with an array that is not registered.
            BufferTypeError: An array cannot be used, or a read-only one would be written.
        """
        if self._running:
            raise GraphStateError(self._name, "add to")
        function, label = self._resolve(kernel, host)
        if place not in ("auto", "local", "remote"):
            raise ParameterError(label, "place", "'auto', 'local' or 'remote'", repr(place))
        table = self._runtime._table
        read_buffers = tuple(self._buffer(table, item, label, place, i) for i, item in enumerate(reads))
        write_buffers = tuple(self._buffer(table, item, label, place, len(reads) + i) for i, item in enumerate(writes))
        if len(read_buffers) + len(write_buffers) > MAX_BUFFERS_PER_CALL:
            raise ParameterError(
                label, "arrays", f"at most {MAX_BUFFERS_PER_CALL}", str(len(read_buffers) + len(write_buffers))
            )
        if len({buffer.id for buffer in write_buffers}) != len(write_buffers):
            raise ParameterError(label, "writes", "each buffer once", "one buffer twice")
        for buffer in write_buffers:
            buffer._check_writable()
        bound = self._bound(function, label, len(reads), len(writes), params)
        index = len(self._declared)
        for earlier in after:
            if not 0 <= earlier < index:
                raise ParameterError(label, "after", f"calls of this graph below {index}", str(earlier))
        limit = (
            time_limit_s if time_limit_s is not None else function.kernel.time_limit_s if function is not None else None
        )
        if limit is not None and not 0 < limit < float("inf"):
            raise ParameterError(label, "time_limit_s", "seconds above 0", str(limit))
        self._declared.append(
            Call(
                index,
                function,
                label,
                read_buffers,
                write_buffers,
                bound,
                host,
                name,
                priority,
                place,
                limit,
                result_deadline_s,
            )
        )
        self._after.append(tuple(after))
        return CallId(index)

    def edges(self) -> tuple[tuple[CallId, CallId], ...]:
        """Return which call waits for which, sorted; it depends on the order of ``add`` and the buffers alone (OFF-303)."""
        tracker: AccessTracker[int] = AccessTracker()
        found: set[tuple[int, int]] = set()
        for call, after in zip(self._declared, self._after, strict=True):
            before = tracker.declare(call.index, [b.id for b in call.reads], [b.id for b in call.writes])
            found.update((earlier, call.index) for earlier in (*before, *after))
        return tuple((CallId(a), CallId(b)) for a, b in sorted(found))

    async def execute(self, *, keep_going: bool = False, timeout_s: float | None = None) -> GraphResult:
        """Run all calls and return when each is final.

        Args:
            keep_going: After a failure, run all that does not need what failed.
            timeout_s: Cancel all calls after this many seconds.

        Raises:
            GraphFailedError: Calls failed; it holds their errors. What was committed stays.
            GraphTimeoutError: ``timeout_s`` is over.
            GraphStateError: The graph is running already, or the runtime is not entered.
            BufferReleasedError, BufferBusyError: A buffer was released or split since ``add``.
        """
        if self._running:
            raise GraphStateError(self._name, "execute")
        engine = self._runtime._running_engine(self._name)
        for call in self._declared:
            for buffer in (*call.reads, *call.writes):
                buffer._check_usable("use")
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        run = GraphRun(
            self._name, [self._fresh(call) for call in self._declared], keep_going=keep_going,
            on_end=lambda _: None if ended.done() else ended.set_result(None),
        )  # fmt: skip
        expired = False

        def expire() -> None:
            nonlocal expired
            expired = True
            engine.cancel(run)

        began = loop.time()
        timer = loop.call_later(timeout_s, expire) if timeout_s is not None else None
        self._running = True
        try:
            engine.submit(run, self._after)
            await ended
        except asyncio.CancelledError:
            engine.cancel(run)
            raise
        finally:
            self._running = False
            if timer is not None:
                timer.cancel()
        return self._result(run, loop.time() - began, timeout_s if expired else None)

    def _result(self, run: GraphRun, elapsed_s: float, expired_s: float | None) -> GraphResult:
        self._runtime._check_fenced()
        if run.failed:
            failed = sorted(run.failed, key=lambda call: call.index)
            errors = tuple(call.error for call in failed if call.error is not None)
            raise GraphFailedError(self._name, tuple(call.label() for call in failed), errors)
        if expired_s is not None:
            unfinished = sum(call.phase.name == "CANCELLED" for call in run.calls)
            raise GraphTimeoutError(self._name, expired_s, unfinished)
        outcomes = tuple(call.outcome() for call in run.calls)
        declined: dict[str, int] = {}
        for outcome in outcomes:
            if outcome.ran_on == "local" and outcome.decline is not None:
                declined[outcome.decline.reason] = declined.get(outcome.decline.reason, 0) + 1
        result = GraphResult(
            calls=outcomes, offloaded=sum(call.shipped for call in run.calls), declined=declined,
            redispatched=run.redispatched, elapsed_s=elapsed_s, graph=self._name, workers=self._runtime._live_workers(),
        )  # fmt: skip
        self._runtime._log_result(result)
        return result

    def _fresh(self, call: Call) -> Call:
        return Call(
            call.index, call.function, call.kernel_name, call.reads, call.writes, call.params, call.host, call.name,
            call.priority, call.place, call.time_limit_s, call.result_deadline_s,
        )  # fmt: skip

    def _resolve(
        self, kernel: KernelRef | None, host: Callable[..., None] | None
    ) -> tuple[KernelFunction[...] | None, str]:
        if isinstance(kernel, KernelFunction):
            return kernel, kernel.kernel.name
        if kernel is None:
            if host is None:
                raise UnknownKernelError(
                    "None", " A call without kernel needs host=.", len(self._runtime._kernels.names())
                )
            return None, getattr(host, "__name__", HOST_NAME)
        if not isinstance(kernel, str):
            raise KernelDeclarationError(
                str(kernel)[:200], "kernel", "is no kernel: decorate the function with @kernel(name)"
            )
        if kernel in self._runtime._kernels:
            return self._runtime._kernels.function(kernel), kernel
        if host is not None:
            return None, kernel
        return self._runtime._kernels.function(kernel), kernel

    def _buffer(self, table: object, item: Buffer | ArrayLike, label: str, place: str, position: int) -> Buffer:
        if isinstance(item, Buffer):
            item._check_usable("use")
            if item._table is not table:
                raise ParameterError(label, f"array {position}", "a buffer of this runtime", "one of another runtime")
            return item
        buffer = self._runtime._table.visiting(item)
        if not buffer._registered and place == "remote":
            raise UnregisteredBufferError(label, position)
        return buffer

    def _bound(
        self,
        function: KernelFunction[...] | None,
        label: str,
        reads: int,
        writes: int,
        params: Mapping[str, Param] | None,
    ) -> dict[str, Param]:
        if function is None:
            return dict(params or {})
        kernel = function.kernel
        if not kernel.variadic:
            expected = (kernel.reads, kernel.writes)
            if reads + writes != sum(expected) or (kernel.splits and (reads, writes) != expected):
                text = f"{expected[0]} reads and {expected[1]} writes" if kernel.splits else f"{sum(expected)} in all"
                raise ParameterError(label, "arrays", text, f"{reads} reads and {writes} writes")
        return bind_params(label, kernel.params, params)
