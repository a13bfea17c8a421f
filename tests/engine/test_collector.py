"""What a run does with the garbage collector, and that it leaves it as it was."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from towline import Context, Module, Options, Pipeline
from towline.errors.run import PipelineFailedError
from towline.pipeline.garbage import LARGE_PLAN_TASKS

SEEN: list[int] = []


class Look(Module[None]):
    """Note how many objects the collector passes by; one of them fails on demand."""

    number: int
    fails: bool = False

    async def run(self, ctx: Context) -> None:
        SEEN.append(gc.get_freeze_count())
        if self.fails:
            raise RuntimeError("no")


def run(folder: Path, tasks: int, *, fails: bool = False) -> None:
    SEEN.clear()
    modules = [Look(number, fails=fails and not number) for number in range(tasks)]
    Pipeline("collected", modules, options=Options(state=str(folder / "state"))).run_sync()


@pytest.mark.parametrize("fails", [False, True])
def test_a_large_plan_is_set_aside_and_given_back(tmp_path: Path, *, fails: bool) -> None:
    """A full collection walks all of a plan that lives to the end of the run: half the time of its build."""
    before = gc.get_freeze_count()

    if fails:
        with pytest.raises(PipelineFailedError):
            run(tmp_path, LARGE_PLAN_TASKS, fails=True)
    else:
        run(tmp_path, LARGE_PLAN_TASKS)

    assert min(SEEN) > LARGE_PLAN_TASKS
    assert gc.get_freeze_count() == before == 0
    assert gc.isenabled()


def test_a_small_plan_leaves_the_heap_alone(tmp_path: Path) -> None:
    """A long run of few tasks must not hold garbage of the program around it."""
    run(tmp_path, 2)

    assert SEEN == [0, 0]


def test_a_heap_that_others_have_frozen_stays_frozen(tmp_path: Path) -> None:
    """A server that forks freezes its heap; a run in it must not thaw it."""
    gc.freeze()
    try:
        run(tmp_path, LARGE_PLAN_TASKS)
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
