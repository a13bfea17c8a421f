"""Errors travel as text: all of it is shown, none of it runs."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import (
    ArtifactCorruptError,
    ArtifactMissingError,
    ArtifactPackError,
    RemoteModuleError,
    ResultTooLargeError,
    ResultTypeError,
    SecretLimitError,
    SecretMissingError,
    SecretTravelError,
    SerializationError,
    TowlineError,
    UnsafeArchiveError,
)
from towline.serialization import ErrorRecord
from towline.serialization.error_text import format_record, mask_record
from towline.serialization.exceptions import DEPTH_LIMIT, NODE_LIMIT, TRACEBACK_LIMIT, rebuild, record_of
from towline.testing import clause


class ApiError(Exception):
    """Cannot be rebuilt from its ``args``: the usual reason why a remote error shows as an unpickling error."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def travelled(error: BaseException, worker_id: str | None = "w-1") -> ErrorRecord:
    """The record after a trip to another process."""
    return msgspec.json.decode(msgspec.json.encode(record_of(error, worker_id)), type=ErrorRecord)


@clause("SER-12")
def test_a_record_tells_what_a_traceback_would() -> None:
    """The operator sees the remote error as if it had happened here."""

    def fetch() -> None:
        try:
            {}["etag"]
        except KeyError as missing:
            error = ApiError("boom", status=500)
            error.add_note("second try")
            raise error from missing

    with pytest.raises(ApiError) as caught:
        fetch()

    record = travelled(caught.value)
    text = format_record(record)

    assert record.type_name.endswith("ApiError")
    assert (record.text, record.notes, record.origin_worker_id) == ("boom", ("second try",), "w-1")
    assert record.cause is not None
    assert record.cause.type_name == "KeyError"
    assert not record.context_shown
    assert __file__ in record.traceback
    assert text.index("KeyError: 'etag'") < text.index("direct cause") < text.index("ApiError: boom")
    assert "second try" in text


@clause("SER-12")
def test_context_is_shown_as_python_shows_it() -> None:
    """``raise X from None`` hides what was being handled; without it both are shown."""

    def handle(hide: bool) -> None:
        try:
            raise ValueError("first")
        except ValueError:
            if hide:
                raise TypeError("second") from None
            raise TypeError("second")  # noqa: B904 - the context is the point

    for hide in (False, True):
        with pytest.raises(TypeError) as caught:
            handle(hide)
        record = travelled(caught.value)
        assert record.context is not None
        assert record.context_shown is not hide
        assert ("first" in format_record(record)) is not hide
        assert rebuild(record).__suppress_context__ is hide


@clause("SER-12")
def test_groups_keep_their_members() -> None:
    """Several simultaneous failures are all shown."""
    record = travelled(raised(ExceptionGroup("both", [ValueError("a"), ApiError("b", status=1)])))

    again = rebuild(record)

    assert isinstance(again, ExceptionGroup)
    assert again.message == "both"
    assert [type(member) for member in again.exceptions] == [ValueError, RemoteModuleError]
    assert "1 of 2" in format_record(record)


def chain(length: int) -> Exception:
    error: Exception = ValueError("0")
    for number in range(1, length):
        outer = ValueError(str(number))
        outer.__cause__ = error
        error = outer
    return error


def depth_of(record: ErrorRecord | None) -> int:
    depth = 0
    while record is not None:
        depth, record = depth + 1, record.cause
    return depth


def count(record: ErrorRecord) -> int:
    below = [one for one in (record.cause, record.context, *record.members) if one is not None]
    return 1 + sum(map(count, below))


@clause("SER-12")
def test_what_is_too_deep_or_too_wide_is_marked_as_cut() -> None:
    """A chain of two thousand causes must not end in a recursion error while it is reported."""
    deep = travelled(chain(2_000))
    wide = travelled(ExceptionGroup("wide", [ValueError(str(number)) for number in range(1_000)]))
    looped = ValueError("loop")
    looped.__context__ = TypeError("inner")
    looped.__context__.__context__ = looped

    assert depth_of(deep) == DEPTH_LIMIT
    assert "more was cut" in format_record(deep)
    assert (count(wide), wide.cut) == (NODE_LIMIT, True)
    assert count(travelled(looped)) == 2


@clause("SER-12")
def test_texts_that_fail_or_flood_are_bounded() -> None:
    """The report of an error must not fail because of the error."""

    def recurse(depth: int) -> None:
        if depth:
            recurse(depth - 1) if depth % 2 else other(depth - 1)
        raise ValueError("x" * 1_000_000)

    def other(depth: int) -> None:
        recurse(depth)

    with pytest.raises(ValueError) as caught:
        recurse(480)
    record = travelled(caught.value)

    assert len(record.traceback.encode()) <= TRACEBACK_LIMIT
    assert "... cut ..." in record.traceback
    assert len(record.text) < 100_000
    assert travelled(MuteError()).text.endswith("MuteError")
    assert travelled(ValueError("\ud800")).text == "\\ud800"


REBUILT: list[Exception] = [
    ValueError("a"),
    KeyError("a"),
    RuntimeError("a", 1),
    LookupError(),
    NotImplementedError("a"),
    OSError("plain"),
    FileNotFoundError(errno.ENOENT, "no such file", "/x"),
    PermissionError(errno.EACCES, "denied"),
    TimeoutError("late"),
    ArtifactMissingError("wheel", "build", "nothing matched", ("publish",)),
    RecursionError("deep"),
    AssertionError("no"),
]


@clause("SER-13")
@pytest.mark.parametrize("error", REBUILT, ids=lambda error: type(error).__name__)
def test_well_known_errors_come_back_as_themselves(error: Exception) -> None:
    """``except FileNotFoundError`` works on the master as it does in one process."""
    again = rebuild(travelled(error))

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.args == error.args
    assert getattr(again, "errno", None) == getattr(error, "errno", None)


@clause("SER-13")
def test_arguments_that_are_no_text_come_as_text() -> None:
    """Only text, numbers and None are given to a constructor."""
    again = rebuild(travelled(ValueError(Path("a"), [1])))

    assert type(again) is ValueError
    assert again.args == ("(PosixPath('a'), [1])",)


@clause("SER-14")
def test_other_errors_become_remote_ones_and_forwarding_loses_nothing() -> None:
    """A worker's error reaches the user through the master, and a second hop does not wrap it again."""
    error = raised(ApiError("boom", status=500))
    error.__cause__ = KeyError("etag")
    record = travelled(error)

    first = rebuild(record)
    second = rebuild(travelled(first, "master"))

    for again in (first, second):
        assert isinstance(again, RemoteModuleError)
        assert again.type_name.endswith("ApiError")
        assert (again.text, again.worker_id) == ("boom", "w-1")
        assert __file__ in again.traceback
        assert "KeyError" in again.traceback
        assert isinstance(again.__cause__, KeyError)
    assert travelled(second, "other") == record


FORGED = [
    ErrorRecord(type_name="SystemExit", rebuilt_args=(3,)),
    ErrorRecord(type_name="os.system", rebuilt_args=("echo",)),
    ErrorRecord(type_name="eval", rebuilt_args=("1",)),
    ErrorRecord(type_name="UnicodeDecodeError", rebuilt_args=("a",)),
    ErrorRecord(type_name="KeyboardInterrupt", rebuilt_args=()),
    ErrorRecord(type_name="ArtifactMissingError", rebuilt_args=("too few",)),
    ErrorRecord(type_name="root", rebuilt_args=()),
    ErrorRecord(type_name="__builtins__", rebuilt_args=()),
    ErrorRecord(type_name="ExceptionGroup", rebuilt_args=("a",)),
    ErrorRecord(type_name="OSError", rebuilt_args=(errno.ENOENT, "a")),
    ErrorRecord(type_name="RemoteModuleError", rebuilt_args=("a", "b")),
]


@clause("SER-11", "SER-14")
@pytest.mark.parametrize("record", FORGED, ids=lambda record: record.type_name)
def test_a_forged_record_runs_nothing(record: ErrorRecord) -> None:
    """A name in a record is compared with a list; it is never imported, evaluated or called."""
    again = rebuild(record)

    assert type(again) is RemoteModuleError
    assert again.type_name == record.type_name


@given(
    st.sampled_from([*(record.type_name for record in FORGED), "ValueError", "FileNotFoundError", "TowlineError"]),
    st.none() | st.lists(st.none() | st.booleans() | st.integers() | st.text(max_size=5), max_size=5).map(tuple),
)
def test_no_arguments_of_a_record_make_rebuilding_fail(name: str, arguments: Any) -> None:
    """Whatever stands in a record, its reader gets an exception that can be shown."""
    again = rebuild(ErrorRecord(type_name=name, rebuilt_args=arguments, notes=("n",)))

    assert isinstance(again, Exception)
    assert isinstance(str(again), str)


def test_a_deeply_forged_record_is_shown_and_rebuilt() -> None:
    """No honest record is deeper than sixteen; a deeper one must not end in a recursion error."""
    record = ErrorRecord(type_name="ValueError", rebuilt_args=("0",))
    for _ in range(400):
        record = ErrorRecord(type_name="ValueError", rebuilt_args=("a",), cause=record)

    assert isinstance(rebuild(record), ValueError)
    assert "more was cut" in format_record(record)


def test_every_text_of_a_record_can_be_masked() -> None:
    """Arguments, notes and causes hold secrets as well as the text does."""
    error = ValueError("hunter2")
    error.add_note("hunter2")
    error.__cause__ = TowlineError("hunter2")

    masked = mask_record(record_of(raised(error)), lambda text: text.replace("hunter2", "***"))

    assert "hunter2" not in msgspec.json.encode(masked).decode()
    assert str(rebuild(masked)) == "***"


OWN: list[TowlineError] = [
    ArtifactMissingError("wheel", "build", "nothing matched", ("publish",)),
    ArtifactCorruptError("wheel", "build", "sha256:00", "its digest is sha256:01"),
    ArtifactPackError("wheel", "dist/x", "is a socket"),
    UnsafeArchiveError("../x", "leaves the tree"),
    ResultTypeError("build", "str", "int", "value.files[3]"),
    ResultTypeError("build", "Any", "", "result.files[]", "Annotate it."),
    ResultTooLargeError("build", 70_000_000, 67_108_864),
    SerializationError("value.files[3]", "is missing", "build"),
    SecretMissingError("TOKEN"),
    SecretLimitError("number of values", 1_001, 1_000),
    SecretTravelError("pickled"),
]


@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
def test_errors_of_values_artifacts_and_secrets_say_all_their_fields_elsewhere_too(error: TowlineError) -> None:
    """What happened, with which values, what to do: on the master as on the worker."""
    again = rebuild(travelled(error))

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again).items() >= vars(error).items()
    for field in error.args:
        assert not isinstance(field, str) or field in str(error)
