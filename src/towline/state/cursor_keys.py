"""Keys of cursors: text, integers or tuples of these, compared by value (CUR-02). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard

from towline.errors.cursors import CursorOrderError

if TYPE_CHECKING:
    from collections.abc import Sequence

CursorKey: TypeAlias = str | int | tuple[str | int, ...]
"""Text is compared by code points, integers by value, tuples part by part."""

StoredKey: TypeAlias = str | int | list[str | int]
"""A key as JSON has it."""

_SHOWN_CHARACTERS: Final = 120


def stored_key(key: CursorKey) -> StoredKey:
    return list(key) if isinstance(key, tuple) else key


def loaded_key(stored: StoredKey) -> CursorKey:
    return tuple(stored) if isinstance(stored, list) else stored


def checked_cursor_key(task_id: str, key: object) -> CursorKey:
    """Return the key if it is one.

    Raises:
        CursorOrderError: It is of another type, an empty tuple, or text that is no Unicode.
    """
    parts: Sequence[object] = key if isinstance(key, tuple) else (key,)
    if not parts:
        raise CursorOrderError(task_id, "nothing", "()", "an empty tuple is no key")
    for part in parts:
        if isinstance(part, str):
            if not part.isascii() and any("\ud800" <= character <= "\udfff" for character in part):
                raise CursorOrderError(task_id, "nothing", shown(part), "it has a lone surrogate; decode it otherwise")
        elif isinstance(part, bool) or not isinstance(part, int):
            raise CursorOrderError(
                task_id, "nothing", shown(part), f"a key is str, int or a tuple of these, not {type(part).__name__}"
            )
    if _is_key(key):
        return key
    raise AssertionError(key)


def is_after(task_id: str, key: CursorKey, previous: CursorKey) -> bool:
    """Say whether a key comes after another one of the same shape.

    Raises:
        CursorOrderError: They cannot be compared.
    """
    try:
        return key > previous  # type: ignore[operator]  # of one type as a rule; if not, that is the error
    except TypeError as error:
        raise CursorOrderError(task_id, shown(previous), shown(key), "keys of different types have no order") from error


def shown(key: object) -> str:
    """Write a key for a message: escaped, and cut when it is long."""
    text = ascii(key)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _is_key(key: object) -> TypeGuard[CursorKey]:
    return isinstance(key, str | int | tuple)
