"""The process that runs kernels apart: it imports their home, reads requests from its parent, writes replies (OFF-111).

A request is a msgpack array behind a 4-byte length; arrays are named segments of shared memory, small ones
ride along. Nothing is pickled, and code is found by name alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from towline.clock import SystemClock
from towline.offload.mappings import TIDY_EVERY_S, Mappings

if TYPE_CHECKING:
    from typing import BinaryIO

PR_SET_PDEATHSIG = 1
ArraySpec = tuple[str, list[int], tuple[str, int] | None, bytes | None]


class Request(msgspec.Struct, array_like=True):
    """One run. Arrays: dtype, shape, segment or bytes. ``starts[i]`` is the input that output i begins with, or -1."""

    home: str
    kernel: str
    reads: list[tuple[str, list[int], tuple[str, int] | None, bytes | None]]
    writes: list[tuple[str, list[int], tuple[str, int] | None]]
    starts: list[int]
    params: dict[str, Any]


class Reply(msgspec.Struct, array_like=True):
    """How it went: seconds, an error as (kind, type, message, traceback, retryable, causes), small outputs as bytes."""

    seconds: float
    error: tuple[str, str, str, str, bool, list[str]] | None
    outputs: list[bytes | None]


class SegmentGoneError(Exception):
    """A segment of a request is not there: a later version was committed meanwhile."""


def _mapped(mappings: Mappings, segment: tuple[str, int], nbytes: int, *, writable: bool) -> memoryview:
    view = mappings.view(segment, nbytes, writable=writable, filled=writable)
    if view is None:
        raise SegmentGoneError(f"segment {segment[0]} is gone")
    return view


def run(request: Request, mappings: Mappings, flag: Any) -> Reply:
    """Run one kernel."""
    from towline.offload.arrays import array_over, read_dtype
    from towline.offload.registry import DEFAULT_REGISTRY, KernelRegistry
    from towline.offload.work import Output, Work, report_of, run_here

    began = SystemClock.monotonic()
    try:
        known = request.kernel in DEFAULT_REGISTRY and DEFAULT_REGISTRY.get(request.kernel).home == request.home
        registry = DEFAULT_REGISTRY if known else KernelRegistry.from_module(request.home)
        function = registry.function(request.kernel)
        inputs = []
        for text, shape, segment, data in request.reads:
            dtype = read_dtype(text)
            size = dtype.itemsize
            for length in shape:
                size *= length
            memory = (
                _mapped(mappings, segment, size, writable=False)
                if segment is not None
                else memoryview(data or b"").toreadonly()
            )
            inputs.append(array_over(memory, dtype, tuple(shape)))
        outputs = []
        for (text, shape, segment), start in zip(request.writes, request.starts, strict=True):
            dtype = read_dtype(text)
            size = dtype.itemsize
            for length in shape:
                size *= length
            over = (
                array_over(_mapped(mappings, segment, size, writable=True), dtype, tuple(shape))
                if segment is not None and size
                else None
            )
            outputs.append(Output(dtype, tuple(shape), inputs[start] if start >= 0 else None, over, segment))
    except SegmentGoneError as error:  # whoever sent this call has given it up
        return Reply(0.0, ("stale_input", "Lost", str(error), "", True, []), [])
    except Exception as error:  # noqa: BLE001 - what a home raises on import is the call's failure
        report = report_of(error)
        return Reply(0.0, (report.kind, report.type_name, report.message, report.traceback, False, report.causes), [])
    flag.is_set = False
    work = Work(function.function, function.kernel, inputs, outputs, request.params, None, flag,
                on_done=lambda arrays, seconds: None, on_failed=lambda report, seconds: None)  # fmt: skip
    began = SystemClock.monotonic()
    outcome = run_here(work)
    seconds = SystemClock.monotonic() - began
    if not isinstance(outcome, list):
        error_fields = (
            outcome.kind,
            outcome.type_name,
            outcome.message,
            outcome.traceback,
            outcome.retryable,
            outcome.causes,
        )
        return Reply(seconds, error_fields, [])
    small = [
        array.tobytes() if output.segment is None else None for array, output in zip(outcome, outputs, strict=True)
    ]
    return Reply(seconds, None, small)


def _next(link: socket.socket, stream: BinaryIO, mappings: Mappings) -> bytes:
    """Wait for the length of the next request; while there is none, memory that was unlinked is let go of.

    A request comes only after the reply to the one before, so nothing of it waits in the stream's buffer.
    """
    while len(mappings) and not select.select([link], [], [], TIDY_EVERY_S)[0]:
        mappings.tidy(SystemClock.monotonic())
    return stream.read(4)


def main() -> None:
    """Serve the parent on the inherited socket, until it closes it or dies."""
    parent = int(sys.argv[2])
    with contextlib.suppress(OSError, AttributeError):  # not Linux: the socket's end is enough
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = socket.socket(fileno=int(sys.argv[1]))
    from towline.offload.cancellation import CancelFlag

    flag = CancelFlag()
    signal.signal(signal.SIGUSR1, lambda *_: flag.set())
    mappings = Mappings()
    decode = msgspec.msgpack.Decoder(Request).decode
    encode = msgspec.msgpack.Encoder().encode
    stream = link.makefile("rb")
    with contextlib.suppress(ConnectionError):
        while len(head := _next(link, stream, mappings)) == 4:
            request = decode(stream.read(int.from_bytes(head, "little")))
            reply = encode(run(request, mappings, flag))
            link.sendall(len(reply).to_bytes(4, "little") + reply)
            mappings.tidy(SystemClock.monotonic())


if __name__ == "__main__":
    main()
