"""Shapes made of other shapes: lists, tuples, sets, dicts and unions (SER-01, SER-06)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from towline.serialization.misfit import MisfitError
from towline.serialization.shapes import TEXT, Shape, kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import PurePath

_ARRAY = frozenset({"array"})
_INT_TEXT = re.compile(r"(0|-?[1-9][0-9]{0,3999})\Z")


class ListShape(Shape):
    """``list[T]``, ``tuple[T, ...]``, ``set[T]`` and ``frozenset[T]``: any number of one type."""

    kinds = _ARRAY

    def __init__(self, cls: type, item: Shape) -> None:
        self.classes, self._cls, self._item = (cls,), cls, item
        self.name = f"{cls.__name__}[{item.name}{', ...' if cls is tuple else ''}]"
        # A set has no order of its own: equal sets shall have equal bytes.
        self._sorted = cls in (set, frozenset)

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) not in self.classes:
            raise self.wrong_class(value)
        lower = self._item.lower
        lowered: list[Any] = []
        try:
            for item in value:
                lowered.append(lower(item, workdir))  # noqa: PERF401 - the path needs to know how far it came
        except MisfitError as misfit:
            misfit.within("[*]" if self._sorted else f"[{len(lowered)}]")
            raise
        if self._sorted:
            lowered.sort(key=msgspec.json.encode)
        return lowered

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        if type(raw) is not list:
            raise self.wrong_kind(raw)
        lift = self._item.lift
        lifted: list[Any] = []
        try:
            for item in raw:
                lifted.append(lift(item, workdir))  # noqa: PERF401 - the path needs to know how far it came
        except MisfitError as misfit:
            misfit.within(f"[{len(lifted)}]")
            raise
        return lifted if self._cls is list else self._cls(lifted)


class RowShape(Shape):
    """``tuple[A, B]`` and NamedTuples: an array with a type per place."""

    kinds = _ARRAY

    def __init__(self, cls: Any, name: str) -> None:
        self.classes, self.name, self._cls = (cls,), name, cls
        self.items: Sequence[Shape] = ()

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is not self._cls:
            raise self.wrong_class(value)
        if len(value) != len(self.items):
            raise MisfitError(f"has {len(value)} items, not {len(self.items)}")
        lowered: list[Any] = []
        try:
            for shape, item in zip(self.items, value, strict=True):
                lowered.append(shape.lower(item, workdir))
        except MisfitError as misfit:
            misfit.within(f"[{len(lowered)}]")
            raise
        return lowered

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        if type(raw) is not list:
            raise self.wrong_kind(raw)
        if len(raw) != len(self.items):
            raise MisfitError(f"expected {len(self.items)} items, got {len(raw)}")
        lifted: list[Any] = []
        try:
            for shape, item in zip(self.items, raw, strict=True):
                lifted.append(shape.lift(item, workdir))
        except MisfitError as misfit:
            misfit.within(f"[{len(lifted)}]")
            raise
        return tuple(lifted) if self._cls is tuple else self._cls(*lifted)


class DictShape(Shape):
    """``dict[K, V]``: an object where keys are text or integers, else an array of pairs.

    JSON knows text keys only; an integer key is written as its digits, and comes back an integer (S3).
    """

    def __init__(self, key: Shape, value: Shape) -> None:
        self.classes, self.name = (dict,), f"dict[{key.name}, {value.name}]"
        self._key, self._value = key, value
        self._int_keys = key.kinds == {"int"}
        self._object = self._int_keys or key.kinds == TEXT
        self.kinds = frozenset({"object"}) if self._object else _ARRAY

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is not dict:
            raise self.wrong_class(value)
        keys: list[Any] = []
        values: list[Any] = []
        key: object = None
        try:
            for key, item in value.items():
                keys.append(self._key.lower(key, workdir))
                values.append(self._value.lower(item, workdir))
        except MisfitError as misfit:
            misfit.within(f"[{_shown(key)}]")
            raise
        if not self._object:
            return [[k, v] for k, v in zip(keys, values, strict=True)]
        if self._int_keys:
            keys = [str(k) for k in keys]
        return dict(zip(keys, values, strict=True))

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        pairs = self._pairs(raw)
        lifted: dict[Any, Any] = {}
        key: object = None
        try:
            for key, item in pairs:
                lifted[self._key.lift(key, workdir)] = self._value.lift(item, workdir)
        except MisfitError as misfit:
            misfit.within(f"[{_shown(key)}]")
            raise
        return lifted

    def _pairs(self, raw: Any) -> list[tuple[Any, Any]]:
        if self._object:
            if type(raw) is not dict:
                raise self.wrong_kind(raw)
            if self._int_keys:
                return [(_digits(key), item) for key, item in raw.items()]
            return list(raw.items())
        if type(raw) is not list:
            raise self.wrong_kind(raw)
        for index, pair in enumerate(raw):
            if type(pair) is not list or len(pair) != 2:
                raise MisfitError("expected a pair of key and value").within(f"[{index}]")
        return [(key, item) for key, item in raw]


def _digits(key: str) -> int:
    if not _INT_TEXT.match(key):
        raise MisfitError(f"expected an integer as key, got {_shown(key)}")
    return int(key)


def _shown(key: object) -> str:
    text = repr(key)
    return text if len(text) <= 40 else f"{text[:37]}..."


class UnionShape(Shape):
    """A union whose members differ in JSON kind, or are structs told apart by their tag (SER-01)."""

    def __init__(self, name: str, members: Sequence[Shape], by_kind: dict[str, Shape]) -> None:
        self.name = name
        self.kinds = frozenset(by_kind)
        self.classes = tuple(cls for member in members for cls in member.classes)
        self._by_class = {cls: member for member in members for cls in member.classes}
        self._by_kind = by_kind

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        member = self._by_class.get(type(value))
        if member is None:
            # An int where only float is declared: the float shape knows whether it fits.
            member = self._by_class.get(float) if type(value) is int else None
            if member is None:
                raise self.wrong_class(value)
        return member.lower(value, workdir)

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        member = self._by_kind.get(kind_of(raw))
        if member is None:
            raise self.wrong_kind(raw)
        return member.lift(raw, workdir)


class TaggedShape(Shape):
    """Several tagged structs: the tag says which."""

    kinds = frozenset({"object"})

    def __init__(self, tag_field: str, by_tag: dict[str | int, Shape]) -> None:
        self.name = " | ".join(member.name for member in by_tag.values())
        self.classes = tuple(cls for member in by_tag.values() for cls in member.classes)
        self._by_class = {cls: member for member in by_tag.values() for cls in member.classes}
        self._tag_field, self._by_tag = tag_field, by_tag

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        member = self._by_class.get(type(value))
        if member is None:
            raise self.wrong_class(value)
        return member.lower(value, workdir)

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        if type(raw) is not dict:
            raise self.wrong_kind(raw)
        tag: Any = raw.get(self._tag_field)
        member = self._by_tag.get(tag) if type(tag) in (str, int) else None
        if member is None:
            raise MisfitError(f"expected one of {sorted(map(str, self._by_tag))}, got {_shown(tag)}").within(
                f".{self._tag_field}"
            )
        return member.lift(raw, workdir)
