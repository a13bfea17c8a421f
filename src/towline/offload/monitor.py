"""Rules that must never break, checked from outside at each step of a real run (OFF-955)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from towline.errors.offload import InvariantViolated
from towline.offload.calls import REMOTE_PHASES, Phase

if TYPE_CHECKING:
    from towline.offload.master import MasterCore
    from towline.offload.scheduler import Scheduler

TRACE_ENTRIES = 10_000


class Monitor:
    """Looks at the whole state after each step; keeps the last steps for the report."""

    def __init__(self) -> None:
        self.trace: deque[str] = deque(maxlen=TRACE_ENTRIES)
        self._versions: dict[int, int] = {}
        self._seen: dict[int, tuple[Phase, int, int]] = {}

    def check(self, scheduler: Scheduler, core: MasterCore | None) -> None:
        """Raise ``InvariantViolated`` if a rule is broken."""
        self._note(scheduler)
        self._exclusive(scheduler)
        self._monotonic(scheduler)
        if core is not None:
            self._assigned(scheduler, core)
        self._counted(scheduler, core)

    def _note(self, scheduler: Scheduler) -> None:
        for number, call in scheduler.calls.items():
            state = (call.phase, call.fence, call.attempts)
            known = self._seen.get(number)
            if known != state:
                if known is not None and call.attempts > known[2] and call.fence <= known[1]:
                    self._violated(
                        "OFF-504", f"call {number} was dispatched again with fence {call.fence}, it had {known[1]}"
                    )
                self._seen[number] = state
                self.trace.append(f"call {number} {call.phase.name} fence {call.fence} on {call.ran_on}")
        for number in [number for number in self._seen if number not in scheduler.calls]:
            del self._seen[number]
            self.trace.append(f"call {number} ended")

    def _exclusive(self, scheduler: Scheduler) -> None:
        """No writer of a buffer is active beside another call on it (OFF-301)."""
        writers: dict[int, int] = {}
        readers: dict[int, int] = {}
        for number, call in scheduler.calls.items():
            if call.phase not in REMOTE_PHASES and call.phase is not Phase.LOCAL_RUNNING:
                continue
            for buffer in call.writes:
                if buffer.id in writers or readers.get(buffer.id, number) != number:
                    self._violated("OFF-301", f"calls {number} and another are active on buffer {buffer.id}")
                writers[buffer.id] = number
            for buffer in call.reads:
                if writers.get(buffer.id, number) != number:
                    self._violated(
                        "OFF-301", f"call {number} reads buffer {buffer.id} while {writers[buffer.id]} writes it"
                    )
                readers[buffer.id] = number

    def _monotonic(self, scheduler: Scheduler) -> None:
        """Versions only grow, and are never ahead of what was reserved (OFF-209)."""
        for number, buffer in scheduler.table._buffers.items():
            known = self._versions.get(number, 0)
            if buffer._version < known or buffer._version > buffer._reserved:
                self._violated(
                    "OFF-209", f"buffer {number} is at {buffer._version}, was {known}, reserved {buffer._reserved}"
                )
            self._versions[number] = buffer._version

    def _assigned(self, scheduler: Scheduler, core: MasterCore) -> None:
        """Each remote call is held by exactly the session it was sent to, under its fence (OFF-501, OFF-602)."""
        for session in core.sessions.values():
            if len(session.calls) > session.max_jobs:
                self._violated(
                    "OFF-411", f"{session.worker} has {len(session.calls)} calls, at most {session.max_jobs}"
                )
            for number, dispatch in session.calls.items():
                call = dispatch.call
                if call.fence != dispatch.fence or call.session != session.uid or call.phase not in REMOTE_PHASES:
                    self._violated(
                        "OFF-501", f"call {number} is at {session.worker} with fence {dispatch.fence}, not {call.fence}"
                    )
        for number, call in scheduler.calls.items():
            if call.phase in REMOTE_PHASES:
                holder = core.sessions.get(call.session)
                if holder is None or number not in holder.calls:
                    self._violated("OFF-604", f"call {number} is {call.phase.name} and nobody has it")

    def _counted(self, scheduler: Scheduler, core: MasterCore | None) -> None:
        """At rest all counters are zero (OFF-951)."""
        if scheduler.calls:
            return
        if core is not None and core.in_flight:
            self._violated("OFF-951", f"{core.in_flight} calls in flight at rest")
        if scheduler.queued:
            self._violated("OFF-951", f"{scheduler.queued} calls queued at rest")

    def _violated(self, clause: str, problem: str) -> None:
        raise InvariantViolated(clause, problem, tuple(self.trace)[-200:])
