"""Expanding ``each`` modules: from the value of a source to the items of the children (PLAN-56 to 62)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.errors.planning import ExpansionError
from towline.identity import digest_of
from towline.modules.outcomes import Failed, Reason
from towline.planning.children import expansion
from towline.serialization.exceptions import record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import PurePath

    from towline.execution.values import Values
    from towline.planning.built import BuiltPlan
    from towline.planning.live import LivePlan
    from towline.planning.records import ExpandRecord, PlannedTask


class Growth:
    """Knows the items of every join and hands each child its own (PLAN-59)."""

    def __init__(self, built: BuiltPlan, plan: LivePlan, values: Values, *, max_tasks: int, workdir: PurePath) -> None:
        self._built, self._plan, self._values = built, plan, values
        self._max_tasks, self._workdir = max_tasks, workdir
        self._items: dict[int, Sequence[Any]] = {}

    async def grow(self, join: int, next_seq: Callable[[], int]) -> ExpandRecord | Failed:
        """Read the items of a join and make the record of its children, or say why that failed (PLAN-58)."""
        row = self._plan.document.tasks[join]
        try:
            items = await self._items_of(join)
            source_digest, encode = self._encoder(join)
            tasks_now = sum(1 for task in self._plan.document.tasks if not task.join)
            record = expansion(
                row,
                items,
                seq=0,
                source_digest=source_digest,
                item_digest=lambda item: digest_of(encode(item)),
                tasks_now=tasks_now,
                max_tasks=self._max_tasks,
            )
            # Numbered only now: a number that is given out and not written is a gap in the journal (PLAN-22).
            return msgspec.structs.replace(record, seq=next_seq())
        except ExpansionError as error:
            reason = Reason(code="expansion_failed", text=str(error))
            return Failed(record_of(error), task_id=row.id, reason=reason)

    async def _items_of(self, join: int) -> Any:
        row = self._plan.document.tasks[join]
        if row.source is None:
            return self._built.specs[row.module].each
        source = self._built.index[row.source]
        await self._values.load(source)
        return self._values.items_of(source)

    def _encoder(self, join: int) -> tuple[str, Callable[[Any], bytes]]:
        """How items are encoded for their digests: as JSON where they can be, else by their text."""
        from towline.errors.values import ValueTravelError
        from towline.serialization.codec import codec_for

        row = self._plan.document.tasks[join]

        def encode(item: Any) -> bytes:
            try:
                return codec_for(type(item)).encode(item, workdir=self._workdir)
            except ValueTravelError:
                return repr(item).encode("utf-8", "backslashreplace")

        source = self._built.index[row.source] if row.source is not None else None
        digest = self._plan.document.tasks[source].result_digest if source is not None else None
        return digest or digest_of(row.id.encode()), encode

    def planned(self, join: int, children: Sequence[PlannedTask]) -> None:
        """Note where the children of a join stand, now that they are in the plan."""
        index = self._plan.index
        self._values.grown(join, [index[child.id] for child in children])

    async def item_of(self, position: int) -> Any:
        """Give a child its item, read from its source's value.

        Raises:
            ExpansionError: The item is not the one that the plan recorded.
        """
        row = self._plan.document.tasks[position]
        if row.parent is None or row.item is None:
            return None
        join = self._built.index[row.parent]
        items = self._items.get(join)
        if items is None:
            found = await self._items_of(join)
            items = list(found.values()) if isinstance(found, dict) else list(found)
            self._items[join] = items
        item = items[row.item]
        _, encode = self._encoder(join)
        if row.item_digest != digest_of(encode(item)):
            raise ExpansionError(row.parent, row.item, row.key, "is not the item that was recorded")
        return item
