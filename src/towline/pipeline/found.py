"""Looking at what lies in a state root before anything is decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.errors.state import PlanCorruptError, SchemaTooNewError
from towline.planning.deciding import UNENDED, Found
from towline.planning.live import LivePlan
from towline.state.cleaning import has_task_documents, moved_cursors, refuse_lost_journal
from towline.state.keys import JOURNAL_KEY
from towline.state.results import ResultPlace

if TYPE_CHECKING:
    from towline.state.planfile import PlanFile
    from towline.state.store import StateStore


async def look(
    store: StateStore, plan_file: PlanFile, *, may_resume: bool
) -> tuple[Found, LivePlan | None, list[bytes]]:
    """Read plan, journal and counts of documents; changes nothing. Also gives the journal's records as JSON.

    ``may_resume``: the start may go on with the plan, so that results that are gone matter (PLAN-37).
    """
    try:
        loaded = await plan_file.load()
        if loaded.snapshot is None:
            return Found(root=store.name, documents=int(await has_task_documents(store))), None, []
        from towline.planning.loading import decode_document, replay  # the first run of all has nothing to read

        plan = LivePlan(decode_document(loaded.snapshot, f"{store.name}/plan.json"))
        replay(plan, loaded.records, f"{store.name}/{JOURNAL_KEY}")
        if loaded.without_journal:
            await refuse_lost_journal(store, plan.document.run_id)
    except (PlanCorruptError, SchemaTooNewError) as error:
        return Found(root=store.name, damage=error), None, []
    document = plan.snapshot()
    missing: frozenset[str] = frozenset()
    if may_resume or document.run_state in UNENDED:
        places = [
            (task.id, ResultPlace(task.result_digest, task.result_at))
            for task in document.tasks
            if task.state == "succeeded" and task.result_digest is not None
        ]
        missing = frozenset(await plan_file.results.missing(places))
    found = Found(
        root=store.name,
        plan=document,
        cursors_moved=len(await moved_cursors(store)),
        missing=missing,
        torn=loaded.dropped_tail > 0,
    )
    return found, plan, loaded.records
