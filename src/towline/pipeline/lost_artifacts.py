"""Before a resume: which finished tasks have to run again because their files are gone (PLAN-37, ART-15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from towline.artifacts.records import ArtifactRef
    from towline.artifacts.store import ArtifactStore
    from towline.planning.built import BuiltPlan
    from towline.planning.deciding import Found
    from towline.planning.records import PlannedTask

DONE = ("succeeded", "skipped")


async def with_lost_artifacts(found: Found, built: BuiltPlan, artifacts: ArtifactStore) -> Found:
    """Count tasks whose artifacts somebody still needs, and the store no longer has, among the missing ones.

    A store may forget (a Redis server does, an hour after the last use): the consumer would fail for ever.
    """
    if found.plan is None:
        return found
    lost: set[str] = set()
    for task, reference in _needed(found.plan.tasks, built):
        if task.id not in lost and not await artifacts.exists(reference.digest):
            lost.add(task.id)
    return msgspec.structs.replace(found, missing=found.missing | lost) if lost else found


def _needed(rows: list[PlannedTask], built: BuiltPlan) -> Iterator[tuple[PlannedTask, ArtifactRef]]:
    """Give each finished producer with what a task that is not done will ask it for."""
    if not any(built.artifacts):
        return
    known = {row.id: row for row in rows}
    children: dict[str, list[PlannedTask]] = {}
    for row in rows:
        if row.parent is not None:
            children.setdefault(row.parent, []).append(row)
    for place, uses in enumerate(built.artifacts):
        consumer = known.get(built.tasks[place].id)
        if not uses or consumer is None or consumer.state in DONE:
            continue
        for use in uses:
            for producer in use.tasks:
                name = built.tasks[producer].id
                for row in (known.get(name), *children.get(name, ())):
                    if row is not None and row.state == "succeeded":
                        yield from ((row, one) for one in row.artifacts or () if one.name == use.artifact)
