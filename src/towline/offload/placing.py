"""Which workers may take a call, what the policy says, and what is said when none does (OFF-402 to OFF-409). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.offload.policies import LeastLoadedPolicy, completion_s
from towline.offload.records import CallNumber, CallView, Decline, LocalView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from towline.offload.calls import Call
    from towline.offload.options import OffloadOptions
    from towline.offload.policies import OffloadPolicy
    from towline.offload.scheduler import Scheduler
    from towline.offload.sessions import Session

_RANK = ("no_live_worker", "kernel_unsupported", "numeric_mismatch", "dtype_unsupported", "no_memory", "all_busy")


class Placer:
    """Asks the policy, about those workers that it may choose from."""

    def __init__(self, scheduler: Scheduler, policy: OffloadPolicy, options: OffloadOptions, random: Random) -> None:
        self._scheduler, self.policy, self._options, self._random = scheduler, policy, options, random
        self.on_policy_error: Callable[[Call, str], None] = lambda call, text: None
        self.on_choice: Callable[[Call, dict[str, str], dict[str, float], str], None] = (
            lambda call, out, costs, chosen: None
        )

    def choose(self, call: Call, sessions: Iterable[Session], now: float) -> Session | Decline:
        """Return the worker for a call, or why it stays."""
        assert call.function is not None
        limit = call.function.kernel.min_offload_bytes
        limit = self._options.min_offload_bytes if limit is None else limit
        remote = call.place == "remote"
        if call.payload_bytes < limit and not remote:
            return Decline("below_min_bytes", f"payload {call.payload_bytes} bytes, limit {limit} (min_offload_bytes)")
        out: dict[str, str] = {}
        details: dict[str, str] = {}
        fit: list[Session] = []
        for session in sessions:
            reason, detail = self._left_out(call, session)
            if reason:
                out[session.worker] = f"{reason}: {detail}" if detail else reason
                details.setdefault(reason, detail)
            else:
                fit.append(session)
        fresh = [session for session in fit if session.worker not in call.failed_on]
        for session in fit if fresh else ():
            if session.worker in call.failed_on:
                out[session.worker] = "failed at this call before"
        fit = fresh or fit
        if not fit:
            reason = max(details, key=_RANK.index, default="no_live_worker")
            decline = Decline(reason, details.get(reason, ""))
            self.on_choice(call, out, {}, decline.reason)
            return decline
        return self._ask(call, fit, out, now)

    def _ask(self, call: Call, fit: list[Session], out: dict[str, str], now: float) -> Session | Decline:
        missing = {session.worker: missing_bytes(call, session) for session in fit}
        costs: dict[str, float]
        if call.place == "remote" or type(self.policy) is LeastLoadedPolicy:
            # Views are for policies of others; the default's choice needs five numbers of each worker.
            costs = {
                session.worker: session.completion_s(missing[session.worker], returning_bytes(call, session))
                for session in fit
            }
            best = min(fit, key=lambda s: (costs[s.worker], missing[s.worker], s.worker)) if len(fit) > 1 else fit[0]
            self.on_choice(call, out, costs, best.worker)
            return best
        views = [session.view() for session in fit]
        scheduler = self._scheduler
        view = CallView(
            call=CallNumber(call.number), kernel=call.kernel_name, payload_bytes=call.payload_bytes,
            output_bytes=max(returning_bytes(call, session) for session in fit), missing_bytes=missing, attempt=call.attempts + 1,
            failed_on=tuple(sorted(call.failed_on)), expected_s=call.expected_s,
        )  # fmt: skip
        local = LocalView(
            slots=scheduler.local_slots, running=scheduler.local_running, backlog_s=scheduler.local_backlog_s,
            expected_s=call.expected_s,
        )  # fmt: skip
        costs = {w.worker: completion_s(view, w) for w in views}
        try:
            picked = self.policy.pick_worker(view, views, local, now, self._random)
        except Exception as error:  # noqa: BLE001 - a policy is foreign code; declining is always safe (OFF-409)
            self.on_policy_error(call, f"{type(error).__name__}: {error}")
            return Decline("policy_error", f"{type(error).__name__}: {error}")
        if isinstance(picked, Decline):
            self.on_choice(call, out, costs, picked.reason)
            return picked
        for session in fit:
            if session.worker == picked:
                self.on_choice(call, out, costs, picked)
                return session
        self.on_policy_error(call, f"it named {picked!r}, which is not eligible")
        return Decline("policy_error", f"the policy named {picked!r}, which is not eligible")

    def _left_out(self, call: Call, session: Session) -> tuple[str, str]:
        if session.state != "live":
            return "no_live_worker", ""
        name = call.kernel_name
        if name not in session.kernels:
            return "kernel_unsupported", session.other_kernels.get(name) or f"{name!r} is not on {session.worker}"
        if name in session.refused_kernels:
            return "numeric_mismatch", session.refused_kernels[name]
        if not session.same_numeric and any(b._data.dtype.char in "gG" for b in (*call.reads, *call.writes)):
            return "dtype_unsupported", f"long double differs on {session.worker}"
        if session.mem_free and session.mem_free < missing_bytes(call, session) + call.output_bytes:
            return "no_memory", f"{session.worker} has {session.mem_free} bytes free"
        if not session.has_room or session.peer.outgoing.unsent_bytes > self._options.send_window_bytes:
            return "all_busy", ""
        return "", ""


def returning_bytes(call: Call, session: Session) -> int:
    """Return how many output bytes would have to come from the worker: shared buffers are written where they are read."""
    if session.shm != "on":
        return call.output_bytes
    return sum(buffer._data.nbytes for buffer in call.writes if not buffer._shared)


def missing_bytes(call: Call, session: Session) -> int:
    """Return how many input bytes the worker would have to get."""
    return sum(
        buffer._data.nbytes
        for buffer in {b._id: b for b in call.reads}.values()
        if (buffer._id, buffer._version) not in session.resident
        and not (buffer._region is not None and session.shm == "on")
    )
