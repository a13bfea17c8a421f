"""One remembered part of a task, while it is open (CUR-15)."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

V = TypeVar("V")


class Step(Generic[V]):
    """An open step: ask ``done``; then read ``value``, or do the work and ``set`` it.

    ``done``: an earlier attempt or run left the step without an error; its work must not be repeated.
    """

    __slots__ = ("_value", "done", "name")

    def __init__(self, name: str, *, done: bool = False, value: Any = None) -> None:
        self.name, self.done, self._value = name, done, value

    @property
    def value(self) -> V:
        """What was set, now or by an earlier attempt; ``None`` before that."""
        value: V = self._value
        return value

    def set(self, value: V, /) -> None:
        """Keep a value with the step; it is stored when the step ends without an error."""
        self._value = value
