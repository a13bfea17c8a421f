"""Kernels under turned time: when they compute, and when that is told."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from towline.offload.arrays import bytes_of
from towline.offload.frames import body_digest
from towline.offload.messages import ErrorReport
from towline.offload.work import Work, run_here

if TYPE_CHECKING:
    from simulation.world import World


class StepRunner:
    """Computes at once, and tells it after a time that the plan decides."""

    def __init__(self, world: World, worker: int) -> None:
        self._world, self._worker = world, worker
        self.runs = 0

    def start(self, work: Work) -> None:
        world = self._world
        random = Random(f"{world.plan.seed}/run/{self._worker}/{self.runs}")
        self.runs += 1
        seconds = random.choice([0.0, 0.002, 0.05, 0.4])
        outcome = self._outcome(work)
        for fault in world.plan.faults:
            if fault.worker == self._worker and fault.start <= world.age < fault.end and random.random() < fault.chance:
                if fault.kind == "raise_retryable":
                    outcome = ErrorReport("retryable", "Retry", "asked for", "", True)
                elif fault.kind == "crash":
                    outcome = ErrorReport("crashed", "KernelCrashed", "signal SIGKILL", "", True)
                elif fault.kind == "slow":
                    seconds += fault.size
        world.clock.call_later(seconds, self._tell, work, outcome, seconds)

    def _outcome(self, work: Work) -> Any:
        return run_here(work)

    def _tell(self, work: Work, outcome: Any, seconds: float) -> None:
        if work.settled:
            return
        work.settled = True
        if isinstance(outcome, ErrorReport):
            work.on_failed(outcome, seconds)
        else:
            work.on_done(outcome, seconds)

    def stop(self, work: Work) -> None:
        work.cancel.set()

    def close(self) -> None:
        return


class LateRunner(StepRunner):
    """Computes when it tells, also for a call that was cancelled meanwhile: like a thread, which cannot be stopped.

    O10: the inputs of a kernel do not change while it runs, whatever became of its call. The array that a user bound is
    another matter: commits go there, and a local run reads it where it is.
    """

    def _outcome(self, work: Work) -> Any:
        return self._digests(work)

    def _tell(self, work: Work, outcome: Any, seconds: float) -> None:
        if isinstance(outcome, dict):
            if any(body_digest([bytes_of(work.inputs[index])]) != before for index, before in outcome.items()):
                raise AssertionError(f"O10: an input of a kernel on worker {self._worker} changed while it ran")
            outcome = run_here(work)
        super()._tell(work, outcome, seconds)

    def _digests(self, work: Work) -> dict[int, bytes]:
        bound = {array.ctypes.data for array in (buffer._data for buffer in self._world.table._bound.values())}
        return {
            index: body_digest([bytes_of(array)])
            for index, array in enumerate(work.inputs)
            if array.ctypes.data not in bound
        }
