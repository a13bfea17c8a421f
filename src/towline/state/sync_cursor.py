"""The cursor of a sync body: the same names, blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from towline.state.cursor import BATCH_SIZE
from towline.state.cursor_keys import CursorKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from towline.state.cursor import Cursor
    from towline.state.cursor_state import Batch

Item = TypeVar("Item")
Key = TypeVar("Key", bound=CursorKey)


class SyncCursor(Generic[Item, Key]):
    """A ``Cursor`` seen from a thread.

    The source is walked, and a target is written, in the calling thread; only what concerns the state
    store goes through ``blocking``, which makes and awaits something where that store lives.
    """

    def __init__(self, cursor: Cursor[Item, Key], blocking: Callable[[Callable[[], Awaitable[Any]]], Any]) -> None:
        self.cursor, self._blocking = cursor, blocking
        cursor.attach()

    @property
    def position(self) -> Key | None:
        """The key to start the source at, inclusively; ``None``: at its beginning."""
        return self.cursor.position

    def needs(self, item: Item, stage: str) -> bool:
        """Say whether this stage of the item is still to be done."""
        return self.cursor.needs(item, stage)

    def batches(self, source: Iterable[Item], *, size: int = BATCH_SIZE) -> Iterator[Batch[Item]]:
        """Yield what is still to be done, in batches of ``size`` items; the last one may be smaller.

        Raises:
            CursorOrderError: The keys of the source do not rise.
        """
        walk = self.cursor.state.walk()
        items: list[Item] = []
        keys: list[CursorKey] = []
        for item in source:
            key = walk.admit(item)
            if key is None:
                continue
            items.append(item)
            keys.append(key)
            if len(items) >= size:
                yield self.cursor.begin(items, keys)
                items, keys = [], []
        if items:
            batch = self.cursor.begin(items, keys)
            self.cursor.state.end(walk.last_key)
            yield batch
        self._end(walk.last_key)

    def items(self, source: Iterable[Item]) -> Iterator[Item]:
        """Yield what is still to be done, item by item. Raises ``CursorOrderError``."""
        walk = self.cursor.state.walk()
        for item in source:
            key = walk.admit(item)
            if key is not None:
                self.cursor.begin([item], [key])
                yield item
        self._end(walk.last_key)

    def commit(self, done: Batch[Item] | Item, /) -> None:
        """Move past an item or batch with all its stages."""
        self._store(self.cursor.move_by_commit(done))

    def stage(self, item: Item, name: str, /) -> None:
        """Move past one stage of an item. Raises ``CursorStageError`` for a stage that was not named."""
        self._store(self.cursor.move_by_stage(item, name))

    def skip(self, item: Item, code: str, text: str = "") -> None:
        """Move past an item without its effect, and record why; the record is durable first (CUR-10)."""
        self._blocking(lambda: self.cursor.record_skip(item, code, text))
        self._store(self.cursor.move_by_skip(item, code))

    def _end(self, last_key: CursorKey | None) -> None:
        self.cursor.state.end(last_key)
        self._store(self.cursor.end_is_news())

    def _store(self, moved: bool) -> None:
        if moved:
            self.cursor.save_in_target()
            self._blocking(self.cursor.after_move)
