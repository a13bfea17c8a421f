"""How far a task has come through its items, and what each call does to that (CUR-01..03, 06, 07, 10, 11). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from towline.errors.cursors import CursorOrderError, CursorStageError
from towline.state.cursor_documents import Continuation, CursorDocument
from towline.state.cursor_keys import CursorKey, checked_cursor_key, is_after, shown, stored_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = TypeVar("Item")
Key = TypeVar("Key", bound=CursorKey)


class Batch(tuple[Item, ...]):
    """Some items in order, for one effect and one ``commit``."""

    __slots__ = ()


class CursorState(Generic[Item, Key]):
    """The position of one cursor; ``document`` is its durable form.

    Raises:
        CursorStageError: The stored stage is not among ``stages`` (CUR-07).
    """

    def __init__(self, document: CursorDocument, key: Callable[[Item], Key], stages: tuple[str, ...]) -> None:
        self.document = document
        self.task_id = document.task
        self._key, self._stages = key, stages
        self._position: CursorKey | None = document.position
        self._stage = -1 if document.stage is None else self.stage_number(document.stage)
        self._open: list[CursorKey] = []
        """Keys of the batch that the body is working on."""
        self._skipped: dict[CursorKey, str] = {}
        """Recorded skips that the cursor has not passed yet, by key."""
        self._seen: CursorKey | None = None
        self._exhausted = document.at_end

    @property
    def position(self) -> CursorKey | None:
        """The key of the item that was reached, which may have stages left: sources start there, inclusively."""
        return self._position

    def stage_number(self, name: str) -> int:
        try:
            return self._stages.index(name)
        except ValueError:
            raise CursorStageError(self.task_id, name, self._stages) from None

    def key_of(self, item: Item) -> CursorKey:
        return checked_cursor_key(self.task_id, self._key(item))

    def needs(self, item: Item, stage: str) -> bool:
        """Say whether this stage of the item is still to be done."""
        return self._is_ahead(self.key_of(item), self.stage_number(stage))

    # ------------------------------------------------------------------ walking

    def walk(self) -> Walk[Item]:
        """Begin to go through a source."""
        return Walk(self)

    def is_open(self, key: CursorKey) -> bool:
        """Say whether an item is not done yet with all its stages (CUR-01)."""
        return self._is_ahead(key, len(self._stages) - 1)

    def begin(self, keys: list[CursorKey]) -> None:
        """Note the batch that the body gets."""
        self._open = keys
        self._exhausted = False
        self._seen = keys[-1]

    def end(self, last_key: CursorKey | None) -> None:
        """Note that the source is exhausted; ``last_key``: of the last item it gave."""
        self._exhausted = True
        self._seen = last_key

    # ------------------------------------------------------------------ moving

    def commit(self, done: Batch[Item] | Item) -> bool:
        """Pass all stages of an item or batch; returns whether the cursor moved."""
        keys = [self.key_of(item) for item in done] if isinstance(done, Batch) else [self.key_of(done)]
        return bool(keys) and self._pass(keys)

    def stage(self, item: Item, name: str) -> bool:
        """Pass one stage of an item; returns whether the cursor moved."""
        key, number = self.key_of(item), self.stage_number(name)
        if number == len(self._stages) - 1:
            return self._pass([key])
        if not self._move(key, number):
            return False
        self._settle(key, including=False, counted=set())
        return True

    def skip(self, item: Item, code: str) -> bool:
        """Pass an item without its effect; returns whether the cursor moved.

        Inside a batch it waits for the items before it: moving over them now would lose them in a crash.
        """
        key = self.key_of(item)
        if self._position is not None and not self.is_open(key):
            self._refuse_backwards(key)
            return False
        self._skipped[key] = code
        if any(other not in self._skipped and not self._before(key, other) for other in self._open):
            return False
        return self._pass([key])

    # ------------------------------------------------------------------ the durable form

    @property
    def at_end(self) -> bool:
        """The source was exhausted and all that it gave is done (CUR-11)."""
        return self._exhausted and (self._seen is None or not self.is_open(self._seen))

    def written(self, at: str, query_digest: str | None) -> CursorDocument:
        """Return the document to store now; ``at`` is UTC text."""
        document = self.document
        document.key = None if self._position is None else stored_key(self._position)
        document.stage = None if self._stage < 0 else self._stages[self._stage]
        document.at_end = self.at_end
        document.updated_at = at
        if query_digest is not None:
            document.continuation = self._continuation(at, query_digest)
        totals = msgspec.structs.replace(document.totals, skipped=dict(document.totals.skipped))
        return msgspec.structs.replace(document, totals=totals)

    def _continuation(self, at: str, query_digest: str) -> Continuation:
        parts = self._position if isinstance(self._position, tuple) else (self._position,)
        return Continuation(
            query_digest=query_digest,
            boundary=parts[0],
            tie_break=[part for part in parts[1:] if part is not None] or None,
            generated_at=at,
            completed=self.at_end,
        )

    # ------------------------------------------------------------------ inside

    def _pass(self, keys: Sequence[CursorKey]) -> bool:
        completed = [key for key in keys if self.is_open(key)]
        if not self._move(keys[-1], len(self._stages) - 1):
            return False
        totals = self.document.totals
        own = set(completed)
        totals.done += len(own)
        self._settle(keys[-1], including=True, counted=own)
        return True

    def _settle(self, key: CursorKey, *, including: bool, counted: set[CursorKey]) -> None:
        """Count the skips that the cursor has passed now, and forget them and the part of the batch before it."""
        totals = self.document.totals
        for other, code in list(self._skipped.items()):
            if self._before(other, key) or (including and other == key):
                del self._skipped[other]
                totals.skipped[code] = totals.skipped.get(code, 0) + 1
                totals.done += other not in counted
        self._open = [other for other in self._open if self._before(key, other)]

    def _move(self, key: CursorKey, stage: int) -> bool:
        if not self._is_ahead(key, stage):
            self._refuse_backwards(key)
            return False
        self._position, self._stage = key, stage
        return True

    def _refuse_backwards(self, key: CursorKey) -> None:
        if self._position is not None and key != self._position:
            raise CursorOrderError(
                self.task_id, shown(self._position), shown(key), "the cursor moves forward alone, it has passed this"
            )

    def _is_ahead(self, key: CursorKey, stage: int) -> bool:
        if self._position is None:
            return True
        if key == self._position:
            return stage > self._stage
        return is_after(self.task_id, key, self._position)

    def _before(self, left: CursorKey, right: CursorKey) -> bool:
        return is_after(self.task_id, right, left)


class Walk(Generic[Item]):
    """One pass over a source: checks its order, and leaves out what is done (CUR-01, CUR-02)."""

    def __init__(self, state: CursorState[Item, Any]) -> None:
        self._state = state
        self.last_key: CursorKey | None = None

    def admit(self, item: Item) -> CursorKey | None:
        """Return the key of an item that is still to be done, ``None`` for one that is done.

        Raises:
            CursorOrderError: It does not come after the item before it.
        """
        key = self._state.key_of(item)
        previous, self.last_key = self.last_key, key
        if previous is not None and not is_after(self._state.task_id, key, previous):
            raise CursorOrderError(self._state.task_id, shown(previous), shown(key))
        return key if self._state.is_open(key) else None
