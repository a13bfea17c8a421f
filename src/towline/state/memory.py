"""A state store without a disk: for tests, dry runs and runs that need no resume."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from towline.clock import SystemClock
from towline.errors.state import (
    OwnershipLostError,
    PlanOwnedError,
    StateTooLargeError,
    VersionConflictError,
)
from towline.state.documents import version_of
from towline.state.fences import check_owner, check_task
from towline.state.keys import JOURNAL_KEY, PLAN_KEY, RESULTS_KEY, checked_key, cursor_key
from towline.state.store import DOCUMENT_LIMIT_BYTES, Absent, Anything, Entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from towline.clock import Clock
    from towline.state.store import Fence, Owner, Ownership, Version


class MemoryStore:
    """Documents in a dict. Several nodes of a simulated run share one; it outlives their "crashes"."""

    name = "memory:"

    def __init__(self, clock: Clock | None = None) -> None:
        self.documents: dict[str, bytes | bytearray] = {}
        self.owner: Owner | None = None
        self.owner_epoch = 0
        self._clock = clock or SystemClock()
        self._ownership: MemoryOwnership | None = None

    async def read(self, key: str) -> Entry | None:
        data = self.documents.get(checked_key(key))
        return None if data is None else Entry(bytes(data), version_of(data))

    async def write(
        self, key: str, data: bytes, expect: Version | Absent | Anything, fence: Fence | None = None
    ) -> Version:
        _check_size(checked_key(key), data)
        self._check(fence)
        self._compare(key, expect)
        self.documents[key] = bytes(data)
        return version_of(data)

    async def append(self, key: str, line: bytes, fence: Fence) -> None:
        _check_size(checked_key(key), line)
        self._check(fence)
        self.grow(key, line)

    async def delete(self, key: str, expect: Version | Anything) -> None:
        if checked_key(key) in self.documents:
            self._compare(key, expect)
            del self.documents[key]

    async def list(self, prefix: str) -> AsyncIterator[str]:
        for key in sorted(key for key in self.documents if key.startswith(prefix)):
            yield key

    async def acquire(self, owner: Owner) -> Ownership:
        if self.owner is not None:
            held = self.owner
            raise PlanOwnedError(self.name, held.id, held.run_id, held.host, held.pid, held.since)
        self.owner = owner
        self.owner_epoch += 1
        self._ownership = MemoryOwnership(self, self.owner_epoch)
        return self._ownership

    async def now(self) -> float:
        return self._clock.now()

    def plan_medium(self, ownership: Ownership | None) -> MemoryPlanMedium:
        return MemoryPlanMedium(self)

    async def close(self) -> None:
        """Release the ownership, as the end of a process would; the documents stay."""
        if self._ownership is not None:
            await self._ownership.release()

    def lose_owner(self) -> None:
        """Let the owner vanish without a release, as kill -9 does; its ownership still believes in itself."""
        self.owner = None

    def grow(self, key: str, line: bytes) -> int:
        """Add a line to a file of lines in place; returns its offset."""
        lines = self.documents.get(key)
        if not isinstance(lines, bytearray):
            lines = self.documents[key] = bytearray(lines or b"")
        lines += line
        return len(lines) - len(line)

    def _check(self, fence: Fence | None) -> None:
        if fence is None:
            return
        if fence.task is None:
            check_owner(fence, self.owner_epoch, self.name)
        else:
            check_task(fence, self.documents.get(cursor_key(fence.task)))

    def _compare(self, key: str, expect: Version | Absent | Anything) -> None:
        if isinstance(expect, Anything):
            return
        data = self.documents.get(key)
        found = None if data is None else version_of(data)
        wanted = None if isinstance(expect, Absent) else expect
        if found != wanted:
            raise VersionConflictError(key, wanted, found)


class MemoryOwnership:
    """Ends when it is released, or when a test takes the store's owner away."""

    def __init__(self, store: MemoryStore, epoch: int) -> None:
        self.epoch = epoch
        self._store = store
        self._lost = asyncio.Event()

    def check(self) -> None:
        if self._lost.is_set() or self._store.owner_epoch != self.epoch or self._store.owner is None:
            self._lost.set()
            current = self._store.owner_epoch
            raise OwnershipLostError(self._store.name, self.epoch, current if current != self.epoch else 0)

    async def renew(self) -> None:
        self.check()

    async def release(self) -> None:
        if not self._lost.is_set() and self._store.owner_epoch == self.epoch:
            self._store.owner = None
        self._lost.set()

    async def wait_for_loss(self) -> None:
        await self._lost.wait()


class MemoryPlanMedium:
    """The plan's files as documents of a ``MemoryStore``."""

    name = MemoryStore.name
    durable_at_once = True

    def __init__(self, store: MemoryStore) -> None:
        self._store, self._documents = store, store.documents

    async def read_plan(self) -> bytes | None:
        return self._read(PLAN_KEY)

    async def read_journal(self) -> bytes | None:
        return self._read(JOURNAL_KEY)

    def draft_plan(self) -> _MemoryDraft:
        return _MemoryDraft(self._store)

    async def start_journal(self, header: bytes) -> None:
        self._documents[JOURNAL_KEY] = bytearray(header)

    def append_journal(self, line: bytes) -> None:
        self._store.grow(JOURNAL_KEY, line)

    def append_result(self, line: bytes) -> int:
        return self._store.grow(RESULTS_KEY, line)

    def write_result(self, key: str, data: bytes) -> None:
        self._documents[checked_key(key)] = data

    async def sync(self) -> None:
        """Everything is as durable as it will be."""

    async def read_results(self) -> bytes:
        return self._read(RESULTS_KEY) or b""

    async def read_result_at(self, offset: int) -> bytes | None:
        lines = self._documents.get(RESULTS_KEY, b"")
        end = lines.find(b"\n", offset)
        return bytes(lines[offset:end]) if end >= 0 else None

    async def read_result(self, key: str) -> bytes | None:
        return self._read(key)

    async def replace_results(self, lines: Iterable[bytes]) -> None:
        self._documents[RESULTS_KEY] = bytearray(b"".join(lines))

    async def list_results(self) -> list[str]:
        return sorted(key for key in self._documents if key.startswith("results/"))

    async def remove_result(self, key: str) -> None:
        self._documents.pop(key, None)

    def close(self) -> None:
        """Nothing is open."""

    def _read(self, key: str) -> bytes | None:
        data = self._documents.get(key)
        return None if data is None else bytes(data)


class _MemoryDraft:
    def __init__(self, store: MemoryStore) -> None:
        self._documents = store.documents
        self._chunks: list[bytes] = []

    def write(self, chunk: bytes) -> None:
        self._chunks.append(bytes(chunk))

    def sync(self) -> None:
        """Memory needs none."""

    async def publish(self) -> None:
        self._documents[PLAN_KEY] = b"".join(self._chunks)

    def discard(self) -> None:
        self._chunks.clear()


def _check_size(key: str, data: bytes) -> None:
    if len(data) > DOCUMENT_LIMIT_BYTES:
        raise StateTooLargeError(key, len(data), DOCUMENT_LIMIT_BYTES)
