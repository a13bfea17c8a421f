"""What a cursor's document and its skip records say of damage."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from state.envs import PLAN_ID, opened
from towline.errors import CursorCorruptError
from towline.errors.state import LeaseLostError, SchemaTooNewError
from towline.state import ABSENT, Fence
from towline.state.cursors import CursorStore
from towline.state.directory import DirectoryStore
from towline.state.memory import MemoryStore
from towline.testing import clause


@clause("CUR-13")
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"task":"t","plan_id":"x","epoch":"1"}'])
def test_a_damaged_cursor_fails_the_task_and_is_kept(data: bytes) -> None:
    """Starting at the first item by guess could import everything twice."""

    async def main() -> None:
        store = MemoryStore()
        await store.write("cursors/t.json", data, ABSENT)
        with pytest.raises(CursorCorruptError, match=r"cursors/t\.json"):
            await opened(store)
        with pytest.raises(CursorCorruptError):
            await store.append("cursors/t.skips.jsonl", b"{}\n", Fence(1, "t", PLAN_ID))
        entry = await store.read("cursors/t.json")
        assert entry is not None
        assert entry.data == data

    asyncio.run(main())


@clause("CUR-13")
def test_a_flipped_bit_in_a_cursor_is_seen() -> None:
    """A place that is wrong by one digit passes over a thousand items, and nobody ever notices."""

    async def main() -> None:
        store = MemoryStore()
        cursor = await opened(store)
        async for batch in cursor.batches(range(1_000, 1_006), size=2):
            await cursor.commit(batch)
        await cursor.close()
        whole = bytes(store.documents["cursors/t.json"])
        seen = 0
        for place in range(len(whole)):
            changed = bytearray(whole)
            changed[place] ^= 1
            store.documents["cursors/t.json"] = changed
            try:
                again = await opened(store, epoch=2)
            except (CursorCorruptError, SchemaTooNewError, LeaseLostError):
                seen += 1
            else:
                assert again.position == 1_005, changed  # what was hit is the name of the checksum itself
        assert seen > len(whole) - 10

    asyncio.run(main())


@clause("CUR-13")
def test_a_cursor_without_a_checksum_is_taken() -> None:
    """An older Towline wrote none, and an operator may move a place by hand."""

    async def main() -> None:
        store = MemoryStore()
        document = {"schema": 1, "task": "t", "plan_id": PLAN_ID, "epoch": 1, "key": 4}
        await store.write("cursors/t.json", msgspec.json.encode(document), ABSENT)
        assert (await opened(store, epoch=2)).position == 4

    asyncio.run(main())


@clause("CUR-10")
def test_a_torn_skip_record_is_dropped_before_the_next(tmp_path: Path) -> None:
    """A kill inside the append must not make the file unreadable."""

    async def main() -> None:
        store = DirectoryStore(tmp_path)
        cursor = await opened(store)
        await cursor.skip("a", "ODD")
        path = tmp_path / "cursors" / "t.skips.jsonl"
        path.write_bytes(path.read_bytes() + b'{"key":"b","co')
        assert list(await CursorStore(store).skips("t")) == ["a"]
        await cursor.skip("b", "ODD")
        assert list(await CursorStore(store).skips("t")) == ["a", "b"]

    asyncio.run(main())
