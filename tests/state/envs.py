"""Places of each kind of state store for the contract kits, and small ways to make things."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from towline.state.cursors import CursorStore
from towline.state.directory import DirectoryStore
from towline.state.memory import MemoryStore
from towline.state.planfile import PlanFile
from towline.state.sql_cursor import SqlCursor
from towline.testing.store_contract import an_owner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from towline.state.cursor_home import CursorTarget
    from towline.state.files import Files
    from towline.state.sql_dialect import DbConnection
    from towline.state.store import Ownership, StateStore

PLAN_ID = "00000001-be27d441"


class StateRecord(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind", tag="state"):
    """A journal record as the planner makes them; the journal cares for its ``seq`` alone."""

    seq: int
    at: str
    task: str
    state: str
    reason_text: str | None = None
    epoch: int | None = None
    attempts: int | None = None
    worker: str | None = None


class MemoryStoreEnv:
    """All stores of one env share the documents, as the nodes of a simulated run do."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    async def store(self) -> StateStore:
        return self._store

    async def aclose(self) -> None:
        await self._store.close()


class DirectoryStoreEnv:
    def __init__(self, root: Path, durability: Literal["process", "power"] = "process") -> None:
        self.root, self._durability = root, durability
        self._stores: list[DirectoryStore] = []

    async def store(self) -> StateStore:
        self._stores.append(DirectoryStore(self.root, durability=self._durability))
        return self._stores[-1]

    async def aclose(self) -> None:
        for store in self._stores:
            await store.close()


def record(seq: int, **fields: Any) -> StateRecord:
    """Make a journal record."""
    given: dict[str, Any] = {"at": "2026-03-01T10:00:01.004Z", "task": "import.planes", "state": "running"}
    return StateRecord(seq=seq, **(given | fields))


def snapshot(generation: int = 1, applied_seq: int = 0, plan_id: str = PLAN_ID, padding: int = 0) -> bytes:
    """Make the bytes of a plan, as far as the journal is judged by them."""
    text = f'{{"schema":1,"plan_id":"{plan_id}","generation":{generation},"applied_seq":{applied_seq},"tasks":[]'
    return f'{text},"padding":"{"x" * padding}"}}'.encode()


async def owned_plan(
    root: Path, *, files: Files | None = None, durability: Literal["process", "power"] = "process"
) -> tuple[DirectoryStore, Ownership, PlanFile]:
    """Open a root as its owner."""
    store = DirectoryStore(root, files=files, durability=durability)
    ownership = await store.acquire(an_owner())
    return store, ownership, PlanFile(store, ownership)


async def started_plan(root: Path, records: int = 0, **options: Any) -> tuple[DirectoryStore, PlanFile]:
    """Open a root as its owner, with a first snapshot and some records of one line each."""
    store, ownership, plan = await owned_plan(root, **options)
    await plan.write_snapshot([snapshot()], generation=1, plan_id=PLAN_ID, owner_epoch=ownership.epoch)
    for seq in range(1, records + 1):
        waiting = plan.append([record(seq)])
        if waiting is not None:
            await waiting
    return store, plan


async def loaded_seqs(root: Path) -> list[int]:
    """Read a root as a fresh process would, and return the numbers of its records."""
    store = DirectoryStore(root)
    loaded = await PlanFile(store).load()
    await store.close()
    return [msgspec.json.decode(raw)["seq"] for raw in loaded.records]


def open_files() -> int:
    """Count this process's open files."""
    return len(os.listdir("/proc/self/fd"))


class StoreCursorEnv:
    """Cursors in a state store."""

    scope = ""

    def __init__(self, stores: MemoryStoreEnv | DirectoryStoreEnv) -> None:
        self._stores = stores

    async def store(self) -> StateStore:
        return await self._stores.store()

    def target(self) -> CursorTarget | None:
        return None

    def commit(self, target: CursorTarget | None) -> None:
        """There is no transaction."""

    async def aclose(self) -> None:
        await self._stores.aclose()


class SqlCursorEnv:
    """Cursors in a database; ``connect`` opens it once more."""

    def __init__(self, stores: MemoryStoreEnv, connect: Callable[[], DbConnection], scope: str) -> None:
        self._stores, self._connect, self.scope = stores, connect, scope
        self._targets: list[SqlCursor] = []

    async def store(self) -> StateStore:
        return await self._stores.store()

    def target(self) -> CursorTarget | None:
        self._targets.append(SqlCursor(self._connect()))
        return self._targets[-1]

    def commit(self, target: CursorTarget | None) -> None:
        assert isinstance(target, SqlCursor)
        target.connection.commit()

    async def aclose(self) -> None:
        for target in self._targets:
            target.connection.close()  # type: ignore[attr-defined]
        await self._stores.aclose()


async def opened(state: Any, epoch: int = 1, **options: Any) -> Any:
    """Open the cursor of task ``t``; the items are their own keys."""
    options.setdefault("key", lambda item: item)
    cursors = CursorStore(state, clock=options.pop("clock", None), scope=options.pop("scope", ""))
    return await cursors.open("t", epoch, options.pop("plan_id", PLAN_ID), **options)
