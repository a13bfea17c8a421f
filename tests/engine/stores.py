"""A state that outlives the runs of a test, and one that remembers each moment at which a run could have died."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from towline.planning.live import LivePlan
from towline.planning.loading import decode_document, replay
from towline.planning.records import PlannedTask
from towline.state.memory import MemoryStore
from towline.state.planfile import PlanFile


class World:
    """What bodies do to the world outside: a target that survives a crash, and which bodies were entered."""

    def __init__(self) -> None:
        self.target: dict[str, Any] = {}
        self.entered: list[str] = []
        self.moments: Moments | None = None

    def put(self, key: str, value: Any) -> None:
        """Write a row; writing it again changes nothing."""
        self.target[key] = value
        if self.moments is not None:
            self.moments.take()

    def enter(self, task_id: str) -> None:
        """Note that a body was entered; no moment of its own, for it is no effect."""
        self.entered.append(task_id)


class _Documents(dict[str, Any]):
    """Tells of each change."""

    def __init__(self, documents: dict[str, Any], changed: Any) -> None:
        super().__init__(documents)
        self._changed = changed

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._changed()

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._changed()

    def pop(self, key: str, *default: Any) -> Any:
        found = super().pop(key, *default)
        self._changed()
        return found


class Moment(msgspec.Struct):
    """What a kill at one moment leaves behind."""

    documents: dict[str, Any]
    owner_epoch: int
    target: dict[str, Any]


class Moments(MemoryStore):
    """A store that keeps a copy of everything after each change that a kill could come behind.

    Files under ``runs/`` steer nothing (PLAN-39), so their changes are no moments.
    """

    def __init__(self, world: World, start: Moment | None = None) -> None:
        super().__init__()
        self.world, self.taken = world, []
        self.taken: list[Moment] = []
        if start is not None:
            self.owner_epoch = start.owner_epoch
            world.target = dict(start.target)
        self.documents = _Documents(copy.deepcopy(start.documents) if start is not None else {}, self.take)
        world.moments = self

    def take(self) -> None:
        documents = {key: bytes(data) for key, data in self.documents.items() if not key.startswith("runs/")}
        if self.taken and self.taken[-1].documents == documents and self.taken[-1].target == self.world.target:
            return
        self.taken.append(Moment(documents, self.owner_epoch, dict(self.world.target)))

    def grow(self, key: str, line: bytes) -> int:
        offset = super().grow(key, line)
        self.take()
        return offset


class _Opened:
    """One opening of a shared store: closing it gives back what was taken through it, and nothing else."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._ownership: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def acquire(self, owner: Any) -> Any:
        self._ownership = await self._store.acquire(owner)
        return self._ownership

    async def close(self) -> None:
        if self._ownership is not None:
            await self._ownership.release()


def use_store(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    """Let the next runs keep their state here."""
    monkeypatch.setattr("towline.pipeline.stores.open_store", lambda *_, **__: _Opened(store))


async def tasks_in(store: MemoryStore) -> dict[str, PlannedTask]:
    """Read the plan of a store, as a fresh process would; empty without one."""
    loaded = await PlanFile(store).load()
    if loaded.snapshot is None:
        return {}
    plan = LivePlan(decode_document(loaded.snapshot, "plan.json"))
    replay(plan, loaded.records, "plan.journal")
    return {task.id: task for task in plan.snapshot().tasks}


async def run_state_in(store: MemoryStore) -> str:
    """Read how the last run of a store stands."""
    loaded = await PlanFile(store).load()
    assert loaded.snapshot is not None
    plan = LivePlan(decode_document(loaded.snapshot, "plan.json"))
    replay(plan, loaded.records, "plan.journal")
    return plan.document.run_state
