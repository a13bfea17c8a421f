"""The one writer of a plan: a journal line per turn, the rows after it, a snapshot now and then (PLAN-17 to 25)."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from towline.planning.document import COMPACT_AFTER, encode_slices, journal_limit
from towline.planning.live import apply, apply_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from towline.planning.live import LivePlan
    from towline.planning.records import ExpandRecord, JournalRecord, PlannedTask
    from towline.state.planfile import PlanFile


class PlanWriter:
    """Writes records to the journal, then applies them to the plan. What :meth:`write` was given is durable when it returns ``None``,
    or when the awaitable that it returns is done; only then may anything be shown or started.

    Raises:
        StateLostError: A write failed; nothing may go on after it (PLAN-18).
    """

    def __init__(self, plan: LivePlan, plan_file: PlanFile) -> None:
        self.plan, self._file = plan, plan_file
        # A counter in C: a method that adds one costs three times as much, and each record takes a number.
        self.next_seq = count(plan.document.applied_seq + 1).__next__
        """Number the next record; it must be written in this order."""
        self._since_snapshot = 0
        self._journal_limit = journal_limit(len(plan.document.tasks))

    async def expand(self, record: ExpandRecord) -> tuple[PlannedTask, ...]:
        """Record the children of an ``each`` module and return their rows (PLAN-57)."""
        waiting = self._file.append([record])
        if waiting is not None:
            await waiting
        self._since_snapshot += 1
        children = apply(self.plan, record)
        self._journal_limit = journal_limit(len(self.plan.document.tasks))
        return children

    def write(self, records: Sequence[JournalRecord]) -> Awaitable[None] | None:
        """Make one turn's records durable and apply them."""
        waiting = self._file.append(records)
        if waiting is not None:
            return self._when_durable(waiting, records)
        apply_all(self.plan, records)
        self._since_snapshot += len(records)
        return None

    async def _when_durable(self, waiting: Awaitable[None], records: Sequence[JournalRecord]) -> None:
        await waiting
        apply_all(self.plan, records)
        self._since_snapshot += len(records)

    @property
    def snapshot_is_due(self) -> bool:
        """Whether the journal has outgrown the plan (PLAN-23)."""
        return self._since_snapshot > self._journal_limit

    @property
    def snapshot_pays(self) -> bool:
        """Whether the journal is long enough for a snapshot at the end of a run that will be resumed (PLAN-23)."""
        return self._since_snapshot > COMPACT_AFTER

    async def snapshot(self, at: str) -> None:
        """Write ``plan.json`` anew, then an empty journal; no :meth:`write` may be under way."""
        document = self.plan.document
        document.generation += 1
        document.updated_at = at
        self._since_snapshot = 0
        await self._file.write_snapshot(
            encode_slices(self.plan.snapshot()),
            generation=document.generation,
            plan_id=document.plan_id,
            owner_epoch=document.owner.epoch if document.owner else 0,
        )
