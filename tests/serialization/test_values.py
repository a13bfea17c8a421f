"""Values go out and come back as declared, or are refused with the place in them."""

from __future__ import annotations

import dataclasses
import enum
import math
import typing
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from towline.errors import ResultTooLargeError, ResultTypeError, SerializationError
from towline.masking import Secret
from towline.serialization import check_type, check_value, codec_for, decode_record
from towline.serialization.paths import path_from, path_text
from towline.testing import clause


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shape(enum.Enum):
    DOT = (1, 1)
    LINE = (1, 2)


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class File:
    name: str
    size: int
    path: Path = Path("x")


@dataclasses.dataclass(frozen=True)
class BigFile(File):
    parts: int = 1


@dataclasses.dataclass
class Wheel:
    files: list[File]
    built_at: datetime
    next: Wheel | None = None
    ratio: float = 0.5
    count: int = dataclasses.field(init=False, default=0)


@attrs.define
class Tag:
    _name: str
    weight: float = 1.0


class Release(pydantic.BaseModel):
    version: str
    at: datetime
    sizes: dict[str, int] = {}


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    anything: typing.Any


class Push(msgspec.Struct, tag="push"):
    branch: str


class Pull(msgspec.Struct, tag="pull", rename="camel"):
    from_branch: str


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    a: int


class Point(typing.NamedTuple):
    x: float
    y: float


class Row(typing.TypedDict):
    id: int
    note: typing.NotRequired[str]


T = typing.TypeVar("T")


@dataclasses.dataclass
class Page(typing.Generic[T]):
    items: list[T]


@dataclasses.dataclass
class Numbers(Page[int]):
    total: int


UserId = typing.NewType("UserId", int)
NOW = datetime(2026, 3, 1, 10, 0, tzinfo=timezone(timedelta(hours=2)))

VALUES: list[tuple[object, object, str]] = [
    (None, None, "null"),
    (bool, True, "true"),
    (int, 7, "7"),
    (float, 1.5, "1.5"),
    (str, "ü", '"ü"'),
    (bytes, b"\x00a", '"AGE="'),
    (Decimal, Decimal("1.10"), '"1.10"'),
    (UUID, UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
    (date, date(2026, 3, 1), '"2026-03-01"'),
    (time, time(10, 30), '"10:30:00"'),
    (datetime, NOW, '"2026-03-01T10:00:00+02:00"'),
    (datetime, datetime(2026, 3, 1), '"2026-03-01T00:00:00"'),
    (timedelta, timedelta(days=1, seconds=2), '"P1DT2S"'),
    (Path, Path("a/b"), '"a/b"'),
    (Color, Color.RED, '"red"'),
    (Level, Level.HIGH, "2"),
    (Shape, Shape.LINE, '"LINE"'),
    (Rights, Rights.READ | Rights.WRITE, "3"),
    (typing.Literal["a", 1, None], 1, "1"),
    (UserId, 5, "5"),
    (typing.Annotated[int, "meta"], 5, "5"),
    (list[int], [1, 2], "[1,2]"),
    (tuple[int, ...], (1, 2), "[1,2]"),
    (tuple[int, str], (1, "a"), '[1,"a"]'),
    (tuple[()], (), "[]"),
    (set[str], {"b", "a"}, '["a","b"]'),
    (frozenset[int], frozenset({3}), "[3]"),
    (dict[str, int], {"b": 1, "a": 2}, '{"b":1,"a":2}'),
    (dict[int, tuple[str, date]], {1: ("a", date(2026, 3, 1))}, '{"1":["a","2026-03-01"]}'),
    (dict[Color, int], {Color.BLUE: 1}, '{"blue":1}'),
    (dict[tuple[int, int], str], {(1, 2): "a"}, '[[[1,2],"a"]]'),
    (Row, {"id": 1}, '{"id":1}'),
    (Point, Point(1.0, 2.0), "[1.0,2.0]"),
    (File, File("a", 1), '{"name":"a","size":1,"path":"x"}'),
    (Tag, Tag("t"), '{"_name":"t","weight":1.0}'),
    (Push, Push("main"), '{"type":"push","branch":"main"}'),
    (Pull, Pull("main"), '{"type":"pull","fromBranch":"main"}'),
    (Release, Release(version="1", at=NOW), '{"version":"1","at":"2026-03-01T10:00:00+02:00","sizes":{}}'),
    (Page[Path], Page([Path("a")]), '{"items":["a"]}'),
    (Numbers, Numbers([1], 1), '{"items":[1],"total":1}'),
    (int | None, None, "null"),
    (int | str | list[int], [1], "[1]"),
    (Push | Pull | None, Pull("x"), '{"type":"pull","fromBranch":"x"}'),
    (
        Wheel,
        Wheel([File("a", 1)], NOW, Wheel([], NOW)),
        '{"files":[{"name":"a","size":1,"path":"x"}],"built_at":"2026-03-01T10:00:00+02:00","next":{"files":[],'
        '"built_at":"2026-03-01T10:00:00+02:00","next":null,"ratio":0.5,"count":0},"ratio":0.5,"count":0}',
    ),
]
"""Declared type, value, and its JSON: golden, for results are read by later versions."""


@clause("SER-01")
@pytest.mark.parametrize(("declared", "value", "text"), VALUES, ids=[str(row[0])[-30:] + row[2][:12] for row in VALUES])
def test_every_type_comes_back_as_it_was(declared: object, value: object, text: str) -> None:
    """A module behaves the same whether its input came by reference or over a wire."""
    codec = codec_for(declared)

    data = codec.encode(value)
    again = codec.decode(data)

    assert data.decode() == text
    assert again == value
    assert type(again) is type(value)


@clause("SER-02")
@pytest.mark.parametrize(
    ("declared", "path", "words"),
    [
        (typing.Any, "result", "Annotate"),
        (object, "result", "path, artifact or buffer"),
        (dict[str, list[typing.Any]], "result[][]", "Any"),
        (list, "result", "Say of what"),
        (typing.Sequence[int], "result", "list"),
        (complex, "result", "no JSON form"),
        (Page, "result.items[]", "T"),
        (File | Tag, "result", "look the same in JSON"),
        (Color | str, "result", "look the same in JSON"),
        (tuple[int, Secret], "result[1]", "Secret"),
        (Loose, "result", "Loose"),
        (typing.TextIO, "result", "TextIO"),
    ],
)
def test_a_type_without_json_form_is_refused_by_its_path(declared: object, path: str, words: str) -> None:
    """The plan is refused before anything runs, not the task after an hour of work."""
    if declared is Loose:
        check_type(declared)  # its field is Any to pydantic, which decides by value
        with pytest.raises(SerializationError, match="does not survive"):
            codec_for(Loose).encode(Loose(anything={1, 2}))
        return
    with pytest.raises(ResultTypeError) as caught:
        check_type(declared)

    assert caught.value.path == path
    assert words in str(caught.value)
    assert "'build'" in str(caught.value.for_module("build"))


def test_unreadable_records_are_refused_when_the_plan_is_built() -> None:
    """A dataclass that cannot be made from its fields would fail only where its result is read."""

    @dataclasses.dataclass
    class Seeded:
        a: int
        seed: dataclasses.InitVar[int]

    @dataclasses.dataclass
    class Local:
        a: Missing  # noqa: F821 - on purpose

    with pytest.raises(ResultTypeError, match="InitVar"):
        check_type(Seeded)
    with pytest.raises(ResultTypeError, match="TYPE_CHECKING"):
        check_type(list[Local])


@clause("SER-04")
@pytest.mark.parametrize(
    ("declared", "value", "path", "actual"),
    [
        (int, True, "value", "bool"),
        (int, Level.LOW, "value", "Level"),
        (str, Color.RED, "value", "Color"),
        (float, True, "value", "bool"),
        (float, 2**60, "value", "int"),
        (date, NOW, "value", "datetime"),
        (list[File], [File("a", 1), BigFile("b", 2)], "value[1]", "BigFile"),
        (dict[str, list[int]], {"a": [1, "2"]}, "value['a'][1]", "str"),
        (Wheel, Wheel([File("a", 1.0)], NOW), "value.files[0].size", "float"),  # type: ignore[arg-type]
        (tuple[int, ...], [1], "value", "list"),
        (set[int], {1, "a"}, "value[*]", "str"),
        (int | None, "a", "value", "str"),
        (Push | Pull, Strict(1), "value", "Strict"),
    ],
)
def test_a_value_of_another_class_is_refused_where_it_stands(
    declared: object, value: object, path: str, actual: str
) -> None:
    """What would be lost or changed on the way is an error at its producer, never a surprise at its reader."""
    with pytest.raises(ResultTypeError) as caught:
        codec_for(declared).encode(value)

    assert (caught.value.path, caught.value.actual) == (path, actual)


@clause("SER-05")
def test_none_is_a_value_only_if_declared() -> None:
    """A forgotten ``return`` is the most common wrong result; it is told in every mode, without encoding."""
    for declared, value in [(Wheel, None), (list[int], (1,)), (None, 1), (int | None, "a"), (UserId, "a"), (Row, 1)]:
        with pytest.raises(ResultTypeError):
            check_value(declared, value, "build")
    with pytest.raises(ResultTypeError, match=r"'build' returned None but declares Wheel"):
        check_value(Wheel, None, "build")
    for declared, value in [
        (None, None),
        (typing.Any, object()),
        (float, 1),
        (File, BigFile("a", 1)),
        (Path, Path()),
        (list[int] | None, None),
        (typing.Literal["a"], "b"),
        (T, 1),
        (typing.Annotated[int, []], 1),
        (Row, {}),
    ]:
        check_value(declared, value)


@clause("SER-06")
def test_numbers_keep_their_value() -> None:
    """JSON has no NaN and many readers no large integers; both come back exactly."""
    floats = codec_for(list[float])

    assert floats.encode([math.nan, math.inf, -math.inf, -0.0, 1e300, 3]) == b'["nan","inf","-inf",-0.0,1e300,3.0]'
    assert math.isnan(floats.decode(b'["nan"]')[0])
    assert math.copysign(1, floats.decode(b"[-0.0]")[0]) == -1
    assert codec_for(int).decode(codec_for(int).encode(10**3999 + 1)) == 10**3999 + 1
    with pytest.raises(SerializationError, match="4,000 digits"):
        codec_for(int).encode(10**4000)
    with pytest.raises(SerializationError, match="cannot be told from text"):
        codec_for(float | str).encode(math.nan)
    assert codec_for(float | str).decode(b'"nan"') == "nan"


@clause("SER-06")
def test_equal_sets_have_equal_bytes() -> None:
    """Digests of values decide about cache hits; the order of a set is an accident of hashing."""
    codec = codec_for(set[tuple[str, int]])

    assert codec.encode({("b", 1), ("a", 2)}) == codec.encode({("a", 2), ("b", 1)}) == b'[["a",2],["b",1]]'


@clause("SER-06")
def test_moments_that_would_be_rounded_are_refused() -> None:
    """JSON text has offsets in minutes; cutting seconds off would move the moment."""
    odd = timezone(timedelta(seconds=3661))

    with pytest.raises(SerializationError, match="no whole minute"):
        codec_for(datetime).encode(datetime(2026, 3, 1, tzinfo=odd))
    assert codec_for(datetime).decode(codec_for(datetime).encode(NOW.astimezone(UTC))) == NOW


@clause("SER-07")
def test_a_path_in_the_workdir_is_resolved_by_its_reader() -> None:
    """Each node has its own workdir; a path into it has to mean the reader's."""
    codec = codec_for(list[Path])
    data = codec.encode([Path("/w/a/b"), Path("a/b"), Path("/w"), Path("/other")], workdir=Path("/w"))

    assert data == b'["./a/b","a/b","./","/other"]'
    assert codec.decode(data, workdir=Path("/r")) == [Path("/r/a/b"), Path("a/b"), Path("/r"), Path("/other")]


@clause("SER-07")
def test_an_absolute_path_of_the_other_system_is_refused() -> None:
    """``C:\\x`` on Linux would quietly be a file of that name in the current folder."""
    assert path_text(PureWindowsPath("C:\\w\\a b\\c"), PureWindowsPath("c:\\W")) == "./a b/c"
    assert path_text(PurePosixPath("/W/a"), PurePosixPath("/w")) == "/W/a"
    assert path_text(PurePosixPath("/w/../etc"), PurePosixPath("/w")) == "/w/../etc"
    with pytest.raises(SerializationError, match=r"value\.path.*Windows"):
        codec_for(File).decode(b'{"name":"a","size":1,"path":"C:\\\\x"}')
    for text, windows in [("/x", True), ("C:\\x", False), ("\\\\host\\x", False)]:
        with pytest.raises(Exception, match="means nothing on this system"):
            path_from(text, None, windows=windows)


@clause("SER-08")
def test_cycles_depth_and_broken_text_end_in_an_error() -> None:
    """A value that JSON cannot hold fails its task with a place, and never the process."""
    wheel = Wheel([], NOW)
    wheel.next = wheel

    with pytest.raises(SerializationError, match="contains itself"):
        codec_for(Wheel).encode(wheel)
    with pytest.raises(SerializationError, match="nested too deeply"):
        codec_for(list[int]).decode(b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(SerializationError, match=r"value\['k'\]\[1\]: holds a lone surrogate at index 1"):
        codec_for(dict[str, list[str]]).encode({"k": ["fine", "a\ud800"]})
    with pytest.raises(SerializationError, match="surrogate"):
        codec_for(Path).encode(Path("a\udcff"))


@clause("SER-09")
def test_a_value_above_the_limit_is_refused_with_its_size() -> None:
    """A value travels with every claim of its readers; large data belongs in an artifact."""
    with pytest.raises(ResultTooLargeError, match=r"1,002 bytes.*more than 1,000.*artifact"):
        codec_for(str).encode("a" * 1000, limit_bytes=1000)


@clause("SER-10")
@pytest.mark.parametrize(
    ("declared", "data", "words"),
    [
        (
            Wheel,
            b'{"files":[{"name":"a","size":"1"}],"built_at":"2026-03-01T00:00:00"}',
            "value.files[0].size: expected",
        ),
        (Wheel, b'{"files":[]}', "value.built_at: is missing"),
        (File, b'{"name":"a","size":1,"color":2}', "value.color: is unknown"),
        (Row, b'{"id":1,"more":2}', "value['more']: is unknown"),
        (Row, b"{}", "value['id']: is missing"),
        (Strict, b'{"a":1,"b":2}', "value.b: is unknown"),
        (Point, b"[1.0]", "expected 2 items, got 1"),
        (Push | Pull, b'{"type":"force"}', "value.type: expected one of"),
        (Push, b'{"type":"pull","branch":"a"}', "value.type: expected 'push'"),
        (dict[int, str], b'{"01":"a"}', "expected an integer as key"),
        (dict[tuple[int, int], str], b"[[1]]", "value[0]: expected a pair"),
        (Color, b'"green"', "expected Color"),
        (typing.Literal["a"], b'"b"', "expected"),
        (Rights, b"64", "expected Rights"),
        (int, b"1.0", "expected int, got float"),
        (int, b"true", "expected int, got bool"),
        (date, b'"2026-13-01"', "invalid"),
        (date, b"5", "expected date, got int"),
        (Decimal, b'"1,5"', "invalid"),
        (bytes, b'"?"', "invalid"),
        (UUID, b'"x"', "invalid"),
        (Release, b'{"version":"1"}', "refused it"),
        (int | None, b"[]", "got array"),
        (int, b"[1", "is no JSON"),
        (str, b'"\xff"', "value"),
        (int, b"1" * 100_000, "value"),
    ],
)
def test_a_document_that_is_no_such_value_is_refused_by_its_path(declared: object, data: bytes, words: str) -> None:
    """Stored and received bytes may be from another version, or damaged."""
    with pytest.raises(SerializationError) as caught:
        codec_for(declared).decode(data)

    assert words in str(caught.value)


@clause("SER-10")
def test_fields_that_later_versions_add_are_taken_as_their_types_say() -> None:
    """A default fills what an older version did not write; a Struct decides itself about unknown fields."""
    assert codec_for(File).decode(b'{"name":"a","size":1}') == File("a", 1)
    assert codec_for(Push).decode(b'{"type":"push","branch":"a","more":1}') == Push("a")
    assert codec_for(dict[str, int]).decode(b'{"a":1,"a":2}') == {"a": 2}


class Assignment(msgspec.Struct):
    task_id: str
    priority: int = 0


class Feed(msgspec.Struct):
    assignments: list[Assignment]


@clause("SER-10")
def test_wire_records_ignore_unknown_fields_and_name_wrong_ones() -> None:
    """A newer peer may say more; what it says must still be of the right type."""

    assert decode_record(Feed, b'{"assignments":[{"task_id":"a"}],"new":1}') == Feed([Assignment("a")])
    with pytest.raises(SerializationError) as caught:
        decode_record(Feed, b'{"assignments":[{"task_id":"a","priority":"high"}]}', "feed")
    assert caught.value.path == "feed.assignments[0].priority"
    with pytest.raises(SerializationError, match="feed"):
        decode_record(Feed, b"[" * 100_000, "feed")


def test_a_constructor_that_refuses_is_an_error_with_a_path() -> None:
    """Checks in ``__post_init__`` run on what comes from outside, and their words reach the reader."""

    @dataclasses.dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("odd")

    with pytest.raises(SerializationError, match=r"value\[1\]: Even refused it: ValueError: odd"):
        codec_for(list[Even]).decode(b'[{"n":2},{"n":3}]')
