"""The tasks that an ``each`` module stands for: keys of items, rows of children, the state of the whole (PLAN-56 to 62)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from towline.errors.planning import ExpansionError
from towline.identity.names import encode_key, task_id
from towline.planning.digests import child_digests, closure_part
from towline.planning.keys import key_text
from towline.planning.records import FINAL_STATES, ExpandRecord, PlannedTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from towline.planning.records import TaskState

WORST_FIRST: tuple[TaskState, ...] = ("failed", "timed_out", "cancelled", "skipped")
"""A join ends as the first of these that one of its children has, else ``succeeded``."""


def expansion(
    join: PlannedTask,
    items: object,
    *,
    seq: int,
    source_digest: str,
    item_digest: Callable[[object], str],
    tasks_now: int,
    max_tasks: int,
) -> ExpandRecord:
    """Turn the items that the source gave into the record that makes them tasks (PLAN-57).

    Args:
        join: The ``each`` module.
        items: A list, a tuple or a dict; a dict gives its own keys.
        seq: Number of the record.
        source_digest: Digest of the result that the items are from.
        item_digest: Gives the digest of one encoded item.
        tasks_now: Tasks of the run, joins not counted.
        max_tasks: Most tasks that it may have.

    Raises:
        ExpansionError: An item has no key, keys are not unique (case ignored), or there are too many.
    """
    values, named = _values(join.id, items)
    if tasks_now + len(values) > max_tasks:
        raise ExpansionError(
            join.id, -1, None, f"gives {len(values):,} tasks, with {tasks_now:,} there are above {max_tasks:,}"
        )
    keys: list[str] = []
    met: dict[str, int] = {}
    for index, value in enumerate(values):
        key = _key(join.id, index, named[index] if named is not None else _key_source(value))
        other = met.setdefault(key.casefold(), index)
        if other != index:
            raise ExpansionError(join.id, index, key, f"has the key of item {other}")
        keys.append(key)
    digests = tuple([item_digest(value) for value in values])
    return ExpandRecord(seq=seq, join=join.id, source_digest=source_digest, keys=tuple(keys), items=digests)


def children_of(
    join: PlannedTask,
    keys: Sequence[str],
    items: Sequence[str],
    above: Iterable[str],
    before: Mapping[str, PlannedTask],
) -> tuple[PlannedTask, ...]:
    """Make the rows of a join's children, in item order (PLAN-62).

    ``keys`` are encoded, ``items`` are digests, ``above`` the closure digests of what the join depends on
    without its source. A child in ``before`` with the same closure keeps its state (PLAN-61).
    """
    part = closure_part(above)
    children: list[PlannedTask] = []
    for index, (key, digest) in enumerate(zip(keys, items, strict=True)):
        own, closure = child_digests(join, part, key, digest)
        child = PlannedTask(
            id=task_id(join.module, key),
            module=join.module,
            key=key,
            phase=join.phase,
            tier=join.tier,
            depends_on=join.depends_on,
            edges=join.edges,
            gates=join.gates,
            own_digest=own,
            closure_digest=closure,
            code_digest=join.code_digest,
            always_run=join.always_run,
            gate=join.gate,
            at_most_once=join.at_most_once,
            parent=join.id,
            item=index,
            item_digest=digest,
        )
        known = before.get(child.id)
        if known is not None and known.closure_digest == closure:
            take_state(child, known)
        elif known is not None:
            child.epoch = known.epoch  # its next claim must be above its last one, whose writes may still come
        children.append(child)
    return tuple(children)


def take_state(task: PlannedTask, known: PlannedTask) -> PlannedTask:
    """Write into ``task``, as it is declared now, what ``known``, its earlier row, has reached; returns ``task``.

    These are the fields that a run changes; all others follow from the program.
    """
    task.state, task.ignored = known.state, known.ignored
    task.reason, task.reason_text, task.blocked_by = known.reason, known.reason_text, known.blocked_by
    task.error, task.findings = known.error, known.findings
    task.attempts, task.epoch, task.worker = known.attempts, known.epoch, known.worker
    task.started_at, task.finished_at = known.started_at, known.finished_at
    task.done, task.total, task.checkpoint_at = known.done, known.total, known.checkpoint_at
    task.unstored = known.unstored
    task.result_digest, task.result_at, task.artifacts = known.result_digest, known.result_at, known.artifacts
    task.source_digest = known.source_digest
    return task


def join_state(children: Iterable[TaskState]) -> TaskState:
    """Return the state of an expanded join: ``running`` until its last child is final."""
    states = set(children)
    if not states <= FINAL_STATES:
        return "running"
    return next((state for state in WORST_FIRST if state in states), "succeeded")


def _values(join: str, items: object) -> tuple[Sequence[object], Sequence[object] | None]:
    """Return the items, and their keys if they came with some."""
    if isinstance(items, Mapping):
        return list(items.values()), list(items)
    if isinstance(items, list | tuple):
        return items, None
    raise ExpansionError(join, -1, None, f"got a {type(items).__name__}, each= walks a list, a tuple or a dict")


def _key_source(item: object) -> object:
    """Return what an item's key is made of: the item itself, or its field ``key``."""
    if item is not None and not isinstance(item, float) and key_text(item) is not None:
        return item
    return item.get("key") if isinstance(item, Mapping) else getattr(item, "key", None)


def _key(join: str, index: int, source: object) -> str:
    text = None if source is None else key_text(source)
    if text is None:
        raise ExpansionError(
            join, index, None, "has no key: give dict keys, str, int, enum, date or path items, or a field `key`"
        )
    try:
        return encode_key(text)
    except ValueError as error:
        raise ExpansionError(join, index, text[:40], f"has a key that cannot be used: {error}") from None
