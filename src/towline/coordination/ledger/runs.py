"""The run itself: mastership, signal, completion, state (COORD-C60 to C65)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from towline.coordination.ledger.state import SIGNAL
from towline.coordination.records import RunState
from towline.errors.coordination import MasterAliveError, ProgramMismatchError, RunIdUsedError

if TYPE_CHECKING:
    from towline.coordination.ledger.state import LedgerState, Step
    from towline.coordination.operations import Beat, Complete, OpenRun, ReadRun, ReadWorkVersion, SendSignal
    from towline.coordination.records import RunOpening
    from towline.coordination.signals import Signal


def open_run(step: Step, operation: OpenRun) -> RunState:
    """Open the run, or take it over from a dead master. Repeated by the same master it only beats."""
    state, opening = step.state, operation.opening
    current = state.opening
    if current is not None:
        _check_take_over(step, current, opening)
    adopts = current is not None and opening.owner_epoch != current.owner_epoch
    state.opening = opening
    state.epoch_jumps = max(state.epoch_jumps, opening.epoch_jumps)
    state.master_beat_ms = step.now_ms
    if adopts:
        # Living holders could not renew while nobody led the run: give them one timeout (COORD-C47).
        state.requeue_after_ms = step.now_ms + opening.worker_timeout_ms
    return run_state(state, step.now_ms)


def _check_take_over(step: Step, current: RunOpening, opening: RunOpening) -> None:
    for what in ("program", "fingerprint"):
        ours, theirs = getattr(opening, what), getattr(current, what)
        if ours != theirs:
            raise ProgramMismatchError(what, theirs, ours)
    same_master = opening.master_id == current.master_id
    if same_master and opening.owner_epoch == current.owner_epoch:
        return
    if step.state.completed:
        raise RunIdUsedError(current.run_id)
    silent_ms = step.now_ms - step.state.master_beat_ms
    is_alive = silent_ms < current.master_lease_ms and not same_master and opening.replaces != current.owner_epoch
    if opening.owner_epoch <= current.owner_epoch or is_alive:
        raise MasterAliveError(current.run_id, current.master_id, current.owner_epoch, silent_ms / 1000)


def beat(step: Step, operation: Beat) -> int:
    """Renew mastership."""
    step.require_master(operation.owner_epoch)
    step.state.master_beat_ms = step.now_ms
    return step.state.epoch_jumps


def send_signal(step: Step, operation: SendSignal) -> Signal:
    """Raise the signal; a lower one changes nothing (COORD-C61)."""
    step.require_master(operation.owner_epoch)
    if operation.signal > step.state.signal:
        step.state.signal = operation.signal
        step.wake(SIGNAL)
        step.raise_work_version()
    return step.state.signal


def complete(step: Step, operation: Complete) -> None:
    """End the run for claimers; running work is not touched (COORD-C62)."""
    step.require_master(operation.owner_epoch)
    if not step.state.completed:
        step.state.completed = True
        step.raise_work_version()


def read_run(step: Step, _: ReadRun) -> RunState:
    """Say how the run stands (COORD-C63)."""
    return run_state(step.state, step.now_ms)


def read_work_version(step: Step, _: ReadWorkVersion) -> int:
    """Return the number that every change of the queue raises."""
    step.require_run()
    return step.state.work_version


def run_state(state: LedgerState, now_ms: int) -> RunState:
    """Make the answer that workers get about the run."""
    run = state.opening
    if run is None:
        return RunState(state="unknown")
    silent_ms = max(0, now_ms - state.master_beat_ms)
    return RunState(
        state="completed" if state.completed else "lost" if silent_ms > run.master_timeout_ms else "running",
        signal=state.signal,
        owner_epoch=run.owner_epoch,
        master_silent_ms=silent_ms,
        master_timeout_ms=run.master_timeout_ms,
        worker_timeout_ms=run.worker_timeout_ms,
        program=run.program,
        fingerprint=run.fingerprint,
        params=msgspec.Raw(bytes(run.params)),
        state_id=run.state_id,
        plan_id=run.plan_id,
    )
