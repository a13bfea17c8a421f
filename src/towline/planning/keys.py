"""Keys of expanded modules: the text that a value gives, and the tasks that axes give (PLAN-07, 10, 58)."""

from __future__ import annotations

from datetime import date, time
from enum import Enum
from itertools import product
from math import prod
from pathlib import PurePath
from typing import TYPE_CHECKING

from towline.identity.names import encode_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def key_text(value: object) -> str | None:
    """Return the text that a value has as a key, not yet encoded; ``None`` for a value that has none.

    An enum member counts by its value when that is a text or a number, else by its name; a path is
    written with ``/`` on every system, so that keys do not depend on the machine.
    """
    match value:
        case Enum():
            return str(value.value) if isinstance(value.value, str | int) else value.name
        case str():
            return value
        case bool() | int() | float() | None:
            return str(value)
        case date() | time():
            return value.isoformat()
        case PurePath():
            return value.as_posix()
        case _:
            return None


def matrix_size(matrix: Mapping[str, Sequence[object]]) -> int:
    """Count the tasks that the axes give, without making them (MOD-21)."""
    return prod(len(values) for values in matrix.values())


def matrix_keys(module: str, matrix: Mapping[str, Sequence[object]]) -> Iterator[tuple[str, dict[str, object]]]:
    """Give key and values per task: axes in declared order, the last one fastest (MOD-18).

    Raises:
        ValueError: A value has no text that could be a key; says which.
    """
    axes = list(matrix)
    texts = [[_part(module, axis, value) for value in matrix[axis]] for axis in axes]
    for parts, values in zip(product(*texts), product(*matrix.values()), strict=True):
        yield ",".join(parts), dict(zip(axes, values, strict=True))


def paired_key(axes: Sequence[str], values: Mapping[str, object]) -> str:
    """Return the key of the task that has these values on its own, fewer axes (MOD-19)."""
    return ",".join(encode_key(key_text(values[axis]) or "") for axis in axes)


def _part(module: str, axis: str, value: object) -> str:
    text = key_text(value)
    if text is None:
        raise ValueError(
            f"axis {axis!r} of {module} has a value of type {type(value).__name__}, which gives no key: "
            f"use str, int, float, bool, enum, date or path values"
        )
    try:
        return encode_key(text)
    except ValueError as error:
        raise ValueError(f"axis {axis!r} of {module}: {error}") from None
