"""The shell of a worker core: links, kernels and the timer, on any loop (also a simulated one)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from towline.offload.actions import Close, Send, Trust
from towline.offload.arrays import Array, bytes_of
from towline.offload.bonds import Connect, EndAgent, StartKernel, StopKernel
from towline.offload.pieces import ArrayPlan, Memory, Piece
from towline.offload.ports import Links
from towline.offload.work import Output, Runner, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.offload.jobs import Job
    from towline.offload.links import Link
    from towline.offload.messages import ErrorReport
    from towline.offload.timers import TimerHandle, Timers
    from towline.offload.worker_core import WorkerCore

log = logging.getLogger("towline.offload")

DEAF_AFTER_S = 2.0
"""A pause from which on masters begin to suspect the agent (``suspect_after_s``)."""


class AgentShell:
    """Drives one worker core. ``dial`` makes a link or calls back that it failed; ``on_end`` is told once."""

    def __init__(
        self, core: WorkerCore, timers: Timers, memory: Memory, runner_of: Callable[[str], Runner], *,
        dial: Callable[[Callable[[Link], None], Callable[[str], None]], None], on_end: Callable[[int, str], None],
        mask: Callable[[str], str] | None = None,
    ) -> None:  # fmt: skip
        self.core, self.timers, self._memory = core, timers, memory
        self._runner_of, self._dial, self._on_end, self._mask = runner_of, dial, on_end, mask
        self.links = Links(core, timers.time, self.settle)
        self._work: dict[int, tuple[Work, Runner]] = {}
        self._tick: TimerHandle | None = None
        self._settling = False
        self._due = 0.0
        self._deaf: set[str] = set()
        self.stopped = False

    def start(self) -> None:
        """Begin: dial if this side dials, and keep the timer."""
        self.core.start(self.timers.time())
        self._schedule()
        self.settle()

    def add_link(self, link: Link) -> None:
        """A transport made a link."""
        if self.stopped:
            link.close("the agent has stopped")
            return
        self.core.link_up(self.links.add(link), self.timers.time())
        self.settle()

    def stop(self, reason: str) -> None:
        """Stop at once: links are closed, kernels are told."""
        if self.stopped:
            return
        self.stopped = True
        if self._tick is not None:
            self._tick.cancel()
        for work, runner in list(self._work.values()):
            runner.stop(work)
        self.links.close(reason)

    def settle(self) -> None:
        """Carry out everything that the core decided."""
        if self._settling:
            return
        self._settling = True
        try:
            while actions := self.core.take():
                for action in actions:
                    if isinstance(action, (Send, Close, Trust)):
                        self.links.carry_out(action)
                    elif isinstance(action, StartKernel):
                        self._start(action.job)
                    elif isinstance(action, StopKernel):
                        self._stop(action.job)
                    elif isinstance(action, Connect):
                        self.timers.call_at(action.at, self._connect)
                    else:
                        self._end(action)
        finally:
            self._settling = False

    def _connect(self) -> None:
        if not self.stopped and not self.core.ended and not self.core.bonds:
            self._dial(self.add_link, self._dial_failed)

    def _dial_failed(self, reason: str) -> None:
        self.core.link_failed(self.timers.time())
        self.settle()

    def _end(self, action: EndAgent) -> None:
        self.stop(action.reason)
        self._on_end(action.code, action.reason)

    def _schedule(self) -> None:
        self._due = self.timers.time() + self.core.tick_s
        self._tick = self.timers.call_at(self._due, self._on_tick)

    def _on_tick(self) -> None:
        self.timers.call_soon(self._judge)  # after what can be read has been read (OFF-621)

    def _judge(self) -> None:
        if self.stopped:
            return
        self._tell_of_pause(self.timers.time() - self._due)
        self._memory.tidy(self.timers.time())
        self.core.tick(self.timers.time())
        self._schedule()
        self.settle()

    def _tell_of_pause(self, pause_s: float) -> None:
        """A kernel in a thread that kept the GIL made this agent deaf: say so once per kernel (OFF-112)."""
        if pause_s <= DEAF_AFTER_S:
            return
        for work, _ in self._work.values():
            kernel = work.kernel
            if kernel is not None and kernel.executor == "thread" and kernel.name not in self._deaf:
                self._deaf.add(kernel.name)
                log.warning(
                    "kernel %s runs in a thread and kept this agent from answering for %.1f s: declare executor='process'",
                    kernel.name,
                    pause_s,
                )

    def _start(self, job: Job) -> None:
        function = job.function
        assert function is not None
        inputs = []
        for plan, piece in zip(job.reads, job.inputs, strict=True):
            assert piece is not None
            inputs.append(piece.array(plan.dtype, plan.shape))
        pieces: list[Piece | None] = []
        outputs = []
        for plan in job.writes:
            piece, start = self._output(plan, function.kernel.executor), None
            for read, array in zip(job.reads, inputs, strict=True):
                if read.ref.buffer_id == plan.ref.buffer_id:
                    start = array
            if plan.nbytes and piece is None:
                self._soon_failed(job)
                return
            if piece is not None and piece.segment is None and function.kernel.executor == "process":
                piece = None  # another process cannot write here: the runner brings arrays of its own
            memory = piece.array(plan.dtype, plan.shape, writable=True) if piece is not None and plan.nbytes else None
            pieces.append(piece)
            outputs.append(Output(plan.dtype, plan.shape, start, memory, piece.segment if piece is not None else None))

        def done(arrays: list[Array], seconds: float) -> None:
            self._work.pop(id(job), None)
            results = [
                piece if piece is not None and piece.nbytes else Piece(bytes_of(array))
                for piece, array in zip(pieces, arrays, strict=True)
            ]
            self.core.kernel_finished(job, results, seconds, self.timers.time())
            self.settle()

        def failed(report: ErrorReport, seconds: float) -> None:
            self._work.pop(id(job), None)
            self.core.kernel_failed(job, self._masked(report), seconds, self.timers.time())
            self.settle()

        work = Work(
            function.function, function.kernel, inputs, outputs, job.params, job.message.time_limit, job.cancel, on_done=done,
            on_failed=failed, input_segments=[piece.segment if piece is not None else None for piece in job.inputs],
        )  # fmt: skip
        runner = self._runner_of(function.kernel.executor)
        self._work[id(job)] = (work, runner)
        runner.start(work)

    def _output(self, plan: ArrayPlan, executor: str) -> Piece | None:
        """Return where an output goes. Each is written as a whole: cleared before the run, or by its kernel (OFF-109)."""
        segment = plan.ref.segment
        if segment is not None:
            return self._memory.attach(segment, plan.nbytes, writable=True, filled=executor == "thread")
        return self._memory.allocate(plan.nbytes)

    def _soon_failed(self, job: Job) -> None:
        from towline.offload.messages import ErrorReport

        report = ErrorReport("no_memory", "MemoryError", "there is no memory for the outputs", "", True)

        def tell() -> None:
            self.core.kernel_failed(job, report, 0.0, self.timers.time())
            self.settle()

        self.timers.call_soon(tell)

    def _stop(self, job: Job) -> None:
        entry = self._work.get(id(job))
        if entry is not None:
            work, runner = entry
            runner.stop(work)

    def _masked(self, report: ErrorReport) -> ErrorReport:
        if self._mask is None:
            return report
        from msgspec.structs import replace

        mask = self._mask
        return replace(
            report,
            message=mask(report.message),
            traceback=mask(report.traceback),
            causes=[mask(cause) for cause in report.causes],
        )
