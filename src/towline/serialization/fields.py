"""Shapes of types with named fields: dataclasses, attrs classes, msgspec Structs, TypedDicts, pydantic models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.serialization.misfit import MisfitError
from towline.serialization.shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import PurePath

_OBJECT = frozenset({"object"})


class FieldShape(msgspec.Struct, frozen=True):
    """One field: its name in Python, in JSON and in the constructor (``None``: set after it)."""

    name: str
    key: str
    argument: str | None
    shape: Shape
    required: bool


class RecordShape(Shape):
    """A dataclass, attrs class or msgspec Struct.

    Read values are made by the class's own constructor, so its checks run. A field that is left out takes
    its default; an unknown one is refused, unless the type is a Struct that does not forbid them (SER-10).
    """

    kinds = _OBJECT

    def __init__(
        self, cls: type, name: str, *, tag: tuple[str, str | int] | None = None, ignores_unknown: bool = False
    ) -> None:
        self.classes, self.name, self._cls = (cls,), name, cls
        self.tag = tag
        self._ignores_unknown = ignores_unknown
        self.fields: Sequence[FieldShape] = ()

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is not self._cls:
            raise self.wrong_class(value)
        lowered: dict[str, Any] = {} if self.tag is None else {self.tag[0]: self.tag[1]}
        name = ""
        try:
            for field in self.fields:
                name = field.name
                lowered[field.key] = field.shape.lower(getattr(value, name), workdir)
        except MisfitError as misfit:
            misfit.within(f".{name}")
            raise
        except AttributeError:
            raise MisfitError("was never set").within(f".{name}") from None
        return lowered

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        if type(raw) is not dict:
            raise self.wrong_kind(raw)
        if self.tag is not None and raw.get(self.tag[0]) != self.tag[1]:
            raise MisfitError(f"expected {self.tag[1]!r}").within(f".{self.tag[0]}")
        arguments: dict[str, Any] = {}
        later: dict[str, Any] = {}
        known = 0 if self.tag is None else 1
        for field in self.fields:
            if field.key not in raw:
                if field.required:
                    raise MisfitError("is missing").within(f".{field.key}")
                continue
            known += 1
            try:
                lifted = field.shape.lift(raw[field.key], workdir)
            except MisfitError as misfit:
                misfit.within(f".{field.key}")
                raise
            if field.argument is None:
                later[field.name] = lifted
            else:
                arguments[field.argument] = lifted
        if known < len(raw) and not self._ignores_unknown:
            raise _unknown(raw, {field.key for field in self.fields} | ({self.tag[0]} if self.tag else set()))
        value = construct(self._cls, self.name, arguments)
        for name, lifted in later.items():
            object.__setattr__(value, name, lifted)
        return value


def construct(build: Callable[..., Any], name: str, arguments: dict[str, Any]) -> Any:
    """Call a user's constructor; whatever it raises means that the document is not such a value."""
    try:
        return build(**arguments)
    except Exception as error:
        raise MisfitError(f"{name} refused it: {type(error).__name__}: {error}") from error


def _unknown(raw: dict[str, Any], known: set[str]) -> MisfitError:
    extra = sorted(raw.keys() - known)
    return MisfitError("is unknown").within(f".{extra[0]}") if extra else MisfitError("holds unknown fields")


class TypedDictShape(Shape):
    """A ``TypedDict``: an object with known keys, some of which may be absent."""

    kinds, classes = _OBJECT, (dict,)

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: dict[str, FieldShape] = {}

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is not dict:
            raise self.wrong_class(value)
        return self._walk(value, lambda shape, item: shape.lower(item, workdir))

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        if type(raw) is not dict:
            raise self.wrong_kind(raw)
        return self._walk(raw, lambda shape, item: shape.lift(item, workdir))

    def _walk(self, given: dict[str, Any], change: Callable[[Shape, Any], Any]) -> dict[str, Any]:
        for field in self.fields.values():
            if field.required and field.key not in given:
                raise MisfitError("is missing").within(f"[{field.key!r}]")
        walked = {}
        for key, item in given.items():
            known = self.fields.get(key) if type(key) is str else None
            if known is None:
                raise MisfitError("is unknown").within(f"[{key!r}]")
            try:
                walked[key] = change(known.shape, item)
            except MisfitError as misfit:
                misfit.within(f"[{key!r}]")
                raise
        return walked


class ModelShape(Shape):
    """A pydantic model, which knows its own JSON; it is read back once to see that nothing is lost (SER-04)."""

    kinds = _OBJECT

    def __init__(self, cls: Any) -> None:
        self.classes, self.name, self._cls = (cls,), cls.__qualname__, cls

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is not self._cls:
            raise self.wrong_class(value)
        try:
            text = value.model_dump_json(round_trip=True, by_alias=True)
            again = self._cls.model_validate_json(text)
        except Exception as error:
            raise MisfitError(f"{self.name} does not survive JSON: {error}") from error
        if again != value:
            raise MisfitError(f"{self.name} does not survive JSON: it comes back as {again!r}"[:400])
        return msgspec.Raw(text.encode())

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        if type(raw) is not dict:
            raise self.wrong_kind(raw)
        try:
            return self._cls.model_validate_json(msgspec.json.encode(raw))
        except Exception as error:
            raise MisfitError(f"{self.name} refused it: {error}") from error
