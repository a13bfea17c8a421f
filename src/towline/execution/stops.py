"""Why a run is being stopped, and how long always-run tasks may still wait to start (SCHED-15, RUN-56)."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

StopReason: TypeAlias = Literal["pipeline_failed", "stopped", "interrupted", "operator"]

SMALLEST_REST_S: Final = 1e-6

_SEVERITY: Final[dict[str, int]] = {"pipeline_failed": 1, "operator": 2, "stopped": 2, "interrupted": 3}


class Stop:
    """The stop of one run, if it was asked for; it only escalates.

    After a failure always-run tasks may wait ``budget_s`` to start; 0 means for ever. Only time in which
    no body of the run is at work counts, so neither a slow cancel nor a slow clean-up eats it.
    """

    def __init__(self, budget_s: float) -> None:
        self.reason: StopReason | None = None
        self.always_run_too = False
        self._left_s = budget_s
        self._budgeted = budget_s > 0
        self.has_budget = False
        """Whether always-run tasks must start in time: only after a failure."""
        self._idle_from: float | None = None

    def ask(self, reason: StopReason, always_run_too: bool) -> bool:
        """Stop, or stop harder; returns whether there is anything new to cancel."""
        harder = self.reason is None or _SEVERITY[reason] > _SEVERITY[self.reason]
        wider = always_run_too and reason != "pipeline_failed" and not self.always_run_too
        if harder:
            self.reason = reason
            self.has_budget = self._budgeted and reason == "pipeline_failed"
        self.always_run_too = self.always_run_too or wider
        return harder or wider

    def count(self, now: float, is_idle: bool) -> float:
        """Count the time since the last call if nothing ran then; returns the seconds left, at least 0."""
        if self._idle_from is not None:
            left_s = self._left_s - (now - self._idle_from)
            # A rest of rounding is nothing: `now` plus it would be `now` again, and the loop would spin.
            self._left_s = left_s if left_s > SMALLEST_REST_S else 0.0
        self._idle_from = now if is_idle else None
        return self._left_s
