"""The shell of a runtime: starts kernels, moves frames, keeps the timer; every decision is the scheduler's or the core's."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

from towline.offload.actions import Detach, Tell
from towline.offload.cancellation import CancelFlag
from towline.offload.explain import REMEMBERED_CALLS
from towline.offload.ports import Links
from towline.offload.records import WARNED_REASONS, Decline, OffloadEvent
from towline.offload.work import MAY_STILL_RUN, Output, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from towline.offload.arrays import Array
    from towline.offload.calls import Call, GraphRun
    from towline.offload.links import Link
    from towline.offload.master import MasterCore
    from towline.offload.messages import ErrorReport
    from towline.offload.monitor import Monitor
    from towline.offload.scheduler import Scheduler
    from towline.offload.timers import TimerHandle, Timers
    from towline.offload.work import Runner

log = logging.getLogger("towline.offload")


class Engine:
    """Drives one scheduler, and while a cluster is entered one master core, on one loop."""

    def __init__(
        self, scheduler: Scheduler, timers: Timers, threads: Runner, processes: Callable[[], Runner], *, min_offload_bytes: int,
        monitor: Monitor | None = None,
    ) -> None:  # fmt: skip
        self.scheduler, self.timers = scheduler, timers
        self._threads, self._processes = threads, processes
        self._min_offload_bytes = min_offload_bytes
        self.monitor = monitor
        self.core: MasterCore | None = None
        self.links: Links | None = None
        self._soon = False
        self._tick: TimerHandle | None = None
        self._work: dict[int, tuple[Work, Runner]] = {}
        self.ended: OrderedDict[int, Call] = OrderedDict()
        self.listeners: list[Callable[[OffloadEvent], None]] = []
        self.on_change: list[Callable[[], None]] = []
        self._warned: set[tuple[str, str]] = set()
        self.failure: Exception | None = None

    # Graphs -------------------------------------------------------------------------------------------------------

    def submit(self, run: GraphRun, after: Sequence[Sequence[int]]) -> None:
        """Begin to execute a graph."""
        self.scheduler.submit(run, after, self.timers.time())
        self.settle()

    def cancel(self, run: GraphRun) -> None:
        """End a graph now; what still runs is told to stop, and its results are dropped."""
        self.scheduler.cancel_run(run, self.timers.time())
        self.settle()

    # Cluster ------------------------------------------------------------------------------------------------------

    def attach(self, core: MasterCore) -> None:
        """Let a master core place calls on workers."""
        self.core = core
        core.listeners = self.listeners
        self.links = Links(core, self.timers.time, self.changed)
        self.scheduler.remote = core
        self.scheduler.table.before_copy = self._before_copy
        self.scheduler.table.on_release = core.released
        self.scheduler.table.on_outdated = core.outdated
        self._schedule_tick()

    def add_link(self, link: Link) -> None:
        """A transport made a link."""
        if self.core is None or self.links is None:
            link.close("there is no cluster")
            return
        number = self.links.add(link)
        self.core.link_up(number, link.peer, self.timers.time())
        self.settle()

    def detach(self) -> None:
        """Leave the cluster: calls that workers had are placed again, here."""
        core, links = self.core, self.links
        if core is None or links is None:
            return
        core.close(self.timers.time())
        self.settle()
        self.core = self.links = None
        self.scheduler.remote = None
        if self._tick is not None:
            self._tick.cancel()
        links.close("the master is done")
        self.scheduler.advance(self.timers.time())
        self.settle()

    # Turning ------------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Something happened: settle when what is ready now has run."""
        if not self._soon:
            self._soon = True
            self.timers.call_soon(self._settle_soon)

    def settle(self) -> None:
        """Carry out everything that was decided, until nothing new is."""
        scheduler = self.scheduler
        while True:
            scheduler.advance(self.timers.time())
            acted = bool(scheduler.ended)
            if acted:
                # First, so that what the graph's owner does next leaves together with the acknowledgements of its results.
                ended, scheduler.ended = scheduler.ended, []
                for run in ended:
                    run.on_end(run)
            acted = self._carry_out() or acted
            if scheduler.starts:
                starts, scheduler.starts = scheduler.starts, []
                for call in starts:
                    self._start(call)
                acted = True
            if scheduler.stops:
                stops, scheduler.stops = scheduler.stops, []
                for call in stops:
                    self._stop(call)
            if scheduler.closed_calls:
                self._remember()
            if self.monitor is not None:
                self.monitor.check(scheduler, self.core)
            if not acted and not scheduler.ended:
                break
        for listener in self.on_change:
            listener()

    def tell(self, event: OffloadEvent) -> None:
        """Tell the listeners; one that raises is dropped (OFF-956)."""
        if event.kind == "warning":
            log.warning("kernel %s: %s: %s", event.detail["kernel"], event.detail["reason"], event.detail["text"])
        for listener in list(self.listeners):
            try:
                listener(event)
            except Exception:
                self.listeners.remove(listener)
                log.warning("a listener of offload events failed and was dropped", exc_info=True)

    def _settle_soon(self) -> None:
        self._soon = False
        try:
            self.settle()
        except Exception as error:
            self._fail_all(error)
            raise

    def _fail_all(self, error: Exception) -> None:
        """The core broke one of its own rules: no graph may hang for it."""
        self.failure = error
        for run in {id(call.run): call.run for call in self.scheduler.calls.values()}.values():
            run.on_end(run)

    def _carry_out(self) -> bool:
        core, links = self.core, self.links
        if core is None or links is None:
            return False
        actions = core.take()
        for action in actions:
            if isinstance(action, Detach):
                links.detach(action.buffer)
            elif isinstance(action, Tell):
                self.tell(action.event)
            else:
                links.carry_out(action)
        return bool(actions)

    def _before_copy(self, buffer: int) -> None:
        """The memory of a bound buffer changes in this very step: copy what links still send of it now (OFF-508)."""
        if self.core is not None and self.links is not None:
            self.core.bumped(buffer)
            self.links.detach(buffer)

    def _schedule_tick(self) -> None:
        if self.core is not None:
            self._tick = self.timers.call_at(self.timers.time() + self.core.tick_s, self._on_tick)

    def _on_tick(self) -> None:
        # What can be read is read before silence is judged: readers and this timer may be due in one turn.
        self.timers.call_soon(self._judge)

    def _judge(self) -> None:
        if self.core is not None:
            self.core.tick(self.timers.time())
            self._schedule_tick()
            self._settle_soon()

    # Local runs ---------------------------------------------------------------------------------------------------

    def _start(self, call: Call) -> None:
        fence = call.fence
        kernel = call.function.kernel if call.function is not None else None
        if call.host is not None:
            body: Callable[..., None] = call.host
        else:
            assert call.function is not None
            body = call.function.function
        inputs = [buffer._read_view() for buffer in call.reads]
        outputs = []
        for buffer in call.writes:
            start = next((view for b, view in zip(call.reads, inputs, strict=True) if b is buffer), None)
            outputs.append(Output(buffer._data.dtype, buffer._data.shape, start))

        # A run that was cancelled reads on until it ends: until then its regions must not get other bytes (OFF-708).
        regions = [buffer._region for buffer in call.reads if buffer._region is not None]
        for region in regions:
            region.users.add(fence)

        def done(arrays: list[Array], seconds: float) -> None:
            self._work.pop(fence, None)
            for region in regions:
                region.users.discard(fence)
            self.scheduler.local_finished(call, fence, arrays, seconds, self.timers.time())
            self.changed()

        def failed(report: ErrorReport, seconds: float) -> None:
            self._work.pop(fence, None)
            if report.kind not in MAY_STILL_RUN:
                for region in regions:
                    region.users.discard(fence)
            self._local_failed(call, fence, report, seconds)

        in_process = call.host is None and kernel is not None and self._needs_process(call)
        segments = [b._region.segment if b._region is not None else None for b in call.reads] if in_process else None
        work = Work(
            body, kernel, inputs, outputs, call.params, call.time_limit_s, CancelFlag(), on_done=done, on_failed=failed,
            input_segments=segments, is_host=call.host is not None,
        )  # fmt: skip
        runner = self._processes() if in_process else self._threads
        self._work[fence] = (work, runner)
        runner.start(work)

    def _needs_process(self, call: Call) -> bool:
        """Say whether a local run could make this process deaf, or take it down (OFF-116, OFF-616)."""
        assert call.function is not None
        if call.function.kernel.executor == "thread":
            return False
        if call.time_limit_s is not None or call.crashes:
            return True
        return self.core is not None and call.payload_bytes >= self._min_offload_bytes

    def _local_failed(self, call: Call, fence: int, report: ErrorReport, seconds: float) -> None:
        self.scheduler.local_failed(call, fence, report, seconds, self.timers.time())
        self.changed()

    def _stop(self, call: Call) -> None:
        entry = self._work.get(call.fence)
        if entry is not None:
            work, runner = entry
            runner.stop(work)

    def _remember(self) -> None:
        """Keep ended calls for explanations, without their arrays."""
        closed, self.scheduler.closed_calls = self.scheduler.closed_calls, []
        for call in closed:
            call.reads = call.writes = ()
            self.ended[call.number] = call
            if call.decline is not None and call.ran_on is None and call.decline.reason in WARNED_REASONS:
                self._warn(call, call.decline)
        while len(self.ended) > REMEMBERED_CALLS:
            self.ended.popitem(last=False)

    def _warn(self, call: Call, decline: Decline) -> None:
        """Say a likely mistake once per kernel and reason, with what to change (OFF-954)."""
        if (call.kernel_name, decline.reason) not in self._warned:
            self._warned.add((call.kernel_name, decline.reason))
            log.warning("kernel %s stays local: %s: %s", call.kernel_name, decline.reason, decline.detail)
