"""The cursor as a body sees it: walk a source, do the effect, move (CUR-01..11)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import msgspec

from towline.clock import SystemClock, moment
from towline.state.cursor_documents import CursorDocument, SkipRecord
from towline.state.cursor_keys import CursorKey, stored_key
from towline.state.cursor_opening import place_of, take_query
from towline.state.cursor_state import Batch, CursorState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from towline.clock import Clock
    from towline.state.cursor_home import CursorHome, CursorTarget

Item = TypeVar("Item")
Key = TypeVar("Key", bound=CursorKey)

BATCH_SIZE = 500

_log = logging.getLogger("towline.state")


class CursorProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What a view shows of a cursor. Moments are seconds since 1970; ``None``: none yet, or none planned.

    ``total`` is ``None`` when nobody knows it, or when more is done than was announced.
    """

    done: int
    total: int | None
    last_checkpoint_at: float | None
    next_checkpoint_at: float | None


def _tell_nobody(progress: CursorProgress) -> None:
    """Views are optional."""


def _always_allowed() -> None:
    """Outside an attempt nothing ends."""


class CursorRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a body asked for when it opened its cursor.

    ``scope`` names the program in a shared target. ``notify`` hears of each move and must not block.
    ``check`` raises when the attempt was cancelled or has ended: before each batch, and after each move was
    stored, for the effect before it is done (CUR-08). ``check_ended`` raises when nothing may be written any more.
    ``checkpoint_interval_s``: 0 stores at each commit (CUR-09).
    """

    key: Callable[[Any], Any]
    stages: tuple[str, ...] = ("done",)
    total: int | None = None
    query_digest: str | None = None
    on_query_change: Literal["fail", "restart"] = "fail"
    checkpoint_interval_s: float = 0.0
    scope: str = ""
    notify: Callable[[CursorProgress], None] = _tell_nobody
    check: Callable[[], None] = _always_allowed
    check_ended: Callable[[], None] = _always_allowed
    clock: Any = SystemClock()

    def __post_init__(self) -> None:
        if not self.stages or len(set(self.stages)) != len(self.stages):
            raise ValueError(f"stages must be distinct names, at least one: {self.stages!r}")
        if not self.checkpoint_interval_s >= 0:
            raise ValueError(f"checkpoint_interval_s is {self.checkpoint_interval_s}, it must be 0 or more")


class Cursor(Generic[Item, Key]):
    """How far the task has come through its items; moves only by ``commit``, ``stage`` and ``skip``.

    Call these after the effect is durable: a crash between the two repeats at most one batch or stage.
    Each call raises what the attempt ends with (cancelled, lease lost) once that is known; a move is stored first.
    """

    def __init__(
        self, stored: CursorDocument, home: CursorHome, request: CursorRequest, target: CursorTarget | None = None
    ) -> None:
        self._stored, self._home, self._request, self.target = stored, home, request, target
        self._clock: Clock = request.clock
        self._state: CursorState[Item, Key] | None = None
        self._stale_skips = False
        self._dirty = False
        self._failed = False
        self._saved_at: float | None = None
        self._saved_monotonic = self._clock.monotonic()
        self._copied = False
        self._warned = False
        if target is None:
            self.attach()

    def attach(self) -> CursorState[Item, Key]:
        """Take the place to go on from, once; a target is asked in the thread that first uses the cursor.

        Raises:
            LeaseLostError, CursorStageError, CursorCorruptError, QueryChangedError: see ``CursorStore.open``.
        """
        if self._state is None:
            document = place_of(self._stored, self._request, self.target)
            self._stale_skips = take_query(document, self._request)
            self._state = CursorState(document, self._request.key, self._request.stages)
            if document.totals.done:
                self._tell()  # the plan may have missed the last stored count: a kill came between the two (PLAN-41)
        return self._state

    @property
    def state(self) -> CursorState[Item, Key]:
        """Where the cursor is and what it admits."""
        return self._state or self.attach()

    @property
    def position(self) -> Key | None:
        """The key to start the source at, inclusively; ``None``: at its beginning."""
        return cast("Key | None", self.state.position)

    def needs(self, item: Item, stage: str) -> bool:
        """Say whether this stage of the item is still to be done."""
        return self.state.needs(item, stage)

    async def batches(
        self, source: Iterable[Item] | AsyncIterable[Item], *, size: int = BATCH_SIZE
    ) -> AsyncIterator[Batch[Item]]:
        """Yield what is still to be done, in batches of ``size`` items; the last one may be smaller.

        Raises:
            CursorOrderError: The keys of the source do not rise.
        """
        walk = self.state.walk()
        items: list[Item] = []
        keys: list[CursorKey] = []
        async for item in _each(source):
            key = walk.admit(item)
            if key is None:
                continue
            items.append(item)
            keys.append(key)
            if len(items) >= size:
                yield self.begin(items, keys)
                items, keys = [], []
        if items:
            batch = self.begin(items, keys)
            self.state.end(walk.last_key)  # known before the last commit, which then stores it as well
            yield batch
        self.state.end(walk.last_key)
        if self.end_is_news():
            await self.store_move()

    async def items(self, source: Iterable[Item] | AsyncIterable[Item]) -> AsyncIterator[Item]:
        """Yield what is still to be done, item by item. Raises ``CursorOrderError``."""
        walk = self.state.walk()
        async for item in _each(source):
            key = walk.admit(item)
            if key is not None:
                self.begin([item], [key])
                yield item
        self.state.end(walk.last_key)
        if self.end_is_news():
            await self.store_move()

    async def commit(self, done: Batch[Item] | Item, /) -> None:
        """Move past an item or batch with all its stages."""
        if self.move_by_commit(done):
            await self.store_move()

    async def stage(self, item: Item, name: str, /) -> None:
        """Move past one stage of an item. Raises ``CursorStageError`` for a stage that was not named."""
        if self.move_by_stage(item, name):
            await self.store_move()

    async def skip(self, item: Item, code: str, text: str = "") -> None:
        """Move past an item without its effect, and record why; the record is durable first (CUR-10)."""
        await self.record_skip(item, code, text)
        if self.move_by_skip(item, code):
            await self.store_move()

    async def close(self) -> None:
        """Store what is not stored yet: the body ended, failed or was cancelled (CUR-09)."""
        if self._state is None:
            return
        if self._dirty or (self.target is not None and self._saved_at is not None):
            await self._save()

    # ------------------------------------------------------------------ parts, for the blocking form

    def begin(self, items: list[Item], keys: list[CursorKey]) -> Batch[Item]:
        self.check()
        self.state.begin(keys)
        return Batch(items)

    def move_by_commit(self, done: Batch[Item] | Item) -> bool:
        self._request.check_ended()
        return self.state.commit(done) or self._is_to_be_repeated()

    def move_by_stage(self, item: Item, name: str) -> bool:
        self._request.check_ended()
        return self.state.stage(item, name) or self._is_to_be_repeated()

    def move_by_skip(self, item: Item, code: str) -> bool:
        return self.state.skip(item, code)

    async def record_skip(self, item: Item, code: str, text: str) -> None:
        self._request.check_ended()
        document = self.state.document
        record = SkipRecord(
            key=stored_key(self.state.key_of(item)), code=code, text=text, epoch=document.epoch, at=self._stamp()
        )
        if self._stale_skips:
            self._stale_skips = False
            await self._home.forget_skips()
        await self._home.record_skip(record)

    def check(self) -> None:
        """Raise what the attempt ends with, once that is known."""
        self._request.check()

    def end_is_news(self) -> bool:
        """Say whether the source's end was reached and is not in the document yet (CUR-11)."""
        return self.state.at_end and not self.state.document.at_end

    def save_in_target(self) -> None:
        """Store the position in the caller's transaction, in the caller's thread (CUR-12)."""
        if self.target is not None:
            self.target.save(self._request.scope, self._written())

    async def store_move(self) -> None:
        """Store what moved, wherever the cursor is kept."""
        self.save_in_target()
        await self.after_move()

    async def after_move(self) -> None:
        """Store what moved if it is time, and tell the views."""
        self._dirty = True
        if self.target is None:
            if self._clock.monotonic() >= self._saved_monotonic + self._request.checkpoint_interval_s:
                await self._save()
        elif not self._copied:
            # One copy at the first move tells a planner that this cursor has moved; the last one comes at close.
            await self._save()
            self._copied = True
        else:
            self._note_saved()
        self._tell()
        self.check()

    # ------------------------------------------------------------------ inside

    def _is_to_be_repeated(self) -> bool:
        """A move that was made may not be stored: its write failed, or the target's transaction was rolled back."""
        return self._failed or self.target is not None

    async def _save(self) -> None:
        self._failed = True
        await self._home.save(self._written())
        self._failed = False
        self._note_saved()

    def _written(self) -> Any:
        return self.state.written(self._stamp(), self._request.query_digest)

    def _stamp(self) -> str:
        return moment(self._clock.now())

    def _note_saved(self) -> None:
        self._dirty = False
        self._saved_at, self._saved_monotonic = self._clock.now(), self._clock.monotonic()

    def _tell(self) -> None:
        totals, interval_s = self.state.document.totals, self._request.checkpoint_interval_s
        total = totals.total
        if total is not None and totals.done > total:
            total = None
            if not self._warned:
                self._warned = True
                _log.warning(
                    "cursor of %s: %d items are done, %d were announced", self.state.task_id, totals.done, totals.total
                )
        next_at = None
        if interval_s > 0:
            next_at = self._clock.now() + max(0.0, self._saved_monotonic + interval_s - self._clock.monotonic())
        self._request.notify(
            CursorProgress(done=totals.done, total=total, last_checkpoint_at=self._saved_at, next_checkpoint_at=next_at)
        )


async def _each(source: Iterable[Item] | AsyncIterable[Item]) -> AsyncIterator[Item]:
    if isinstance(source, AsyncIterable):
        async for item in source:
            yield item
    else:
        for item in source:
            yield item
