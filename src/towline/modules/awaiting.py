"""Calls of a context that do nothing until they are awaited: one that never was fails the body."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    from towline.modules.doors import Attempt

V = TypeVar("V")


def awaited(attempt: Attempt, words: str, work: Callable[[], Awaitable[V]]) -> Coroutine[Any, Any, V]:
    """Return the coroutine of a call, and remember it until it is begun. ``words``: the call as it is written."""
    if attempt.unawaited is None:
        attempt.unawaited = {}
    waiting, mark = attempt.unawaited, object()

    async def call() -> V:
        del waiting[mark]
        return await work()

    coroutine = call()
    waiting[mark] = (words, coroutine)
    return coroutine


def take_unawaited(attempt: Attempt) -> tuple[str, ...]:
    """Return, and forget, the calls that were never begun."""
    left, attempt.unawaited = attempt.unawaited or {}, None
    for _, coroutine in left.values():
        coroutine.close()  # or Python warns of it later, where no task is known
    return tuple(words for words, _ in left.values())


def refuse_unawaited(attempt: Attempt) -> None:
    """Refuse the success of a body that has left such a call behind.

    Raises:
        NotAwaitedError: It names the calls.
    """
    if attempt.unawaited:
        from towline.errors.running import NotAwaitedError

        raise NotAwaitedError(attempt.module, take_unawaited(attempt))
