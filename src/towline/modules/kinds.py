"""How many tasks a module has, as types: the two bases that every declared module has one of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
Item = TypeVar("Item")


class OneTask(Generic[T]):
    """A module that has one task; ``T`` is its result."""


class ManyTasks(Generic[T]):
    """A module with ``matrix`` or ``each``: one task per key; ``T`` is the result of each."""


OneModule: TypeAlias = OneTask[T] | Callable[[], OneTask[T]]
"""A function module, an instance, or a class that needs no arguments."""
ManyModule: TypeAlias = ManyTasks[T] | Callable[[], ManyTasks[T]]
"""The same, of a module with ``matrix`` or ``each``."""
AnyModule: TypeAlias = OneModule[Any] | ManyModule[Any]

Axes: TypeAlias = Mapping[str, list[Any] | tuple[Any, ...]]
"""Axis name -> its values; a bare string is not a list of values."""

Items: TypeAlias = list[Item] | tuple[Item, ...] | Mapping[str, Item]
"""What ``each`` walks: ``result_of(m)`` of a module that returns a list, tuple or dict."""


def is_module(value: object) -> bool:
    """Say whether this was declared as a module: a decorated function, a module class or an instance of one."""
    if isinstance(value, type):
        return issubclass(value, (OneTask, ManyTasks))
    return isinstance(value, (OneTask, ManyTasks))
