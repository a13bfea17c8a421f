"""What the master makes of what it hears of a worker, and of silence (section 5, 7.6). Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from towline.offload.calls import Phase
from towline.offload.master_joining import Joining
from towline.offload.messages import HeartbeatAck
from towline.offload.probing import ECHO

if TYPE_CHECKING:
    from towline.offload.messages import Heartbeat
    from towline.offload.sessions import Session

UNKNOWN_RTT_S = 1.0
PROBING_S = 30.0
"""After so long without progress a worker is used for those kernels that answered."""


class Judging(Joining):
    """Heartbeats with their inventory, deadlines, and who is suspected, buried or forgiven."""

    def _heartbeat(self, session: Session, beat: Heartbeat, now: float) -> None:
        if beat.number <= session.beat:
            return  # an older one is life, no more
        session.beat = beat.number
        session.full = False
        session.mem_free = max(beat.mem_free, 0)
        session.cache_bytes = max(beat.cache_bytes, 0)
        session.load = beat.load if math.isfinite(beat.load) and beat.load >= 0 else session.load
        for buffer, version in beat.evicted[:256]:
            session.lose(buffer, version)
        stop = self._inventory(session, beat, now)
        session.running = sum(job.phase == 2 for job in beat.jobs)
        session.queued = max(len(session.calls), len(beat.jobs)) - session.running
        self._send(session.link, HeartbeatAck(beat.number, beat.sent_at, stop))
        if session.state == "joining":
            self._begin_probing(session, now)
        self.scheduler.reconsider(now)
        self.scheduler.advance(now)

    def _inventory(self, session: Session, beat: Heartbeat, now: float) -> list[tuple[int, int]]:
        """Compare what the worker has with what it was given (OFF-605, OFF-608)."""
        stop: list[tuple[int, int]] = []
        listed: dict[tuple[int, int], tuple[int, int]] = {
            (job.call, job.fence): (job.phase, job.bytes) for job in beat.jobs
        }
        listed.update({(call, fence): (3, size) for call, fence, size in beat.unacked})
        for (number, fence), (phase, size) in listed.items():
            dispatch = self._current(session, number, fence)
            if dispatch is None:
                if number not in session.probes and phase != 3:
                    stop.append((number, fence))
                continue
            dispatch.misses = 0
            call = dispatch.call
            if phase in (0, 2) or size > dispatch.listed_bytes:
                dispatch.touched_at = now
            dispatch.listed_bytes = max(size, dispatch.listed_bytes)
            if call.phase in (Phase.SENT, Phase.ACCEPTED):
                call.phase = Phase.RUNNING if phase == 2 else Phase.ACCEPTED
        settle = 2 * session.rtt_s if session.rtt_s else UNKNOWN_RTT_S
        for dispatch in list(session.calls.values()):
            if (dispatch.call.number, dispatch.fence) in listed or dispatch.call.phase is Phase.FETCHING:
                continue
            if dispatch.flushed_at is not None and now > dispatch.flushed_at + settle:
                dispatch.misses += 1
                if dispatch.misses >= self.options.inventory_misses:
                    self._give_up(session, dispatch, "inventory", now)
        return stop

    def _judge(self, session: Session, now: float) -> None:
        if not session.living:
            return
        options = self.options
        silence = now - session.last_bytes_at
        if silence > options.liveness_timeout_s:
            self._bury(session, f"silent for {silence:.1f} s", now)
            return
        if session.state == "live" and silence > options.suspect_after_s:
            session.state = "suspect"
            self._tell("worker_suspect", now, session)
        if session.state == "probing":
            if not session.probes or now - session.probe_at > PROBING_S:
                self._become_live(session, now)
            elif ECHO in session.probes.values() and now - session.echo_at > options.pull_timeout_s:
                # The echo takes no time: without an answer by now, it or its answer was lost.
                session.probes.clear()
                asked = session.probe_at
                self._begin_probing(session, now)
                session.probe_at = asked
        for dispatch in list(session.calls.values()):
            call = dispatch.call
            if session.calls.get(call.number) is not dispatch:
                continue
            deadline = call.result_deadline_s if call.result_deadline_s is not None else options.result_deadline_s
            if now - dispatch.touched_at > options.call_deadline_s:
                self._give_up(session, dispatch, "deadline", now)
            elif deadline is not None and now - dispatch.sent_at > deadline:
                self._give_up(session, dispatch, "result_deadline", now)
            elif call.phase is Phase.FETCHING and now - dispatch.moved_at > options.pull_timeout_s:
                self._fetch_again(session, dispatch, now)

    def _judge_remote_calls(self, now: float) -> None:
        waiting = self.scheduler.ready_remote
        if not waiting or self.live:
            self._remote_since = None
        if not waiting:
            return
        for call in waiting:
            reason = call.decline.reason if call.decline is not None else "no_live_worker"
            if reason == "all_busy":
                call.ready_at = max(call.ready_at, now - self.options.no_worker_wait_s / 2)
            elif now - call.ready_at > self.options.no_worker_wait_s:
                out = self.explanations.left_out(call)
                self.scheduler.unavailable(call, now - call.ready_at, self.live, out, now)

    def _forgive(self, paused: float) -> None:
        for peer in self.peers.values():
            peer.greeted_at += paused
        for session in self._names.values():
            session.last_bytes_at += paused
            session.probe_at += paused
            for dispatch in session.calls.values():
                dispatch.touched_at += paused
                dispatch.moved_at += paused
