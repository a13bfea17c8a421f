"""Pick the shape of a declared type, or say where in it something has no JSON form (SER-01, SER-02)."""

from __future__ import annotations

import enum
import sys
import types
import typing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from towline.errors.values import ResultTypeError
from towline.serialization import class_forms
from towline.serialization.containers import DictShape, ListShape, RowShape, TaggedShape, UnionShape
from towline.serialization.fields import RecordShape
from towline.serialization.paths import PathShape
from towline.serialization.shapes import (
    BytesShape,
    ChoiceShape,
    ExactShape,
    FiniteShape,
    FlagShape,
    FloatShape,
    IntShape,
    MomentShape,
    NativeTextShape,
    Shape,
    StrShape,
    class_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LEAVES: dict[Any, Shape] = {
    None: ExactShape(type(None)),
    type(None): ExactShape(type(None)),
    bool: ExactShape(bool),
    int: IntShape(),
    float: FloatShape(),
    str: StrShape(),
    bytes: BytesShape(),
    datetime: MomentShape(datetime),
    time: MomentShape(time),
    Path: PathShape(),
}
_LEAVES.update((cls, NativeTextShape(cls)) for cls in (date, timedelta, UUID, Decimal))

_MANY = (list, set, frozenset)
_WRAPPERS = (typing.Annotated, typing.Required, typing.NotRequired)


def type_name(declared: Any) -> str:
    """Name a type as one would write it, without the modules' paths."""
    if declared is None:
        return "None"
    if isinstance(declared, type) and not typing.get_args(declared):
        return class_name(declared)
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(type_name(argument) for argument in arguments)
    if isinstance(origin, type) and arguments:
        return f"{class_name(origin)}[{', '.join('...' if a is ... else type_name(a) for a in arguments)}]"
    name = getattr(declared, "__name__", None)
    return name if isinstance(name, str) and not arguments else str(declared).replace("typing.", "")


class ShapeBuilder:
    """Builds the shapes of one declared type; remembers its records, which may contain themselves.

    ``leaves``: shapes of further types, for a reader and a writer who agree on them.
    """

    def __init__(self, leaves: Mapping[Any, Shape] | None = None) -> None:
        self._leaves = {**_LEAVES, **leaves} if leaves else _LEAVES
        self._records: dict[Any, Shape] = {}

    def build(self, declared: Any, path: str, known: dict[Any, Any]) -> Shape:
        """Return the shape of a type.

        Args:
            declared: The type, resolved (no strings).
            path: Where in the whole type it stands, for the error: ``result.files[]``.
            known: What the type variables of the surrounding generic class stand for.

        Raises:
            ResultTypeError: It, or a part of it, has no JSON form.
        """
        declared = unwrapped(declared, known)
        leaf = self._leaves.get(declared) if _is_hashable(declared) else None
        if leaf is not None:
            return leaf
        origin, arguments = typing.get_origin(declared), typing.get_args(declared)
        if origin in (typing.Union, types.UnionType):
            return self._union(declared, arguments, path, known)
        if origin is typing.Literal:
            return self._literal(declared, arguments, path)
        if origin in _MANY and len(arguments) == 1:
            return ListShape(origin, self.build(arguments[0], f"{path}[]", known))
        if origin is tuple or declared == tuple[()]:
            return self._tuple(declared, arguments, path, known)
        if origin is dict and len(arguments) == 2:
            key = self.build(arguments[0], f"{path}[key]", known)
            return DictShape(key, self.build(arguments[1], f"{path}[]", known))
        cls = origin or declared
        if isinstance(cls, type):
            if issubclass(cls, enum.Enum):
                return _enum(cls, path)
            return self._class(declared, cls, path, known)
        raise refused(declared, path)

    def _tuple(self, declared: Any, arguments: tuple[Any, ...], path: str, known: dict[Any, Any]) -> Shape:
        if len(arguments) == 2 and arguments[1] is ...:
            return ListShape(tuple, self.build(arguments[0], f"{path}[]", known))
        row = RowShape(tuple, type_name(declared))
        row.items = [self.build(a, f"{path}[{index}]", known) for index, a in enumerate(arguments)]
        return row

    def _class(self, declared: Any, cls: Any, path: str, known: dict[Any, Any]) -> Shape:
        """A class of named fields. It is remembered before its fields are built, for they may lead back to it."""
        inner = class_forms.variables(declared, cls, known)
        memo = (cls, tuple(sorted((str(k), repr(v)) for k, v in inner.items())))
        if memo not in self._records:
            form = class_forms.form_of(cls, declared, path)
            if form is None:
                raise refused(declared, path, _hint(declared))
            self._records[memo] = form.shape
            form.fill(lambda part, step: self.build(part, f"{path}{step}", inner))
        return self._records[memo]

    def _union(self, declared: Any, arguments: tuple[Any, ...], path: str, known: dict[Any, Any]) -> Shape:
        members = [self.build(argument, path, known) for argument in arguments]
        kinds = {kind for member in members if not isinstance(member, FloatShape) for kind in member.kinds}
        if kinds & {"text", "int"}:
            members = [FiniteShape() if isinstance(member, FloatShape) else member for member in members]
        members = list(_joined_by_tag(members))
        by_kind: dict[str, Shape] = {}
        for member in members:
            for kind in member.kinds:
                if kind in by_kind:
                    raise refused(
                        declared,
                        path,
                        f"{by_kind[kind].name} and {member.name} look the same in JSON: use msgspec Structs with tags, "
                        "or a record with a field for each.",
                    )
                by_kind[kind] = member
        return UnionShape(type_name(declared), members, by_kind)

    def _literal(self, declared: Any, values: tuple[Any, ...], path: str) -> Shape:
        forms: dict[Any, Any] = {}
        for value in values:
            if type(value) not in (type(None), bool, int, str) or any(value == seen for seen in forms):
                raise refused(declared, path, "Literals here are texts, integers, booleans or None, each of its own.")
            forms[value] = value
        return ChoiceShape(type_name(declared), forms)


def unwrapped(declared: Any, known: dict[Any, Any]) -> Any:
    """Strip ``Annotated``, ``NewType``, ``type`` aliases and field markers, and replace a type variable."""
    while True:
        if isinstance(declared, typing.TypeVar):
            if declared not in known:
                return declared
            declared = known[declared]
        elif isinstance(declared, typing.NewType):
            declared = declared.__supertype__
        elif typing.get_origin(declared) in _WRAPPERS:
            declared = typing.get_args(declared)[0]
        elif sys.version_info >= (3, 12) and isinstance(declared, typing.TypeAliasType):
            declared = declared.__value__
        else:
            return declared


def refused(declared: Any, path: str, hint: str = "") -> ResultTypeError:
    """The error of a type, or part of one, without JSON form (SER-02)."""
    return ResultTypeError("", type_name(declared), "", path, hint or _hint(declared))


def _hint(declared: Any) -> str:
    if declared in (Any, object):
        return "Annotate what is returned, or return a path, artifact or buffer."
    if declared in (list, tuple, set, frozenset, dict):
        return f"Say of what: {declared.__name__}[...]."
    origin = typing.get_origin(declared)
    if getattr(origin, "__module__", "") == "collections.abc":
        return "Declare what comes back on the other side: list, tuple, set or dict."
    return ""


def _enum(cls: Any, path: str) -> Shape:
    """Enums go by value where all values are texts or all are integers, else by member name."""
    if issubclass(cls, enum.Flag):
        return FlagShape(cls)
    members = list(cls.__members__.values())
    if not members:
        raise refused(cls, path, "It has no members.")
    values = [member.value for member in members]
    if all(type(value) is str for value in values) or all(type(value) is int for value in values):
        return ChoiceShape(class_name(cls), {member: member.value for member in members})
    return ChoiceShape(class_name(cls), {member: member.name for member in members})


def _joined_by_tag(members: Iterable[Shape]) -> Iterable[Shape]:
    """Put structs with tags in one field together; yield everything else as it is."""
    by_field: dict[str, dict[str | int, Shape]] = {}
    for member in members:
        tag = member.tag if isinstance(member, RecordShape) else None
        if tag is None or tag[1] in by_field.get(tag[0], {}):
            yield member
        else:
            by_field.setdefault(tag[0], {})[tag[1]] = member
    for tag_field, by_tag in by_field.items():
        yield TaggedShape(tag_field, by_tag) if len(by_tag) > 1 else next(iter(by_tag.values()))


def _is_hashable(declared: Any) -> bool:
    try:
        hash(declared)
    except TypeError:
        return False
    return True
