"""What goes wrong with kernels, buffers and their workers (spec/offload.md section 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from towline.errors.root import TowlineError

if TYPE_CHECKING:
    from collections.abc import Sequence


class OffloadError(TowlineError):
    """Anything that the offload room reports."""


class KernelDeclarationError(OffloadError):
    """A kernel was declared in a way that cannot work (OFF-103)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, kernel: str, field: str, problem: str) -> None:
        super().__init__(kernel, field, problem)
        self.kernel, self.field, self.problem = kernel, field, problem

    def __str__(self) -> str:
        return f"Kernel {self.kernel!r} is declared wrongly: {self.field} {self.problem}."


class DuplicateKernelError(OffloadError):
    """Two functions claim one kernel name (OFF-102)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, kernel: str, first: str, second: str) -> None:
        super().__init__(kernel, first, second)
        self.kernel, self.first, self.second = kernel, first, second

    def __str__(self) -> str:
        return (
            f"Kernel {self.kernel!r} is declared by {self.first} and again by {self.second}. "
            "Give one of them another name: the name is all that travels."
        )


class UnknownKernelError(OffloadError):
    """A name that no kernel of this process has (OFF-306)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, kernel: str, near: str, known: int) -> None:
        super().__init__(kernel, near, known)
        self.kernel, self.near, self.known = kernel, near, known

    def __str__(self) -> str:
        return (
            f"No kernel is called {self.kernel!r} here ({self.known} are registered).{self.near} "
            "Import the module that declares it, or pass host= with a function of this process."
        )


class ParameterError(OffloadError):
    """An argument of a call does not fit the kernel (OFF-105)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, kernel: str, parameter: str, expected: str, given: str) -> None:
        super().__init__(kernel, parameter, expected, given)
        self.kernel, self.parameter, self.expected, self.given = kernel, parameter, expected, given

    def __str__(self) -> str:
        return f"Kernel {self.kernel!r} takes {self.parameter}: {self.expected}, and got {self.given}. Correct the argument."


class BufferTypeError(OffloadError):
    """An array that cannot be a buffer as it is (OFF-203, OFF-204, OFF-206)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, buffer: str, problem: str, advice: str) -> None:
        super().__init__(buffer, problem, advice)
        self.buffer, self.problem, self.advice = buffer, problem, advice

    def __str__(self) -> str:
        return f"{self.buffer} cannot be used as a buffer: {self.problem}. {self.advice}"


class UnregisteredBufferError(OffloadError):
    """An array must go to a worker and was never registered (OFF-201)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, kernel: str, position: int) -> None:
        super().__init__(kernel, position)
        self.kernel, self.position = kernel, position

    def __str__(self) -> str:
        return (
            f"Array {self.position} of kernel {self.kernel!r} is not registered, and place='remote' must send it. "
            "Pass runtime.buffer(array) instead of the array."
        )


class BufferBusyError(OffloadError):
    """A buffer is in use by an unfinished call, or split (OFF-210, OFF-212, OFF-213)."""

    def __init__(self, buffer: str, operation: str, holder: str) -> None:
        super().__init__(buffer, operation, holder)
        self.buffer, self.operation, self.holder = buffer, operation, holder

    def __str__(self) -> str:
        return f"Cannot {self.operation} {self.buffer}: {self.holder} still uses it. Wait for that to end first."


class BufferReleasedError(OffloadError):
    """A buffer was used after its release (OFF-213)."""

    def __init__(self, buffer: str, operation: str) -> None:
        super().__init__(buffer, operation)
        self.buffer, self.operation = buffer, operation

    def __str__(self) -> str:
        return f"Cannot {self.operation} {self.buffer}: it was released. Register the array again for a new buffer."


class GraphStateError(OffloadError):
    """A graph was changed or started while it runs (OFF-309)."""

    def __init__(self, graph: str, operation: str, problem: str = "it is running") -> None:
        super().__init__(graph, operation, problem)
        self.graph, self.operation, self.problem = graph, operation, problem

    def __str__(self) -> str:
        return f"Cannot {self.operation} graph {self.graph!r}: {self.problem}. Do it before, or make another graph."


class KernelFailedError(OffloadError):
    """A kernel raised, returned a value, or wrote arrays of another shape (OFF-615, OFF-110, OFF-509).

    ``kind`` is a code of the RESULT message; ``causes`` are the texts of its cause chain, nearest first.
    """

    def __init__(
        self,
        kernel: str,
        call: int,
        worker: str,
        kind: str,
        type_name: str,
        message: str,
        traceback: str = "",
        causes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(kernel, call, worker, kind, type_name, message, traceback, causes)
        self.kernel, self.call, self.worker, self.kind = kernel, call, worker, kind
        self.type_name, self.message, self.traceback, self.causes = type_name, message, traceback, causes

    def __str__(self) -> str:
        chain = "".join(f"\n  because of {cause}" for cause in self.causes)
        trace = f"\n{self.traceback}" if self.traceback else ""
        return (
            f"Kernel {self.kernel!r} failed in call {self.call} on {self.worker} ({self.kind}): "
            f"{self.type_name}: {self.message}. Mend the kernel; it is not retried.{chain}{trace}"
        )


class KernelTimeoutError(OffloadError):
    """A kernel ran longer than its time limit (OFF-113)."""

    def __init__(self, kernel: str, call: int, worker: str, limit_s: float, elapsed_s: float) -> None:
        super().__init__(kernel, call, worker, limit_s, elapsed_s)
        self.kernel, self.call, self.worker, self.limit_s, self.elapsed_s = kernel, call, worker, limit_s, elapsed_s

    def __str__(self) -> str:
        return (
            f"Kernel {self.kernel!r} ran {self.elapsed_s:.3f} s in call {self.call} on {self.worker}; its limit is "
            f"{self.limit_s:g} s. Raise time_limit_s if that is its normal length; it is not retried."
        )


class KernelCrashedError(OffloadError):
    """The process of a kernel died each time it was tried (OFF-616)."""

    def __init__(self, kernel: str, call: int, status: str, workers: tuple[str, ...]) -> None:
        super().__init__(kernel, call, status, workers)
        self.kernel, self.call, self.status, self.workers = kernel, call, status, workers

    def __str__(self) -> str:
        return (
            f"The process that ran kernel {self.kernel!r} died in call {self.call} ({self.status}), "
            f"on {', '.join(self.workers)}. Look at its memory use and at its native code."
        )


class GraphFailedError(OffloadError):
    """One or more calls of a graph failed (OFF-310). ``failures`` holds their errors in declaration order."""

    def __init__(self, graph: str, failed: tuple[str, ...], failures: Sequence[Exception] = ()) -> None:
        super().__init__(graph, failed, failures)
        self.graph, self.failed, self.failures = graph, failed, tuple(failures)

    def __str__(self) -> str:
        shown = ", ".join(self.failed[:10]) + (", …" if len(self.failed) > 10 else "")
        first = f" First: {self.failures[0]}" if self.failures else ""
        count = f"{len(self.failed)} call{'s' if len(self.failed) != 1 else ''}"
        return f"Graph {self.graph!r}: {count} failed ({shown}). What was committed before stays.{first}"


class GraphTimeoutError(OffloadError):
    """``execute(timeout_s=...)`` ran out (OFF-311)."""

    def __init__(self, graph: str, timeout_s: float, unfinished: int) -> None:
        super().__init__(graph, timeout_s, unfinished)
        self.graph, self.timeout_s, self.unfinished = graph, timeout_s, unfinished

    def __str__(self) -> str:
        return (
            f"Graph {self.graph!r} did not end within {self.timeout_s:g} s; {self.unfinished} calls were cancelled. "
            "Raise timeout_s, or look at runtime.explain(call) of the slow ones."
        )


class OffloadUnavailableError(OffloadError):
    """A call or a caller needs workers and there are none that fit (OFF-308, OFF-901)."""

    def __init__(self, what: str, waited_s: float, live: int, left_out: tuple[str, ...] = ()) -> None:
        super().__init__(what, waited_s, live, left_out)
        self.what, self.waited_s, self.live, self.left_out = what, waited_s, live, left_out

    def __str__(self) -> str:
        why = f" Left out: {'; '.join(self.left_out[:8])}." if self.left_out else ""
        return (
            f"{self.what}: no worker after {self.waited_s:.1f} s ({self.live} live).{why} "
            "Start one with `towline offload worker MODULE --master HOST:PORT`, or use place='auto'."
        )


class HandshakeRejectedError(OffloadError):
    """The master refused this worker for good (section 6, REJECT)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text

    def __str__(self) -> str:
        return f"The master rejected this worker ({self.code}): {self.text}. Align versions, kernels or token."


class FrameError(OffloadError):
    """Bytes that are no frame. Raised inside a link alone, which closes for it."""

    def __init__(self, offset: int, field: str, problem: str, peer: str = "") -> None:
        super().__init__(offset, field, problem, peer)
        self.offset, self.field, self.problem, self.peer = offset, field, problem, peer

    def __str__(self) -> str:
        return (
            f"Invalid frame from {self.peer or 'the peer'} at offset {self.offset}: {self.field} {self.problem}. "
            "Both ends must be Towline of one major version."
        )


class RetryableKernelError(OffloadError):
    """Raise it in a kernel to have the call tried elsewhere (OFF-615)."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message or "The kernel asked to be tried again."


class InvariantViolated(OffloadError):
    """A rule that must never break did (OFF-955). ``trace`` holds the last events before it."""

    def __init__(self, clause: str, problem: str, trace: tuple[str, ...] = ()) -> None:
        super().__init__(clause, problem, trace)
        self.clause, self.problem, self.trace = clause, problem, trace

    def __str__(self) -> str:
        tail = "".join(f"\n  {line}" for line in self.trace[-200:])
        return f"{self.clause} is violated: {self.problem}. Report this with the trace (or the seed).{tail}"
