"""Remove what an older plan or a changed task left in the store (PLAN-30, PLAN-34, PLAN-35)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from towline.errors.state import PlanCorruptError
from towline.identity import segment
from towline.state.keys import JOURNAL_KEY, PLAN_KEY, cursor_key, result_key, skips_key, step_prefix
from towline.state.store import ANYTHING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from towline.state.store import StateStore


class CursorFacts(msgspec.Struct, frozen=True):
    """What a planner asks of a cursor document, readable even if the rest of it is not."""

    task: str = ""
    plan_id: str = ""
    key: str | int | list[str | int] | None = None


async def moved_cursors(store: StateStore) -> list[str]:
    """Return the tasks whose cursor has passed an item (PLAN-31). A document that cannot be read counts as moved."""
    moved: list[str] = []
    async for key in store.list("cursors/"):
        if key.endswith(".json"):
            facts = await _facts(store, key)
            if facts is None or facts.key is not None:
                moved.append(facts.task if facts and facts.task else key)
    return moved


async def has_task_documents(store: StateStore) -> bool:
    """Say whether cursors, steps or results lie there, which without a plan is a ``PlanMissingError``."""
    for prefix in ("cursors/", "steps/", "results"):
        async for _ in store.list(prefix):
            return True
    return False


async def has_events(store: StateStore, run_id: str) -> bool:
    """Say whether a run has got as far as its first event, which comes after its journal was begun."""
    async for key in store.list(f"runs/{segment(run_id)}/"):
        if key.endswith("/events.jsonl"):
            return True
    return False


async def refuse_lost_journal(store: StateStore, run_id: str) -> None:
    """Refuse to take a plan for one that has just begun when its run has left traces of work (PLAN-22).

    Raises:
        PlanCorruptError: The journal with the states of the tasks is gone: going on would repeat all of it.
    """
    if await has_task_documents(store) or await has_events(store, run_id):
        detail = f"it is gone or has no header, but run {run_id} has left results, cursors or events here"
        raise PlanCorruptError(f"{store.name}/{JOURNAL_KEY}", detail)


async def drop_older_documents(store: StateStore, plan_id: str) -> int:
    """Remove cursors, skip records and steps of plans below this one; returns how many documents.

    Called after the new snapshot is stored: a kill before it leaves the old plan whole, one after it leaves
    documents that count as absent (PLAN-30).
    """
    older: list[str] = []
    for prefix in ("cursors/", "steps/"):
        async for key in store.list(prefix):
            if key.endswith(".json"):
                facts = await _facts(store, key)
                if facts is None or facts.plan_id < plan_id:
                    older.append(key)
                    if prefix == "cursors/":
                        older.append(f"{key.removesuffix('.json')}.skips.jsonl")
    for key in older:
        await store.delete(key, ANYTHING)
    return len(older)


async def drop_task(store: StateStore, task_id: str, *, result: bool = True) -> None:
    """Remove cursor, skip records, steps and result document of one task that begins anew."""
    async for key in _of_task(store, task_id, result=result):
        await store.delete(key, ANYTHING)


async def archive(store: StateStore, run_id: str, task_ids: Iterable[str] = (), *, plan: bool = False) -> list[str]:
    """Copy what is about to be replaced to ``runs/<run-id>/replaced/``; returns the new keys (PLAN-26, PLAN-35).

    Cursors, skip records and steps of the tasks; with ``plan`` also the bytes of plan and journal.
    Results are left out: they can be large, and running the task again makes them.
    """
    keys = [PLAN_KEY, JOURNAL_KEY] if plan else []
    for task_id in task_ids:
        keys += [key async for key in _of_task(store, task_id, result=False)]
    copies: list[str] = []
    for key in keys:
        entry = await store.read(key)
        if entry is not None:
            copy = f"runs/{segment(run_id)}/replaced/{key}"
            await store.write(copy, entry.data, ANYTHING)
            copies.append(copy)
    return copies


async def _of_task(store: StateStore, task_id: str, *, result: bool) -> AsyncIterator[str]:
    yield cursor_key(task_id)
    yield skips_key(task_id)
    async for key in store.list(step_prefix(task_id)):
        yield key
    if result:
        yield result_key(task_id)


async def _facts(store: StateStore, key: str) -> CursorFacts | None:
    entry = await store.read(key)
    if entry is None:
        return CursorFacts()
    try:
        return msgspec.json.decode(entry.data, type=CursorFacts)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
