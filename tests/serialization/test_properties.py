"""Round trips over types and values that nobody thought of, and bytes that nobody meant."""

from __future__ import annotations

import dataclasses
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from towline.errors import ResultTypeError, SerializationError
from towline.serialization import codec_for
from towline.serialization.codec import Codec
from towline.testing import clause

Sample = tuple[Any, st.SearchStrategy[Any]]
"""A type and a strategy of its values."""


@dataclasses.dataclass(frozen=True)
class Item:
    name: str
    size: float
    tags: tuple[str, ...] = ()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PATHS = st.lists(st.sampled_from(["a", "b c", "ü", "..", "C:"]), max_size=3).map(lambda parts: Path(*parts))
FLOATS = st.floats(allow_nan=False)
LEAVES: list[Sample] = [
    (None, st.none()),
    (bool, st.booleans()),
    (int, st.integers()),
    (float, FLOATS),
    (str, TEXT),
    (bytes, st.binary(max_size=8)),
    (Decimal, st.decimals(allow_nan=False)),
    (UUID, st.uuids()),
    (date, st.dates()),
    (time, st.times().map(lambda moment: moment.replace(fold=0))),
    (datetime, st.datetimes().map(lambda moment: moment.replace(fold=0))),
    (timedelta, st.timedeltas()),
    (Path, PATHS.filter(lambda path: not str(path).startswith("C:"))),
    (Item, st.builds(Item, TEXT, FLOATS, st.lists(TEXT, max_size=2).map(tuple))),
]


def containers(inner: Sample) -> st.SearchStrategy[Sample]:
    declared, values = inner
    few = st.lists(values, max_size=3)
    samples: list[Sample] = [
        (list[declared], few),
        (tuple[declared, ...], few.map(tuple)),
        (tuple[int, declared], st.tuples(st.integers(), values)),
        (dict[str, declared], st.dictionaries(TEXT, values, max_size=3)),
        (dict[int, declared], st.dictionaries(st.integers(), values, max_size=3)),
        (dict[tuple[int, str], declared], st.dictionaries(st.tuples(st.integers(), TEXT), values, max_size=3)),
    ]
    if declared is not None:
        samples.append((declared | None, values | st.none()))
    return st.sampled_from(samples)


SAMPLES = st.recursive(st.sampled_from(LEAVES), lambda inner: inner.flatmap(containers), max_leaves=4)


@clause("SER-01")
@settings(max_examples=150)
@given(SAMPLES.flatmap(lambda sample: st.tuples(st.just(sample[0]), sample[1])))
def test_any_value_of_any_type_comes_back_equal(sample: tuple[Any, Any]) -> None:
    """Types nest in ways that no table lists."""
    declared, value = sample
    codec = codec_for(declared)

    again = codec.decode(codec.encode(value))

    assert again == value
    assert repr(again) == repr(value)


@clause("SER-01")
@given(st.sets(st.integers() | TEXT), st.frozensets(st.tuples(st.integers(), FLOATS), max_size=4))
def test_sets_come_back_equal(mixed: set[int | str], pairs: frozenset[tuple[int, float]]) -> None:
    """Sets are written in an order of their own."""
    for declared, value in [(set[int | str], mixed), (frozenset[tuple[int, float]], pairs)]:
        codec = codec_for(declared)
        assert codec.decode(codec.encode(value)) == value


FUZZED: list[Codec] = [
    codec_for(declared)
    for declared in (list[Item], dict[int, Item | None], tuple[Path, date, Decimal], set[bytes], int | list[timedelta])
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "size", "tags", "1", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@clause("SER-10")
@settings(max_examples=150)
@given(st.sampled_from(FUZZED), st.binary(max_size=40) | JSON)
def test_whatever_is_decoded_gives_a_value_or_an_error_with_a_path(codec: Codec, document: object) -> None:
    """A peer can send anything; the answer is one error type, with a place."""
    import json

    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    try:
        value = codec.decode(data)
    except SerializationError as error:
        place = error.path
    else:
        place = "value"
        assert repr(codec.decode(codec.encode(value))) == repr(value)
    assert place.startswith("value")


@clause("SER-04")
@settings(max_examples=150)
@given(st.sampled_from(LEAVES[1:]), st.sampled_from(LEAVES).flatmap(lambda leaf: leaf[1]))
def test_a_value_of_any_other_class_never_slips_through(leaf: Sample, value: object) -> None:
    """Nothing is changed on the way without a word: it comes back equal and of its class, or is refused."""
    codec = codec_for(leaf[0])
    try:
        data = codec.encode(value)
    except (ResultTypeError, SerializationError):
        return
    again = codec.decode(data)
    assert again == value
    assert type(again) is type(value) or (leaf[0] is float and math.isclose(again, float(value)))  # type: ignore[arg-type]
