"""Whether a value of one declared type can be given where another is asked for (MOD-17). Pure."""

from __future__ import annotations

from typing import Any, get_origin, is_typeddict

_WIDENED = {float: (int,), complex: (int, float), bytes: (bytearray, memoryview)}
"""What type checkers accept although it is no subclass."""


def mismatch(asked: object, given: object) -> bool:
    """Say whether both are plain classes and neither is a kind of the other.

    Anything else (unions, generics, protocols, ``Any``, text that was not resolved) may fit, so it is no
    mismatch: the check refuses only what can never work.
    """
    asked = type(None) if asked is None else asked
    given = type(None) if given is None else given
    if asked is given or not _is_plain(asked) or not _is_plain(given):
        return False
    assert isinstance(asked, type)
    assert isinstance(given, type)
    try:
        return not (issubclass(given, asked) or issubclass(asked, given) or given in _WIDENED.get(asked, ()))
    except TypeError:  # a metaclass that refuses the question
        return False


def type_name(kind: object) -> str:
    """Return the name of a type without the Python modules in it.

    One file is ``__main__`` in one process and ``release`` in another; digests have to be the same (MOD-25).
    """
    if type(kind) is type or (isinstance(kind, type) and get_origin(kind) is None):
        return kind.__qualname__
    origin = get_origin(kind)
    if origin is None:
        return str(getattr(kind, "__qualname__", kind))
    arguments = ", ".join(type_name(argument) for argument in getattr(kind, "__args__", ()))
    return f"{getattr(origin, '__qualname__', origin)}[{arguments}]"


def _is_plain(kind: object) -> bool:
    return (
        isinstance(kind, type)
        and kind is not object
        and kind is not Any  # a class since Python 3.11
        and get_origin(kind) is None
        and not is_typeddict(kind)
        and not getattr(kind, "_is_protocol", False)
    )
