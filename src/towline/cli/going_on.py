"""What to do after a run that did not succeed: its last lines (CLI-06). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from towline.execution.report import RunReport
    from towline.planning.deciding import ResumeOption


def next_steps(report: RunReport, resume: ResumeOption, *, keeps_state: bool) -> list[str]:
    """Say how to go on after a failure or a cancel; a block says it with its findings.

    Args:
        report: Of the run that has ended.
        resume: What a plain run of this pipeline does with the plan.
        keeps_state: Whether there is a plan to go on with; a dry run leaves none.
    """
    if report.status not in ("failed", "cancelled") or not keeps_state:
        return []
    again = "what failed runs again" if report.status == "failed" else "what was cut short goes on"
    if resume == "auto":
        return [f"To go on, run it again: what is done is kept, {again}. --fresh starts anew."]
    return [
        f"To go on, run it again with --resume: what is done is kept, {again}.",
        "A plain run starts anew, and is refused while cursors have moved.",
    ]
