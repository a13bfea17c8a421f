"""When an edge lets its task go on."""

from __future__ import annotations

import pytest

from towline.planning.edges import satisfied
from towline.planning.records import EdgeUse, TaskState
from towline.testing import clause

OPEN: tuple[TaskState, ...] = ("pending", "queued", "running")
ENDED: tuple[TaskState, ...] = ("failed", "timed_out", "skipped", "cancelled")


@clause("PLAN-08")
@pytest.mark.parametrize("use", ["value", "order", "optional", "outcome"])
def test_each_kind_of_edge_accepts_what_its_name_says(use: EdgeUse) -> None:
    """Planner, scheduler and resume ask this one function, so they cannot disagree."""
    assert {satisfied(use, state) for state in OPEN} == {None}
    assert satisfied(use, "succeeded") is True
    for state in ENDED:
        assert satisfied(use, state) is (use in ("optional", "outcome"))
    for state in ("failed", "timed_out"):
        assert satisfied(use, state, ignored=True) is (use != "value")
