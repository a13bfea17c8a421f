"""The fields of a class: dataclass, attrs, msgspec Struct, NamedTuple, TypedDict, pydantic model (SER-01).

attrs and pydantic are found, not required: their classes are known by what those packages leave on them.
"""

from __future__ import annotations

import sys
import typing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from towline.errors.values import ResultTypeError
from towline.serialization.containers import RowShape
from towline.serialization.fields import FieldShape, ModelShape, RecordShape, TypedDictShape
from towline.serialization.shapes import class_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.serialization.shapes import Shape

    Build = Callable[[Any, str], Shape]
    """Builds the shape of a field's type; the second argument is the step to it."""


class ClassForm(NamedTuple):
    """The shape of a class, whose fields are still to be filled in."""

    shape: Shape
    fill: Callable[[Build], None]


class _Field(NamedTuple):
    name: str
    key: str
    argument: str | None
    required: bool


def form_of(cls: Any, declared: Any, path: str) -> ClassForm | None:
    """Return the form of a class with named fields; ``None`` if it is none.

    Raises:
        ResultTypeError: It is one, but cannot be read back.
    """
    if issubclass(cls, msgspec.Struct):
        return _struct(cls, path)
    if hasattr(cls, "__dataclass_fields__"):  # as ``dataclasses`` itself tells them
        return _record(cls, _dataclass_fields(cls, path), path)
    if "__attrs_attrs__" in vars(cls):
        return _record(cls, _attrs_fields(cls), path)
    if typing.is_typeddict(cls):
        return _typed_dict(cls, path)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _named_tuple(cls, path)
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        return _model(cls, path)
    return None


def variables(declared: Any, cls: Any, known: dict[Any, Any]) -> dict[Any, Any]:
    """Return what the type variables in the class and its generic bases stand for."""
    found: dict[Any, Any] = {}
    names = getattr(cls, "__parameters__", ()) or getattr(cls, "__type_params__", ())
    for variable, argument in zip(names, typing.get_args(declared), strict=False):
        found[variable] = known.get(argument, argument) if isinstance(argument, typing.TypeVar) else argument
    for base in getattr(cls, "__orig_bases__", ()):
        origin = typing.get_origin(base)
        if isinstance(origin, type) and origin not in (typing.Generic, cls):
            for variable, argument in variables(base, origin, found).items():
                found.setdefault(variable, argument)
    return found


def _record(
    cls: Any,
    fields: list[_Field],
    path: str,
    *,
    tag: tuple[str, str | int] | None = None,
    ignores_unknown: bool = False,
) -> ClassForm:
    shape = RecordShape(cls, class_name(cls), tag=tag, ignores_unknown=ignores_unknown)

    def fill(build: Build) -> None:
        hints = _hints(cls, path)
        shape.fields = [
            FieldShape(f.name, f.key, f.argument, build(hints.get(f.name, Any), f".{f.name}"), f.required)
            for f in fields
        ]

    return ClassForm(shape, fill)


def _dataclass_fields(cls: Any, path: str) -> list[_Field]:
    import dataclasses

    for name, field in vars(cls).get("__dataclass_fields__", {}).items():
        if getattr(field, "_field_type", None) is getattr(dataclasses, "_FIELD_INITVAR", ...):
            raise _unreadable(cls, path, f"Its parameter {name!r} is an InitVar, which is not kept.")
    return [
        _Field(
            f.name,
            f.name,
            f.name if f.init else None,
            f.init and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
        )
        for f in dataclasses.fields(cls)
    ]


def _attrs_fields(cls: Any) -> list[_Field]:
    nothing = sys.modules["attr"].NOTHING
    return [
        _Field(f.name, f.name, (f.alias or f.name.lstrip("_")) if f.init else None, f.init and f.default is nothing)
        for f in cls.__attrs_attrs__
    ]


def _struct(cls: Any, path: str) -> ClassForm:
    config = cls.__struct_config__
    fields = [_Field(f.name, f.encode_name, f.name, f.required) for f in msgspec.structs.fields(cls)]
    tag = None if config.tag is None else (config.tag_field, config.tag)
    return _record(cls, fields, path, tag=tag, ignores_unknown=not config.forbid_unknown_fields)


def _named_tuple(cls: Any, path: str) -> ClassForm:
    row = RowShape(cls, class_name(cls))

    def fill(build: Build) -> None:
        hints = _hints(cls, path)
        row.items = [build(hints.get(name, Any), f".{name}") for name in cls._fields]

    return ClassForm(row, fill)


def _typed_dict(cls: Any, path: str) -> ClassForm:
    shape = TypedDictShape(class_name(cls))

    def fill(build: Build) -> None:
        for name, hint in _hints(cls, path).items():
            # The markers count more than __required_keys__, which misses those written as text.
            origin = typing.get_origin(hint)
            required = origin is typing.Required or (origin is not typing.NotRequired and name in cls.__required_keys__)
            shape.fields[name] = FieldShape(name, name, None, build(hint, f"[{name!r}]"), required)

    return ClassForm(shape, fill)


def _model(cls: Any, path: str) -> ClassForm:
    try:
        for mode in ("validation", "serialization"):
            cls.model_json_schema(mode=mode)
    except Exception as error:  # - pydantic's own errors cannot be named without importing it
        raise _unreadable(cls, path, f"pydantic says: {error}") from error
    return ClassForm(ModelShape(cls), lambda build: None)


def _hints(cls: Any, path: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise _unreadable(
            cls,
            path,
            f"An annotation in it cannot be resolved: {error}. Define its types at the top of a file and "
            "import them outside of TYPE_CHECKING.",
        ) from error


def _unreadable(cls: Any, path: str, why: str) -> ResultTypeError:
    return ResultTypeError("", class_name(cls), "", path, why)
