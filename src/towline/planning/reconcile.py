"""An earlier plan against the program of today: what each task is now (PLAN-34, 35, 38). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from towline.planning.children import children_of, take_state
from towline.planning.digests import child_digests, closure_part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from towline.planning.built import BuiltPlan
    from towline.planning.records import PlannedTask


class Reconciled(msgspec.Struct, kw_only=True):
    """Each task of both plans in one class, in plan order; ``code_changed`` are kept ones too.

    ``changed`` differ themselves, ``stale`` only in something above them: both start over, without cursor,
    steps and result. ``code_changed`` are kept although their source text differs: whoever wants them to
    run again raises their ``version``.
    """

    kept: list[str] = []
    code_changed: list[str] = []
    added: list[str] = []
    removed: list[str] = []
    changed: list[str] = []
    stale: list[str] = []

    @property
    def is_same(self) -> bool:
        """Whether the program is the one that made the plan."""
        return not (self.code_changed or self.added or self.removed or self.changed or self.stale)

    @property
    def dropped(self) -> list[str]:
        """The tasks whose cursors, steps and results no longer count."""
        return [*self.removed, *self.changed, *self.stale]


def reconcile(earlier: Iterable[PlannedTask], built: BuiltPlan) -> tuple[list[PlannedTask], Reconciled]:
    """Carry what an earlier plan has reached into the rows of the plan that was built now.

    Args:
        earlier: The rows of the earlier plan, all of them, children of ``each`` modules included.
        built: Its rows are written to; kept ones take the state that was reached.

    Returns:
        The rows of the new plan: those of ``built``, then the children of ``each`` modules. Children whose
        join has to be expanded again are among them as they were (PLAN-61). And the class of each task.
    """
    known = {task.id: task for task in earlier}
    classes = Reconciled()
    for task in built.tasks:
        before = known.get(task.id)
        if before is None or before.parent is not None:
            classes.added.append(task.id)
            continue
        if _class_of(task.own_digest, task.closure_digest, before, classes):
            take_state(task, before)
            if task.code_digest != before.code_digest:
                classes.code_changed.append(task.id)
        else:
            task.epoch = before.epoch  # a late write of its last claim must find a greater one (CUR-05)
    children = [task for task in known.values() if task.parent is not None and task.id not in built.index]
    rows = [*built.tasks, *_kept_children(children, built, classes)]
    classes.removed += [task.id for task in known.values() if task.parent is None and task.id not in built.index]
    return rows, classes


def _class_of(own: str, closure: str, before: PlannedTask, classes: Reconciled) -> bool:
    """Put a task into its class; says whether it is kept."""
    if closure == before.closure_digest:
        classes.kept.append(before.id)
        return True
    (classes.stale if own == before.own_digest else classes.changed).append(before.id)
    return False


def _kept_children(children: Iterable[PlannedTask], built: BuiltPlan, classes: Reconciled) -> list[PlannedTask]:
    """Return the children that still have their join, as it is declared now."""
    kept: list[PlannedTask] = []
    above: dict[str, list[str]] = {}
    for child in children:
        place = built.index.get(child.parent or "")
        if place is None or not built.tasks[place].join:
            classes.removed.append(child.id)
            continue
        join = built.tasks[place]
        digests = above.get(join.id)
        if digests is None:
            sources = [one for one in built.depends_on[place] if built.tasks[one].id != join.source]
            digests = above[join.id] = [built.tasks[one].closure_digest for one in sources]
        key, item_digest = child.key or "", child.item_digest or ""
        own, closure = child_digests(join, closure_part(digests), key, item_digest)
        if not _class_of(own, closure, child, classes):
            kept.append(child)  # its join is not kept either, so it is held until that is expanded anew
            continue
        (now,) = children_of(join, [key], [item_digest], digests, {child.id: child})
        now.item = child.item
        if now.code_digest != child.code_digest:
            classes.code_changed.append(child.id)
        kept.append(now)
    return kept
