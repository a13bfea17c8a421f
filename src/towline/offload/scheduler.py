"""Which call runs next, and where: the pure part of a runtime that also works without any worker (sections 5, 7.3).

Time and events come in as arguments; what to start and to stop is collected for the shell that asked.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Protocol

from towline.errors.offload import (
    KernelCrashedError,
    KernelFailedError,
    KernelTimeoutError,
    OffloadUnavailableError,
)
from towline.offload.calls import REMOTE_PHASES, Call, GraphRun, Phase
from towline.offload.edges import DATA, AccessTracker
from towline.offload.records import Decline
from towline.offload.timings import Timings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.offload.arrays import Array
    from towline.offload.buffer_table import BufferTable
    from towline.offload.messages import ErrorReport
    from towline.offload.regions import Region


class Remote(Protocol):
    """The part that knows workers; absent in a standalone runtime."""

    def offer(self, call: Call, now: float) -> Decline | None:
        """Send the call to a worker, or say why not."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether any worker could take one more call."""
        ...

    def withdraw(self, call: Call, now: float) -> None:
        """Stop a call that was sent: it has ended here."""
        ...


NOT_CLUSTERED = Decline("not_clustered")
HOST_ONLY = Decline("host_only")
PLACE_LOCAL = Decline("place_local")
UNREGISTERED = Decline("unregistered_buffer", "an array of the call is not registered")
PINNED = "pinned_local"
MOVABLE = ("all_busy", "no_live_worker", "local_faster")
"""Reasons that may pass: such a call still goes to a worker when one is free before a local slot is."""

OFFERS_PER_TURN = 64
"""How many calls are offered anew, at most, when a worker has room."""


class Scheduler:
    """All calls that are not final, their order, the fences, and the local slots."""

    def __init__(self, table: BufferTable, *, local_slots: int, prefetch: int = 1) -> None:
        self.table = table
        self.timings = Timings()
        self.remote: Remote | None = None
        self.local_slots = local_slots
        self.local_running = 0
        self._prefetch = prefetch
        self._tracker: AccessTracker[Call] = AccessTracker(lambda call: call.is_final)
        self._ready: list[tuple[int, float, int, Call]] = []
        self._local: list[tuple[int, float, int, Call]] = []
        self._held: list[tuple[int, float, int, Call]] = []
        self._next_number = 1
        self._next_fence = 1
        self.calls: dict[int, Call] = {}
        self.room_made = False
        """A worker has room again: its next calls are chosen once for all results that came in together."""
        self.starts: list[Call] = []
        self.stops: list[Call] = []
        self.ended: list[GraphRun] = []
        self.closed_calls: list[Call] = []
        self.succeeded = 0
        self.local_runs = 0
        self.offloaded = 0
        self.redispatched = 0
        self.stale = 0
        self.declined: dict[str, int] = {}

    # What comes in ------------------------------------------------------------------------------------------------

    def submit(self, run: GraphRun, after: Sequence[Sequence[int]], now: float) -> None:
        """Take the calls of one execution, in declaration order, behind all calls that were taken before (OFF-304)."""
        run.started_at = now
        for call in run.calls:
            call.run = run
            call.number = self._next_number
            self._next_number += 1
            self.calls[call.number] = call
            touched: dict[int, int] = {}
            for buffer in (*call.reads, *call.writes):
                touched[buffer._id] = buffer._data.nbytes
                buffer._calls[call.number] = call
            call.payload_bytes = sum(touched.values())
            call.output_bytes = sum(buffer._data.nbytes for buffer in call.writes)
            call.expected_s = self.timings.expected_s(call.kernel_name, call.payload_bytes)
            before = self._tracker.declare(call, [b._id for b in call.reads], [b._id for b in call.writes])
            for index in after[call.index]:
                before[run.calls[index]] = DATA
            for other, kind in before.items():
                if not other.is_final:
                    other.successors.append((call, kind))
                    call.waiting_for += 1
                elif kind is DATA and other.phase is not Phase.SUCCEEDED and other.run is run:
                    call.after_failure = True
        for call in reversed(run.calls):
            longest = max((later.path_s for later, _ in call.successors), default=0.0)
            call.path_s = call.expected_s + longest
        for call in run.calls:
            if call.waiting_for == 0:
                self._make_ready(call, now)
        if not run.calls:
            self.ended.append(run)

    def advance(self, now: float) -> None:
        """Place every ready call that can be placed, and fill the local slots. Costs nothing when none is ready."""
        if self.room_made:
            self.room_made = False
            self.reconsider(now)
        full: Decline | None = None
        while self._ready:
            entry = heapq.heappop(self._ready)
            call = entry[3]
            if call.phase is not Phase.READY:
                continue
            if full is not None and call.place == "remote":
                decline: Decline | None = full  # nobody had room for the call before: nobody has for this one
            else:
                decline = self._place(call, now)
            if decline is None:
                continue
            if decline.reason == "all_busy" and self.remote is not None and not self.remote.has_room:
                full = decline
            call.decline = decline
            if call.place == "remote":
                heapq.heappush(self._held, entry)
            else:
                call.phase = Phase.LOCAL_QUEUED
                heapq.heappush(self._local, entry)
        self._fill_local(now)

    def reconsider(self, now: float) -> None:
        """A worker may have room: offer it the calls that may run nowhere else, then those that only wait for want of one."""
        if self.remote is None or not (self._held or self._local) or not self.remote.has_room:
            return
        self._offer_again(self._held, Phase.READY, now)
        self._offer_again(self._local, Phase.LOCAL_QUEUED, now)

    def _offer_again(self, heap: list[tuple[int, float, int, Call]], phase: Phase, now: float) -> None:
        """Offer calls in order until nobody has room: what one call was refused for that, all others would be."""
        assert self.remote is not None
        refused: list[tuple[int, float, int, Call]] = []
        while heap and len(refused) < OFFERS_PER_TURN:
            entry = heapq.heappop(heap)
            call = entry[3]
            if call.phase is not phase:
                continue
            if phase is Phase.LOCAL_QUEUED and (call.decline is None or call.decline.reason not in MOVABLE):
                refused.append(entry)
                continue
            call.phase = Phase.READY
            decline = self.remote.offer(call, now)
            if decline is not None:
                call.decline, call.phase = decline, phase
                refused.append(entry)
            if not self.remote.has_room:
                break
        for entry in refused:
            heapq.heappush(heap, entry)

    def local_finished(self, call: Call, fence: int, arrays: Sequence[Array], kernel_s: float, now: float) -> None:
        """A local run ended well."""
        self.local_running -= 1
        if call.fence != fence or call.phase is not Phase.LOCAL_RUNNING:
            return
        self.local_runs += 1
        call.ran_on = None
        self.commit(call, arrays, kernel_s, now)

    def local_failed(self, call: Call, fence: int, error: ErrorReport, elapsed_s: float, now: float) -> None:
        """A local run raised, crashed or took too long."""
        self.local_running -= 1
        if call.fence != fence or call.phase is not Phase.LOCAL_RUNNING:
            return
        self.local_runs += 1
        self.fail(call, error, "local", elapsed_s, now)

    def slot_lost(self) -> None:
        """A thread was abandoned at its time limit: its slot is gone while it runs (OFF-113)."""
        self.local_slots = max(self.local_slots - 1, 1)

    def cancel_run(self, run: GraphRun, now: float) -> None:
        """End every call of a run that is not final (OFF-311)."""
        run.stopped = True
        for call in run.calls:
            if not call.is_final:
                self._end(call, Phase.CANCELLED, now)

    # What the remote part asks for --------------------------------------------------------------------------------

    def take_number(self) -> int:
        """Take the next call number, for a call of the cluster's own."""
        self._next_number += 1
        return self._next_number - 1

    def take_fence(self) -> int:
        """Take the next fence."""
        self._next_fence += 1
        return self._next_fence - 1

    def begin(self, call: Call, now: float) -> int:
        """Give the call a new fence and reserve its output versions (OFF-504)."""
        call.fence = self.take_fence()
        call.reserved = tuple(buffer._reserve() for buffer in call.writes)
        call.started_at = call.dispatched_at = call.touched_at = now
        return call.fence

    def commit(
        self, call: Call, arrays: Sequence[Array], kernel_s: float, now: float, regions: Sequence[Region | None] = ()
    ) -> bool:
        """Commit the outputs of the current dispatch; False if they do not fit, which fails the call (OFF-503, OFF-509)."""
        call.kernel_s = kernel_s
        writes = [
            (buffer, array, version) for buffer, array, version in zip(call.writes, arrays, call.reserved, strict=True)
        ]
        wrong = self.table.commit(writes, call.number, call.fence, call.ran_on, regions)
        if wrong is not None:
            call.error = KernelFailedError(
                call.kernel_name, call.number, call.ran_on or "local", "bad_output", "BadOutput", wrong
            )
            self._end(call, Phase.FAILED, now)
            return False
        if call.ran_on is None:
            reason = call.decline.reason if call.decline is not None else NOT_CLUSTERED.reason
            self.declined[reason] = self.declined.get(reason, 0) + 1
        self.timings.observe(call.kernel_name, call.payload_bytes, kernel_s)
        self.succeeded += 1
        self._end(call, Phase.SUCCEEDED, now)
        return True

    def fail(self, call: Call, report: ErrorReport, where: str, elapsed_s: float, now: float) -> None:
        """Fail the call for good."""
        kind = report.kind
        if kind == "time_limit":
            limit = call.time_limit_s if call.time_limit_s is not None else 0.0
            call.error = KernelTimeoutError(call.kernel_name, call.number, where, limit, elapsed_s)
        elif kind == "crashed":
            tried = (*(str(worker) for worker in call.attempts_on), where)
            call.error = KernelCrashedError(call.kernel_name, call.number, report.message, tried)
        else:
            call.error = KernelFailedError(
                call.kernel_name,
                call.number,
                where,
                kind,
                report.type_name,
                report.message,
                report.traceback,
                tuple(report.causes),
            )
        self._end(call, Phase.FAILED, now)

    def unavailable(self, call: Call, waited_s: float, live: int, left_out: tuple[str, ...], now: float) -> None:
        """A call that must run remotely found nobody (OFF-308)."""
        what = f"Call {call.number} ({call.label()}) has place='remote'"
        call.error = OffloadUnavailableError(what, waited_s, live, left_out)
        self._end(call, Phase.FAILED, now)

    def requeue(self, call: Call, now: float) -> None:
        """A dispatch came to nothing: the call is ready again."""
        self._make_ready(call, now)

    def queue_local(self, call: Call, decline: Decline) -> None:
        """Pin the call to this process."""
        call.decline, call.phase = decline, Phase.LOCAL_QUEUED
        heapq.heappush(self._local, self._entry(call))

    @property
    def local_backlog_s(self) -> float:
        """Expected seconds of what waits for a local slot; the first 64 calls of the heap stand for all beyond."""
        return sum(entry[3].expected_s for entry in self._local[:64])

    @property
    def ready_remote(self) -> list[Call]:
        """Calls that wait for a worker because they may run nowhere else."""
        return [entry[3] for entry in self._held if entry[3].phase is Phase.READY]

    @property
    def queued(self) -> int:
        """Calls that are ready and not started."""
        return sum(
            1
            for heap in (self._ready, self._local, self._held)
            for entry in heap
            if entry[3].phase in (Phase.READY, Phase.LOCAL_QUEUED)
        )

    # Inside -------------------------------------------------------------------------------------------------------

    def _place(self, call: Call, now: float) -> Decline | None:
        if call.function is None:
            return HOST_ONLY
        if call.place == "local":
            return PLACE_LOCAL
        if self.remote is None:
            return NOT_CLUSTERED
        if call.pinned_local and call.place != "remote":
            return call.decline if call.decline is not None else Decline(PINNED)
        if not all(buffer._registered for buffer in (*call.reads, *call.writes)):
            return UNREGISTERED
        return self.remote.offer(call, now)

    def _fill_local(self, now: float) -> None:
        room = self.local_slots * (1 if self.remote is not None else self._prefetch) - self.local_running
        local = self._local
        while room > 0 and local:
            call = heapq.heappop(local)[3]
            if call.phase is not Phase.LOCAL_QUEUED:
                continue
            self.begin(call, now)
            call.phase = Phase.LOCAL_RUNNING
            call.session = 0
            self.local_running += 1
            room -= 1
            self.starts.append(call)

    def _make_ready(self, call: Call, now: float) -> None:
        if call.after_failure:
            self._end(call, Phase.CANCELLED, now)
            return
        call.phase = Phase.READY
        call.ready_at = now
        heapq.heappush(self._ready, self._entry(call))

    def _entry(self, call: Call) -> tuple[int, float, int, Call]:
        return (-call.priority, -call.path_s, call.number, call)

    def _end(self, call: Call, phase: Phase, now: float) -> None:
        """Make a call final and move what waits for it. A stack, not recursion: chains are long."""
        stack: list[tuple[Call, Phase | None]] = [(call, phase)]
        while stack:
            ending, into = stack.pop()
            run = ending.run
            if into is not None:
                if ending.is_final:
                    continue
                before, ending.phase = ending.phase, into
                ending.done_at = now
                self._leave(ending, before, now)
                if into is Phase.FAILED:
                    run.failed.append(ending)
                    if not run.keep_going and not run.stopped:
                        run.stopped = True
                        for other in reversed(run.calls):
                            if not other.is_final:
                                other.caused_by = ending
                                stack.append((other, Phase.CANCELLED))
                if ending.waiting_for:
                    # Cancelled while something before it still runs: what comes after must wait for that too,
                    # for it has an edge to this call alone (OFF-301).
                    continue
            for later, kind in ending.successors:
                later.waiting_for -= 1
                if later.is_final:
                    if later.waiting_for == 0:
                        stack.append((later, None))
                elif kind is DATA and ending.phase is not Phase.SUCCEEDED and later.run is run:
                    later.caused_by = later.caused_by or ending
                    stack.append((later, Phase.CANCELLED))
                elif later.waiting_for == 0 and later.phase is Phase.WAITING:
                    self._make_ready(later, now)
            ending.successors = []

    def _leave(self, call: Call, before: Phase, now: float) -> None:
        if before is Phase.LOCAL_RUNNING and call.phase is Phase.CANCELLED:
            self.stops.append(call)
        elif before in REMOTE_PHASES and call.phase is not Phase.SUCCEEDED and self.remote is not None:
            self.remote.withdraw(call, now)
        for buffer in (*call.reads, *call.writes):
            buffer._calls.pop(call.number, None)
        del self.calls[call.number]
        self.closed_calls.append(call)
        run = call.run
        run.unfinished -= 1
        if run.unfinished == 0:
            self.ended.append(run)
