"""Steps: named parts of a task that are done once, over attempts, claims and runs (CUR-14..16)."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from towline.clock import moment
from towline.errors.cursors import StepReusedError, StepValueError
from towline.state.cursor_documents import StepDocument, decode_document, encode_document
from towline.state.cursor_fence import take_fence
from towline.state.keys import step_key
from towline.state.shielding import finish
from towline.state.store import ANYTHING, Fence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from towline.clock import Clock
    from towline.state.store import StateStore

V = TypeVar("V")

_NOTHING = object()


class Step(Generic[V]):
    """An open step: ask ``done``; then read ``value``, or do the work and ``set`` it."""

    def __init__(self, task_id: str, name: str, *, has_value: bool) -> None:
        self.task_id, self.name, self._has_value = task_id, name, has_value
        self.done = False
        self._value: Any = _NOTHING if has_value else None

    @property
    def value(self) -> V:
        """What was stored or set. Raises ``StepValueError`` before there is one."""
        if self._value is _NOTHING:
            raise StepValueError(self.task_id, self.name, "nothing", "it was not set yet")
        value: V = self._value
        return value

    def set(self, value: V, /) -> None:
        """Give the value that is remembered when the step ends without error."""
        if not self._has_value:
            raise StepValueError(self.task_id, self.name, type(value).__name__, "the step was opened without result=")
        self._value = value


class StepStore:
    """The steps of one attempt of one claim.

    Args:
        check: Raises when the attempt was cancelled or has ended; called before each step's work.
        check_ended: Raises when nothing may be written any more; ``check`` if not given. Apart, a cancelled
            body can still store the step that it has just done (CUR-08).
    """

    def __init__(
        self,
        store: StateStore,
        task_id: str,
        epoch: int,
        plan_id: str,
        *,
        attempt: int,
        clock: Clock,
        check: Callable[[], None],
        check_ended: Callable[[], None] | None = None,
    ) -> None:
        self._store, self._clock, self._check = store, clock, check
        self._check_ended = check_ended or check
        self._task_id, self._attempt = task_id, attempt
        self._fence = Fence(epoch, task_id, plan_id)
        self._fenced = False
        self._used: set[str] = set()

    async def once(
        self, name: str, call: Callable[[], Any], *, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]
    ) -> Any:
        """Call once and remember the value; a later attempt, claim or run gets it without the call.

        Args:
            call: The work; what it returns is awaited if it can be. Its error stores nothing and passes.
            encode: Value to JSON. What it raises becomes ``StepValueError``.
            decode: JSON to value.

        Raises:
            StepReusedError, StepValueError: CUR-16.
            LeaseLostError: A later claim has been there.
            CursorCorruptError: The stored step cannot be read.
        """
        stored, started_at = await self._begin(name)
        if stored is not None:
            return decode(bytes(stored.value))
        value = call()
        if isinstance(value, Awaitable):
            value = await value
        await self._store_done(name, value, encode, started_at)
        return value

    @asynccontextmanager
    async def open(
        self,
        name: str,
        *,
        encode: Callable[[Any], bytes] | None = None,
        decode: Callable[[bytes], Any] | None = None,
    ) -> AsyncIterator[Step[Any]]:
        """Open a step; leaving the block without error marks it done. Without ``encode`` it has no value.

        Raises:
            As ``once``; ``StepValueError`` also when a step with a value ends without one.
        """
        stored, started_at = await self._begin(name)
        step: Step[Any] = Step(self._task_id, name, has_value=encode is not None)
        if stored is not None:
            step.done = True
            if decode is not None:
                step.set(decode(bytes(stored.value)))
        yield step
        if stored is None:
            await self._store_done(name, step.value, encode or msgspec.json.encode, started_at)
            step.done = True

    async def _begin(self, name: str) -> tuple[StepDocument | None, str]:
        self._check()
        if name in self._used:
            raise StepReusedError(self._task_id, name)
        self._used.add(name)
        started_at = moment(self._clock.now())
        if not self._fenced:
            await take_fence(self._store, self._task_id, self._fence.plan_id, self._fence.epoch, started_at)
            self._fenced = True
        key = step_key(self._task_id, name)
        entry = await self._store.read(key)
        document = None if entry is None else decode_document(entry.data, StepDocument, self._task_id, key)
        if document is not None and document.plan_id < self._fence.plan_id:
            document = None  # of an older plan: it counts as absent (PLAN-30)
        return document, started_at

    async def _store_done(self, name: str, value: Any, encode: Callable[[Any], bytes], started_at: str) -> None:
        self._check_ended()
        try:
            encoded = encode(value)
        except Exception as error:
            raise StepValueError(self._task_id, name, type(value).__name__, str(error)) from error
        document = StepDocument(
            task=self._task_id,
            plan_id=self._fence.plan_id,
            step=name,
            epoch=self._fence.epoch,
            attempt=self._attempt,
            value=msgspec.Raw(encoded),
            started_at=started_at,
            finished_at=moment(self._clock.now()),
        )
        data = encode_document(document)
        await finish(self._store.write(step_key(self._task_id, name), data, ANYTHING, self._fence))
