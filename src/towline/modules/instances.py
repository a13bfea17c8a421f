"""Class modules as records: their fields, their frozen instances and the names of those (MOD-03, MOD-05, MOD-30)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from towline.modules.markers import Marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from towline.modules.checking import Declaring

RESERVED = ("name", "run", "before", "on_failed", "on_skipped", "on_cached", "after", "artifact")
"""What a class module already means something by, so that no parameter can be called it."""


def freeze(cls: type[Any], declaring: Declaring) -> dict[str, Marker]:
    """Make a class a frozen record of its parameters; return its own markers by field.

    Parameters are the annotated fields without a marker, in order; ``name`` is keyword-only and comes with
    the class that is nearest to ``Module``. Markers stay class attributes until a task binds values.

    Raises:
        DeclarationError: An own ``__init__``, a reserved name, a mutable default, or a parameter without
            default after one with a default.
    """
    from dataclasses import dataclass, field

    names = cls.__dict__
    annotations: dict[str, Any] = dict(names.get("__annotations__", {}))
    if "__init__" in names:
        declaring.refuse(
            "__init__",
            cls.__name__,
            "parameters are annotated fields, for example `region: str`; there is no own __init__",
        )
    for reserved in annotations:
        if reserved in RESERVED:
            declaring.refuse("parameter", reserved, f"a class module means something else by {', '.join(RESERVED)}")
    markers = {name: value for name, value in names.items() if isinstance(value, Marker)}
    kept = {name: annotation for name, annotation in annotations.items() if name not in markers}
    if "name" not in getattr(cls, "__dataclass_fields__", ()):
        kept["name"] = str
        cls.name = field(default="", kw_only=True)
    cls.__annotations__ = kept
    try:
        dataclass(frozen=True, repr=False)(cls)
    except (TypeError, ValueError) as error:
        declaring.refuse("parameters", ", ".join(kept), str(error), error)
    finally:
        cls.__annotations__ = annotations
    cls.__init__ = _naming(cls, cls.__init__)
    return markers


def _naming(cls: type[Any], init: Callable[..., None]) -> Callable[..., None]:
    """Let the generated constructor end by giving the instance its name."""
    from functools import wraps

    @wraps(init)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if type(self) is cls:
            self.__dict__["name"] = cls.towline_declaration.name_of(self)

    return construct


def bound(instance: Any, inputs: dict[str, Any]) -> Any:
    """Return a copy of an instance whose marker fields hold the values of one task."""
    copy = object.__new__(type(instance))
    copy.__dict__.update(instance.__dict__)
    copy.__dict__.update(inputs)
    return copy


def arguments(instance: Any) -> tuple[tuple[str, object], ...]:
    """The parameters of an instance with their values, in order, for digests."""
    from dataclasses import fields

    return tuple((one.name, getattr(instance, one.name)) for one in fields(instance) if one.name != "name")


def instance_name(instance: Any, class_name: str) -> str:
    """Name an instance by its class and the parameters that differ from their defaults (MOD-03).

    ``Deploy(eu, 6)``; once a default was passed over, parameters are named: ``Deploy(eu, verbose=True)``. A value
    that is no text, whole number, bool or enum gives no name: the result then is no allowed module name.
    """
    shown = ", ".join(_shown(instance))
    return f"{class_name}({shown})" if shown else class_name


def _shown(instance: Any) -> Iterator[str]:
    from dataclasses import MISSING, fields

    passed_over = False
    for one in fields(instance):
        if one.name == "name":
            continue
        value = getattr(instance, one.name)
        if one.default is not MISSING:
            default = one.default
        else:
            default = one.default_factory() if one.default_factory is not MISSING else MISSING
        if value is default or (default is not MISSING and type(value) is type(default) and value == default):
            passed_over = True
        else:
            text = argument_text(value)
            yield f"{one.name}={text}" if passed_over else text


def argument_text(value: object) -> str:
    """Write a parameter's value as it stands in a name; ``?`` for a value that has no such text."""
    if isinstance(value, Enum):
        return str(value.value) if isinstance(value.value, (str, int)) else value.name
    return str(value) if isinstance(value, (str, int)) else "?"
