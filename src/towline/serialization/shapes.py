"""How one declared type is written as JSON and read back: the leaves (SER-01, SER-04, SER-06, SER-08).

A *shape* stands for a type. It lowers a value to what msgspec writes, and lifts what msgspec read; both
check as they go, for msgspec itself writes whatever it is given. Containers and records are shapes
made of shapes; ``typing_forms`` picks the shape of a type.
"""

from __future__ import annotations

import math
from base64 import b64encode
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from towline.serialization.misfit import MisfitError

if TYPE_CHECKING:
    from pathlib import PurePath

TEXT: frozenset[str] = frozenset({"text"})
"""The JSON kinds are ``null``, ``bool``, ``int``, ``float``, ``text``, ``array`` and ``object``."""

_INT_LIMIT = 10**4000
_KINDS = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "text",
    list: "array",
    dict: "object",
}


def kind_of(raw: object) -> str:
    """Name the JSON kind of something that msgspec read."""
    return _KINDS[type(raw)]


def class_name(cls: type) -> str:
    """Name a class for people: built-in ones and those of the program without their module's path."""
    return "None" if cls is type(None) else cls.__qualname__.rpartition("<locals>.")[2]


class Shape:
    """Writes and reads the values of one declared type."""

    kinds: frozenset[str] = frozenset()
    """What its values can be in JSON; a union needs them apart."""
    classes: tuple[type, ...] = ()
    """The classes of its values, exactly: a subclass would come back as another type (SER-04)."""
    name: str = ""

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        """Return what msgspec shall write for the value; raises ``MisfitError``."""
        raise NotImplementedError

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        """Return the value for what msgspec read; raises ``MisfitError``."""
        raise NotImplementedError

    def wrong_class(self, value: object) -> MisfitError:
        """The error of a value that is of another class."""
        actual = class_name(type(value))
        return MisfitError(f"is {actual}", declared=self.name, actual=actual)

    def wrong_kind(self, raw: object) -> MisfitError:
        """The error of a document that holds another kind of JSON."""
        return MisfitError(f"expected {self.name}, got {kind_of(raw)}")


class ExactShape(Shape):
    """``None`` and ``bool``: the value is its own form."""

    def __init__(self, cls: type) -> None:
        self.classes, self.name = (cls,), class_name(cls)
        self.kinds = frozenset({_KINDS[cls]})
        self._cls = cls

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is not self._cls:
            raise self.wrong_class(value)
        return value

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        if type(raw) is not self._cls:
            raise self.wrong_kind(raw)
        return raw


class IntShape(ExactShape):
    """Integers, exact up to 4,000 digits (SER-06)."""

    def __init__(self) -> None:
        super().__init__(int)

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is not int:
            raise self.wrong_class(value)
        if not -_INT_LIMIT < value < _INT_LIMIT:
            raise MisfitError("is an integer of more than 4,000 digits")
        return value


class StrShape(ExactShape):
    """Text that is valid UTF-8; a lone surrogate has no place in JSON (SER-08)."""

    def __init__(self) -> None:
        super().__init__(str)

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is not str:
            raise self.wrong_class(value)
        if not value.isascii():
            check_text(value)
        return value


def check_text(value: str) -> None:
    """Refuse text that UTF-8 cannot hold."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise MisfitError(f"holds a lone surrogate at index {error.start}, which UTF-8 cannot carry") from None


class FloatShape(Shape):
    """Floats; msgspec would silently write NaN and infinities as null, so they are words (SER-06).

    An ``int`` of equal value is taken, as type checkers do; it comes back as a float.
    """

    kinds = frozenset({"float", "int", "text"})
    classes = (float,)
    name = "float"
    _WORDS: ClassVar[dict[str, float]] = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is float:
            if math.isfinite(value):
                return value
            return "nan" if value != value else "inf" if value > 0 else "-inf"
        if type(value) is int and -(2**53) <= value <= 2**53:
            return float(value)
        raise self.wrong_class(value)

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        if type(raw) is float:
            return raw
        if type(raw) is int:
            return float(raw)
        if type(raw) is str and raw in self._WORDS:
            return self._WORDS[raw]
        raise self.wrong_kind(raw)


class FiniteShape(FloatShape):
    """A float next to text or an int in a union: there NaN would be text, and an int is an int."""

    kinds = frozenset({"float"})

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is not float:
            raise self.wrong_class(value)
        if not math.isfinite(value):
            raise MisfitError(f"is {value}, which cannot be told from text here; declare float alone")
        return value


class BytesShape(Shape):
    """``bytes`` as base64."""

    kinds, classes, name = TEXT, (bytes,), "bytes"

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is not bytes:
            raise self.wrong_class(value)
        return b64encode(value).decode("ascii")

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        return _read_text(raw, bytes, self)


class NativeTextShape(Shape):
    """What msgspec writes as text and reads back equal: dates, times, durations, UUID, Decimal."""

    kinds = TEXT

    def __init__(self, cls: type) -> None:
        self.classes, self.name, self._cls = (cls,), class_name(cls), cls

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is not self._cls:
            raise self.wrong_class(value)
        return msgspec.to_builtins(value)

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        return _read_text(raw, self._cls, self)


class MomentShape(NativeTextShape):
    """``datetime`` and ``time``: with offset, or naive without; ``fold`` is dropped, as ``==`` does.

    Offsets of split minutes would be rounded, so they are refused.
    """

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) not in self.classes:
            raise self.wrong_class(value)
        offset = value.utcoffset()
        if offset is None and value.tzinfo is not None:
            raise MisfitError(f"has a time zone without a fixed offset, {value.tzinfo}")
        if offset is not None and (offset.seconds % 60 or offset.microseconds):
            raise MisfitError(f"has the offset {offset}, which is no whole minute")
        return msgspec.to_builtins(value)


def _read_text(raw: object, cls: type, shape: Shape) -> Any:
    if type(raw) is not str:
        raise shape.wrong_kind(raw)
    try:
        return msgspec.convert(raw, cls)
    except msgspec.ValidationError as error:
        raise MisfitError(f"{str(error)[0].lower()}{str(error)[1:]}") from None


class ChoiceShape(Shape):
    """An enum or a ``Literal``: a fixed list of values, each with a form of its own."""

    def __init__(self, name: str, forms: dict[Any, str | int | bool | None]) -> None:
        self.name = name
        self.classes = tuple({type(value) for value in forms})
        self.kinds = frozenset(_KINDS[type(form)] for form in forms.values())
        # Keys with their types, for True equals 1 and a StrEnum member its text.
        self._forms = {(type(value), value): form for value, form in forms.items()}
        self._values = {(type(form), form): value for value, form in forms.items()}

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        try:
            return self._forms[type(value), value]
        except (KeyError, TypeError):
            if type(value) in self.classes:
                raise MisfitError(f"is {value!r}, not one of {self.name}") from None
            raise self.wrong_class(value) from None

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        try:
            return self._values[type(raw), raw]
        except (KeyError, TypeError):
            raise MisfitError(f"expected {self.name}, got {str(raw)[:40]!r}") from None


class FlagShape(Shape):
    """A ``Flag`` enum, whose values combine: its number."""

    kinds = frozenset({"int"})

    def __init__(self, cls: Any) -> None:
        self.classes, self.name, self._cls = (cls,), class_name(cls), cls

    def lower(self, value: Any, workdir: PurePath | None) -> Any:
        if type(value) is not self._cls:
            raise self.wrong_class(value)
        return value.value

    def lift(self, raw: Any, workdir: PurePath | None) -> Any:
        if type(raw) is not int:
            raise self.wrong_kind(raw)
        try:
            return self._cls(raw)
        except ValueError:
            raise MisfitError(f"expected {self.name}, got {raw}") from None
