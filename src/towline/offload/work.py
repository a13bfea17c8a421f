"""One run of one kernel or host function, as threads and processes get it (OFF-107 to OFF-110)."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from towline.offload import cancellation
from towline.offload.messages import ErrorReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.offload.arrays import Array, DType
    from towline.offload.cancellation import CancelFlag
    from towline.offload.kernels import Kernel

TEXT_LIMIT = 64 * 1024
MAY_STILL_RUN = ("cancelled", "drained", "time_limit")
"""Kinds of failure that are told while the kernel may still run, read and write: a thread cannot be stopped."""


class Output:
    """One array that a run writes: fresh, or over given memory; ``start`` is the old content of an in-out array."""

    __slots__ = ("dtype", "memory", "segment", "shape", "start")

    def __init__(
        self, dtype: DType, shape: tuple[int, ...], start: Array | None = None, memory: Array | None = None,
        segment: tuple[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.dtype, self.shape, self.start, self.memory, self.segment = dtype, shape, start, memory, segment

    def make(self, overwrites: bool) -> Array:
        """Return the array to write into: zeros, the old bytes, or anything if all of it will be overwritten."""
        if self.memory is not None:
            if self.start is not None:
                self.memory[...] = self.start
            elif not overwrites:
                self.memory.reshape(-1).view(np.uint8)[...] = 0
            return self.memory
        if self.start is not None:
            return self.start.copy()
        return np.empty(self.shape, self.dtype) if overwrites else np.zeros(self.shape, self.dtype)


class Work:
    """What to run, on what, and whom to tell: exactly one of ``on_done`` and ``on_failed``, in the loop's thread."""

    __slots__ = (
        "body",
        "cancel",
        "input_segments",
        "inputs",
        "is_host",
        "kernel",
        "limit_s",
        "on_done",
        "on_failed",
        "outputs",
        "params",
        "settled",
    )  # fmt: skip

    def __init__(
        self, body: Callable[..., None], kernel: Kernel | None, inputs: list[Array], outputs: list[Output], params: dict[str, Any],
        limit_s: float | None, cancel: CancelFlag, *, on_done: Callable[[list[Array], float], None],
        on_failed: Callable[[ErrorReport, float], None], input_segments: list[tuple[str, int] | None] | None = None,
        is_host: bool = False,
    ) -> None:  # fmt: skip
        self.body, self.kernel, self.inputs, self.outputs, self.params = body, kernel, inputs, outputs, params
        self.limit_s, self.cancel, self.on_done, self.on_failed = limit_s, cancel, on_done, on_failed
        self.input_segments = input_segments
        self.is_host = is_host
        self.settled = False


class Runner(Protocol):
    """Runs work, in threads or in processes."""

    def start(self, work: Work) -> None:
        """Begin; the outcome is told later, never from inside this call."""
        ...

    def stop(self, work: Work) -> None:
        """Nobody wants the result: end it if that can be done. Its outcome is told all the same."""
        ...

    def close(self) -> None:
        """Stop everything."""
        ...


def run_here(work: Work) -> list[Array] | ErrorReport:
    """Run in this thread; what the body raises becomes a report."""
    cancellation.enter(work.cancel)
    try:
        kernel = work.kernel
        outputs = [output.make(kernel is not None and kernel.overwrites) for output in work.outputs]
        if kernel is not None and kernel.variadic:
            returned: object = work.body(work.inputs, outputs, **work.params)
        else:
            returned = work.body(*work.inputs, *outputs, **work.params)
        if returned is not None and not work.is_host:
            return ErrorReport(
                "bad_return", type(returned).__name__, "a kernel returns nothing; it writes into its outputs"
            )
        return outputs
    except MemoryError as error:
        return ErrorReport("no_memory", "MemoryError", str(error), "", True)
    except Exception as error:  # noqa: BLE001 - a kernel is foreign code: its error is a record from here on
        return report_of(error)
    finally:
        cancellation.enter(None)


def report_of(error: BaseException) -> ErrorReport:
    """Write an error as texts, each at most 64 KiB (OFF-805)."""
    from towline.errors.offload import RetryableKernelError

    causes: list[str] = []
    link = error.__cause__ or error.__context__
    while link is not None and len(causes) < 16:
        causes.append(_cut(f"{type(link).__name__}: {link}"))
        link = link.__cause__ or link.__context__
    retryable = isinstance(error, RetryableKernelError)
    trace = "".join(traceback.format_exception(error))
    return ErrorReport(
        "retryable" if retryable else "kernel_error",
        type(error).__name__,
        _cut(_text(error)),
        _cut(trace),
        retryable,
        causes,
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - an error whose text cannot be made is still reported
        return f"<its text cannot be made: {type(broken).__name__}>"


def _cut(text: str) -> str:
    return text[:TEXT_LIMIT]
