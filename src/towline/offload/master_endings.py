"""How a dispatch ends: committed, failed, given up, or tried again (sections 7.5, 7.6). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.offload.master_state import MasterState, finite_seconds
from towline.offload.messages import (
    Cancel,
    ErrorReport,
    Result,
    ResultAck,
)
from towline.offload.records import Decline
from towline.offload.work import MAY_STILL_RUN

if TYPE_CHECKING:
    from towline.offload.arrays import Array
    from towline.offload.calls import Call
    from towline.offload.sessions import Dispatch, Session


class Endings(MasterState):
    """Commits, failures and retries: the only places where a dispatch ends."""

    def _commit(self, session: Session, dispatch: Dispatch, arrays: list[Array], now: float) -> None:
        """The call of the current fence has all its bytes: commit them in this very step (OFF-501)."""
        call = dispatch.call
        kernel_s = call.kernel_s
        writes = list(zip(call.writes, call.reserved, dispatch.regions, strict=True))
        self._answer(session, dispatch, keep_outputs=True)
        if not self.scheduler.commit(call, arrays, kernel_s, now, dispatch.regions):
            return
        for buffer, version, region in writes:
            if region is None:
                session.keep(buffer._id, version, buffer._data.nbytes)
        self._tell("call_committed", now, session, {}, call)
        self.scheduler.room_made = True

    def _answer(self, session: Session, dispatch: Dispatch, *, ended: bool = True, keep_outputs: bool = False) -> None:
        self._forget(session, dispatch)
        self._release_regions(dispatch, ended=ended, keep_outputs=keep_outputs)
        self._ended_with(dispatch.call.number, dispatch.fence)
        self._send(session.link, ResultAck(dispatch.call.number, dispatch.fence, "committed"))

    def _refuse_result(self, session: Session, message: Result, now: float) -> None:
        """A result of an older fence, or of a call that ended: counted, answered, never looked at (OFF-502)."""
        seen = self._ended.get(message.call)
        if seen == message.fence:
            self.resent_results += 1
        else:
            self.scheduler.stale += 1
            self._tell("result_stale", now, session, {"call": message.call, "fence": message.fence})
        if self._regions is not None and kernel_ended(message):
            self._regions.ended(message.fence)
        self._send(
            session.link, ResultAck(message.call, message.fence, "duplicate" if seen == message.fence else "stale")
        )

    def _failed_result(self, session: Session, dispatch: Dispatch, message: Result, now: float) -> None:
        call = dispatch.call
        report = message.error or ErrorReport("kernel_error", "Unknown", "the worker gave no reason")
        self._answer(session, dispatch, ended=kernel_ended(message))
        if report.kind == "drained" or message.status == "cancelled":
            self._again(call, now)
            return
        if report.kind == "crashed":
            call.crashes += 1
        if report.retryable or report.kind in ("retryable", "crashed", "stale_input", "pull_failed", "no_memory"):
            self._count_failure(session, call, report.kind, now)
            return
        elapsed = finite_seconds(message.timings.get("kernel_s", 0.0))
        self.scheduler.fail(call, report, session.worker, elapsed, now)
        self._tell("call_failed", now, session, {"kind": report.kind}, call)

    def _give_up(self, session: Session, dispatch: Dispatch, why: str, now: float) -> None:
        self._send(session.link, Cancel(dispatch.call.number, dispatch.fence))
        self._failed_attempt(session, dispatch, why, now)

    def _failed_attempt(self, session: Session, dispatch: Dispatch, why: str, now: float) -> None:
        self._forget(session, dispatch)
        self._release_regions(dispatch, ended=False)
        self._count_failure(session, dispatch.call, why, now)

    def _count_failure(self, session: Session, call: Call, why: str, now: float) -> None:
        """After the last counted attempt the call stays here, if it may (OFF-609)."""
        session.recent_failures += 1
        call.attempts_on.append(session.worker)
        call.failed_on.add(session.worker)
        call.ran_on = None
        self.explanations.failed(call, now, f"{why} on {session.worker}")
        if len(call.attempts_on) < self.options.attempts:
            self.scheduler.requeue(call, now)
        elif call.place == "remote":
            self.scheduler.unavailable(call, now - call.ready_at, self.live, (f"{why} on {session.worker}",), now)
        else:
            call.pinned_local = True
            tried = ", ".join(call.attempts_on)
            self.scheduler.queue_local(
                call, Decline("pinned_local", f"{len(call.attempts_on)} attempts failed ({tried}: {why})")
            )
        self.scheduler.advance(now)

    def _again(self, call: Call, now: float) -> None:
        call.ran_on = None
        self.scheduler.requeue(call, now)
        self.scheduler.advance(now)

    def _bury(self, session: Session, reason: str, now: float) -> None:
        """The session is dead: its link is closed and its calls are ready at once (OFF-604)."""
        session.state, session.reason = "dead", reason
        self._part(session, reason)
        self._tell("worker_dead", now, session, {"reason": reason})
        for dispatch in list(session.calls.values()):
            self._failed_attempt(session, dispatch, "death", now)
        self.scheduler.advance(now)

    def _gone(self, session: Session, reason: str, now: float) -> None:
        session.state, session.reason = "gone", reason
        self._part(session, reason)
        self._tell("worker_left", now, session, {"reason": reason})
        for dispatch in list(session.calls.values()):
            self._forget(session, dispatch)
            self._release_regions(dispatch, ended=False)
            self._again(dispatch.call, now)
        self.scheduler.advance(now)

    def _release_regions(self, dispatch: Dispatch, *, ended: bool, keep_outputs: bool = False) -> None:
        """Regions are used again only when the kernel of every fence that was given them has ended; else they are lost.

        Who may write into a region (OFF-708): the worker keeps it mapped, and a worker that was stopped, or is thought dead, may
        run its kernel at any later time. So a region counts the fences it was given to. A fence leaves it by a RESULT that comes of the end
        of its kernel, which runs once (OFF-611), or by a CALL_ACK that refuses the call. A region that is put away while a
        fence is left is unlinked, and its memory never shown to anyone again: what a zombie writes there, nobody reads.
        """
        if self._regions is None:
            return
        for buffer in dispatch.call.reads:
            if buffer._region is not None and ended:
                buffer._region.users.discard(dispatch.fence)
        for region in dispatch.regions:
            if region is not None:
                if ended:
                    region.users.discard(dispatch.fence)
                if not keep_outputs:
                    self._regions.retire(region, viewed=False)


def kernel_ended(message: Result) -> bool:
    """Say whether a RESULT proves that the kernel of its fence does not run any more."""
    if message.status == "ok":
        return True
    return message.status == "failed" and message.error is not None and message.error.kind not in MAY_STILL_RUN
