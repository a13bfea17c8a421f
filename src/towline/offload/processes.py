"""Kernels in processes of their own: started by name, fed by shared memory, replaced when they die (OFF-111, OFF-113)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from towline.offload.arrays import Array, array_over, bytes_of, write_dtype
from towline.offload.kernel_child import Reply, Request
from towline.offload.messages import ErrorReport
from towline.offload.numeric import thread_environment

if TYPE_CHECKING:
    import asyncio

    from towline.offload.regions import Region, RegionPool
    from towline.offload.work import Output, Work

CANCEL_GRACE_S = 1.0
KILL_AFTER_S = 5.0
SMALL_BYTES = 32 * 1024
"""Arrays up to this size ride along in a request; larger ones lie in shared memory."""

_encode = msgspec.msgpack.Encoder().encode
_decode_reply = msgspec.msgpack.Decoder(Reply).decode


class _Child:
    """One kernel process."""

    def __init__(self, blas_threads: int) -> None:
        self.link, theirs = socket.socketpair()
        source = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH"), *sys.path])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "towline.offload.kernel_child", str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            env={**os.environ, **thread_environment(blas_threads), "PYTHONPATH": path},
        )  # fmt: skip
        theirs.close()
        self.link.setblocking(False)
        self.inbox = bytearray()
        self.outbox = memoryview(b"")
        self.work: Work | None = None
        self.scratch: list[tuple[Region, bool]] = []
        self.outputs: list[Array] = []
        self.timers: list[asyncio.TimerHandle] = []
        self.over_limit: float | None = None
        self.began = 0.0


class ProcessRunner:
    """A pool of up to ``count`` kernel processes, started when they are needed.

    An input or output that lies in shared memory already is named; any other is copied into a region of
    this pool once. A process that dies fails its run with ``crashed``, and the next run starts another.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int, regions: RegionPool, blas_threads: int) -> None:
        self._loop, self._count, self._regions, self._blas_threads = loop, count, regions, blas_threads
        self._idle: list[_Child] = []
        self._busy: dict[int, _Child] = {}
        self._queue: deque[Work] = deque()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Process ids of the pool, for tests and for people."""
        return [child.process.pid for child in (*self._idle, *self._busy.values())]

    def start(self, work: Work) -> None:
        """Run at once if a process is free or may be started, else when one becomes free."""
        self._queue.append(work)
        self._loop.call_soon(self._next)

    def warm(self) -> None:
        """Start one process now, so that the first run need not wait for it."""
        if not self._idle and not self._busy:
            child = _Child(self._blas_threads)
            self._loop.add_reader(child.link.fileno(), self._readable, child)
            self._idle.append(child)

    def stop(self, work: Work) -> None:
        """Tell the kernel, then end its process: nobody wants the result."""
        work.cancel.set()
        if work in self._queue:
            self._queue.remove(work)
            self._loop.call_soon(
                self._settle_failed, work, ErrorReport("cancelled", "Cancelled", "before it began"), 0.0
            )
            return
        child = self._busy.get(id(work))
        if child is not None and child.process.poll() is None:
            child.process.send_signal(signal.SIGUSR1)
            child.timers.append(self._loop.call_later(CANCEL_GRACE_S, self._terminate, child))

    def close(self) -> None:
        """Kill every process. Runs that have not ended are not told of any more."""
        self._closed = True
        self._queue.clear()
        for child in (*self._idle, *self._busy.values()):
            self._discard(child)
            child.process.kill()
            child.process.wait()
        self._idle.clear()
        self._busy.clear()

    def _next(self) -> None:
        while self._queue and not self._closed and len(self._busy) < self._count:
            child = self._idle.pop() if self._idle else None
            if child is not None and child.process.poll() is not None:
                self._discard(child)
                continue
            if child is None:
                try:
                    child = _Child(self._blas_threads)
                except OSError as error:
                    report = ErrorReport("no_memory", "OSError", f"no kernel process can be started: {error}", "", True)
                    self._settle_failed(self._queue.popleft(), report, 0.0)
                    continue
                self._loop.add_reader(child.link.fileno(), self._readable, child)
            self._give(child, self._queue.popleft())

    def _give(self, child: _Child, work: Work) -> None:
        assert work.kernel is not None
        child.work, child.scratch, child.over_limit = work, [], None
        self._busy[id(work)] = child
        try:
            request = self._request(child, work)
        except MemoryError as error:
            self._free(child)
            self._settle_failed(work, ErrorReport("no_memory", "MemoryError", str(error), "", True), 0.0)
            return
        data = _encode(request)
        child.began = self._loop.time()
        child.outbox = memoryview(len(data).to_bytes(4, "little") + data)
        self._writable(child)
        if work.limit_s is not None:
            child.timers.append(self._loop.call_later(work.limit_s, self._over_limit, child))

    def _request(self, child: _Child, work: Work) -> Request:
        kernel = work.kernel
        assert kernel is not None
        segments = work.input_segments or [None] * len(work.inputs)
        reads = []
        for array, segment in zip(work.inputs, segments, strict=True):
            data = None
            if segment is None and array.nbytes > SMALL_BYTES:
                region = self._scratch(child, array.nbytes)
                region.view()[:] = bytes_of(array if array.flags.c_contiguous else array.copy())
                segment = region.segment
            elif segment is None:
                data = array.tobytes()
            reads.append((write_dtype(array.dtype), list(array.shape), segment, data))
        writes, starts = [], []
        child.outputs = []
        for output in work.outputs:
            segment, over = output.segment, output.memory
            if segment is None:
                size = output.dtype.itemsize
                for length in output.shape:
                    size *= length
                if size > SMALL_BYTES:
                    region = self._scratch(child, size, keep=True)
                    segment, over = region.segment, region.array(output.dtype, output.shape)
            child.outputs.append(over)  # type: ignore[arg-type]  # small outputs come with the reply
            writes.append((write_dtype(output.dtype), list(output.shape), segment))
            starts.append(self._index(work, output))
        return Request(kernel.home, kernel.name, reads, writes, starts, work.params)

    def _index(self, work: Work, output: Output) -> int:
        if output.start is None:
            return -1
        return next(i for i, array in enumerate(work.inputs) if array is output.start)

    def _scratch(self, child: _Child, nbytes: int, *, keep: bool = False) -> Region:
        region = self._regions.take(nbytes)
        if region is None:
            raise MemoryError(self._regions.refused)
        child.scratch.append((region, keep))
        return region

    def _writable(self, child: _Child) -> None:
        try:
            while child.outbox.nbytes:
                child.outbox = child.outbox[child.link.send(child.outbox) :]
        except BlockingIOError:
            self._loop.add_writer(child.link.fileno(), self._writable, child)
            return
        except OSError:  # it died: reading will tell
            child.outbox = memoryview(b"")
        self._loop.remove_writer(child.link.fileno())

    def _readable(self, child: _Child) -> None:
        try:
            data = child.link.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._died(child)
            return
        child.inbox += data
        if len(child.inbox) < 4:
            return
        size = int.from_bytes(child.inbox[:4], "little")
        if len(child.inbox) < 4 + size:
            return
        reply = _decode_reply(bytes(child.inbox[4 : 4 + size]))
        del child.inbox[: 4 + size]
        self._answered(child, reply)

    def _answered(self, child: _Child, reply: Reply) -> None:
        work, outputs = child.work, child.outputs
        assert work is not None
        if reply.error is None:
            for index, data in enumerate(reply.outputs):
                if data is not None:
                    output = work.outputs[index]
                    outputs[index] = array_over(bytearray(data), output.dtype, output.shape)
        self._free(child, keep_outputs=reply.error is None)
        self._idle.append(child)
        if reply.error is not None:
            self._settle_failed(work, ErrorReport(*reply.error), reply.seconds)
        else:
            work.settled = True
            work.on_done(outputs, reply.seconds)
        self._loop.call_soon(self._next)

    def _died(self, child: _Child) -> None:
        work = child.work
        self._discard(child)
        status = child.process.poll()
        if status is None:
            child.process.kill()
            status = child.process.wait()
        if child in self._idle:
            self._idle.remove(child)
        if work is None:
            return
        elapsed = self._loop.time() - child.began
        self._free(child)
        if child.over_limit is not None:
            report = ErrorReport("time_limit", "TimeLimit", f"its process was ended after {elapsed:.3f} s")
        elif work.cancel.is_set:
            report = ErrorReport("cancelled", "Cancelled", "its process was ended")
        else:
            how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            report = ErrorReport("crashed", "KernelCrashed", how, "", True)
        self._settle_failed(work, report, elapsed)
        self._loop.call_soon(self._next)

    def _over_limit(self, child: _Child) -> None:
        child.over_limit = self._loop.time() - child.began
        self._terminate(child)

    def _terminate(self, child: _Child) -> None:
        if child.process.poll() is None:
            child.process.terminate()
            child.timers.append(self._loop.call_later(KILL_AFTER_S, child.process.kill))

    def _free(self, child: _Child, *, keep_outputs: bool = False) -> None:
        """The run is over: its timers and its scratch memory go. Output regions belong to the result now."""
        assert child.work is not None
        del self._busy[id(child.work)]
        child.work = None
        for timer in child.timers:
            timer.cancel()
        child.timers.clear()
        for region, keep in child.scratch:
            if keep and keep_outputs:
                self._regions.lose(region)  # the arrays keep its memory; no one else needs its name
            else:
                self._regions.retire(region, viewed=False)
        child.scratch = []

    def _discard(self, child: _Child) -> None:
        self._loop.remove_reader(child.link.fileno())
        self._loop.remove_writer(child.link.fileno())
        child.link.close()
        for timer in child.timers:
            timer.cancel()

    def _settle_failed(self, work: Work, report: ErrorReport, seconds: float) -> None:
        work.settled = True
        work.on_failed(report, seconds)
