"""The check of a body's result that every mode makes: ``None`` only if declared, no wrong plain class (SER-05).

It runs after every task, so all thought goes into the first time a type is seen.
"""

from __future__ import annotations

import types
import typing
from typing import Any

from towline.errors.values import ResultTypeError

_Classes = tuple[type, ...] | None
"""What ``isinstance`` is asked for; ``None``: anything may come."""

_classes: dict[Any, _Classes] = {Any: None, object: None}


def check_value(declared: Any, value: object, module: str = "") -> None:
    """Refuse a value that is of another plain class than declared; a subclass is well.

    What is inside a container is not looked at: that is the codec's part, where a value is encoded.

    Raises:
        ResultTypeError: Naming module, declared type and the value's class.
    """
    try:
        classes = _classes[declared]
    except KeyError:
        classes = _classes[declared] = _plain_classes(declared)
    except TypeError:  # an unhashable type
        classes = _plain_classes(declared)
    if classes is None or isinstance(value, classes):
        return
    from towline.serialization.shapes import class_name
    from towline.serialization.typing_forms import type_name

    raise ResultTypeError(module, type_name(declared), class_name(type(value)), "value")


def _plain_classes(declared: Any) -> _Classes:
    """Return the classes of a type's values, ``None`` where that cannot be said."""
    if declared is None:
        return (type(None),)
    if declared is float:
        return (float, int)
    origin = typing.get_origin(declared)
    if origin is typing.Annotated:
        return _plain_classes(typing.get_args(declared)[0])
    if origin in (typing.Union, types.UnionType):
        members = [_plain_classes(argument) for argument in typing.get_args(declared)]
        return None if None in members else tuple(cls for member in members if member for cls in member)
    if origin is typing.Literal:
        return tuple({type(value) for value in typing.get_args(declared)})
    if isinstance(declared, typing.NewType):
        return _plain_classes(declared.__supertype__)
    cls = origin or declared
    if not isinstance(cls, type):
        return None
    if typing.is_typeddict(cls):
        return (dict,)
    return None if cls is object or getattr(cls, "_is_protocol", False) else (cls,)
