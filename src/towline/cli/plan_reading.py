"""Reading the plan in a store from outside: no lock, no change (PLAN-27)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.planning.live import LivePlan
from towline.planning.loading import decode_document, replay
from towline.state.cleaning import refuse_lost_journal
from towline.state.planfile import PlanFile

if TYPE_CHECKING:
    from towline.planning.records import PlanDocument
    from towline.state.store import StateStore


async def plan_in(store: StateStore) -> PlanDocument | None:
    """Read the plan in a store, as its journal has it; ``None`` when there is none.

    Raises:
        StateError: It cannot be read.
    """
    plan_file = PlanFile(store)
    loaded = await plan_file.load()
    await plan_file.close()
    if loaded.snapshot is None:
        return None
    plan = LivePlan(decode_document(loaded.snapshot, f"{store.name}/plan.json"))
    replay(plan, loaded.records, f"{store.name}/plan.journal")
    if loaded.without_journal:
        await refuse_lost_journal(store, plan.document.run_id)
    return plan.snapshot()
