"""What differs between the program of a run and the one of this node (COORD-C08)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.errors.coordination import ProgramMismatchError
from towline.errors.root import TowlineError
from towline.planning.loading import decode_document
from towline.state.planfile import PlanFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from towline.planning.records import PlannedTask
    from towline.state.store import StateStore

SHOWN = 3
"""Differing tasks that an error names."""
KERNELS_DIFFER = "every task is the same, the offload kernels differ"
"""What is left when the fingerprints differ and no task does (OFF-905)."""


async def with_differences(
    error: ProgramMismatchError, store: StateStore, own: Sequence[PlannedTask]
) -> ProgramMismatchError:
    """Return the refusal with the first tasks that differ from the plan in the shared state.

    Without a readable plan there it stays as it was: it says enough to act on.
    """
    plan_file = PlanFile(store)
    try:
        loaded = await plan_file.load()
    except TowlineError:
        return error
    finally:
        await plan_file.close()
    if loaded.snapshot is None:
        return error
    differing = differences(decode_document(loaded.snapshot).tasks, own) or [KERNELS_DIFFER]
    return ProgramMismatchError(error.what, error.run_value, error.own_value, tuple(differing))


def differences(of_run: Sequence[PlannedTask], own: Sequence[PlannedTask]) -> list[str]:
    """Name the first tasks that differ, in the order of the run's plan, then those that only this node has."""
    found = list(_all_differences(of_run, own))
    return found[:SHOWN] + ([f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else [])


def _all_differences(of_run: Sequence[PlannedTask], own: Sequence[PlannedTask]) -> Iterator[str]:
    ours = {task.id: (task.own_digest, task.code_digest) for task in own}
    theirs = {task.id: (task.own_digest, task.code_digest) for task in of_run if task.parent is None}
    for name, digest in theirs.items():
        if name not in ours:
            yield f"{name} is missing here"
        elif ours[name] != digest:
            yield f"{name} differs"
    for name in ours:
        if name not in theirs:
            yield f"{name} is only here"
