"""What kill points interrupt: run in this process with a simulated kill, or in a child with a real one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from state.envs import PLAN_ID, owned_plan, record, snapshot
from towline.state.cursors import CursorStore
from towline.state.directory import DirectoryStore
from towline.state.store import ANYTHING

if TYPE_CHECKING:
    from towline.state.directory import DirectoryStore as Store
    from towline.state.files import Files
    from towline.state.planfile import PlanFile

RECORDS = 3
"""Journal records before the second snapshot, and after it."""


async def _two_generations(root: str, files: Files, durability: str, said: list[int]) -> None:
    store, ownership, plan = await owned_plan(Path(root), files=files, durability=durability)  # type: ignore[arg-type]
    await plan.write_snapshot([snapshot()], generation=1, plan_id=PLAN_ID, owner_epoch=ownership.epoch)
    said.append(0)
    for generation in (1, 2):
        for seq in range(1, RECORDS + 1):
            number = (generation - 1) * RECORDS + seq
            plan.results.append("a", b"[%d]" % number)
            waiting = plan.append([record(number)])
            if waiting is not None:
                await waiting
            said.append(number)
        if generation == 1:
            second = snapshot(generation=2, applied_seq=RECORDS)
            await plan.write_snapshot([second], generation=2, plan_id=PLAN_ID, owner_epoch=ownership.epoch)
    plan.results.append("b", b"1" * 20_000)
    await plan.results.compact([], force=True)
    await plan.close()
    await store.close()


def write_a_plan(root: str, files: Files, said: list[int] | None = None) -> None:
    """Two snapshots with records after each; ``said`` gets the number of each record that is durable."""
    asyncio.run(_two_generations(root, files, "process", [] if said is None else said))


def write_a_plan_for_power(root: str, files: Files, said: list[int] | None = None) -> None:
    """The same, with fsync."""
    asyncio.run(_two_generations(root, files, "power", [] if said is None else said))


async def _import(root: str, files: Files, done: list[int]) -> None:
    store: Store = DirectoryStore(root, files=files)
    # The target is a plain file of lines, synced before the cursor moves: the effect is durable first (CUR-03).
    cursor = await CursorStore(store).open("import", 1, PLAN_ID, key=int, total=12)
    async for batch in cursor.batches(range(12), size=3):
        done.extend(batch)
        for item in batch:
            if item % 4 == 1:
                await cursor.skip(item, "ODD")
        await cursor.commit(batch)
    await cursor.close()
    await store.close()


def import_items(root: str, files: Files, done: list[int] | None = None) -> None:
    """Twelve items in batches of three, one of four skipped; ``done`` is the target."""
    asyncio.run(_import(root, files, [] if done is None else done))


def hammer(root: str, number: int) -> None:
    """Until killed: take the ownership now and then, write plan, journal and one shared document."""

    async def main() -> None:
        seq = 0
        while True:
            store = DirectoryStore(root)
            entry = await store.read("cursors/shared.json")
            count = int(entry.data) if entry else 0
            try:
                await store.write("cursors/shared.json", b"%d" % (count + 1), entry.version if entry else ANYTHING)
            except Exception as error:
                if "version" not in str(error):
                    raise
            try:
                own, ownership, plan = await owned_plan(Path(root))
            except Exception as error:
                if "is owned by" not in str(error):
                    raise
                continue
            loaded = await plan.load()
            generation = loaded.head.generation + 1 if loaded.head else 1
            seq = loaded.last_seq
            new = snapshot(generation=generation, applied_seq=seq, padding=20_000)
            await plan.write_snapshot([new], generation=generation, plan_id=PLAN_ID, owner_epoch=ownership.epoch)
            for _ in range(20):
                seq += 1
                await _appended(plan, seq)
            await plan.close()
            await own.close()
            print(number, seq, flush=True)

    asyncio.run(main())


async def _appended(plan: PlanFile, seq: int) -> None:
    waiting = plan.append([record(seq, worker=str(os.getpid()))])
    if waiting is not None:
        await waiting
