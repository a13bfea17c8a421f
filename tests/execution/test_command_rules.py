"""Pure rules of commands: environment, arguments, output, process tables, and what Windows asks for."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.errors.commands import (
    CommandFailedError,
    CommandNotFoundError,
    CommandTimeoutError,
    UnsafeArgumentError,
)
from towline.errors.running import ModuleTimeoutError, ProcessDiedError, SchedulerStuckError, TooManyAbandonedError
from towline.execution.command_output import LINE_LIMIT, CappedOutput, LineSplitter, tail_of
from towline.execution.command_rules import (
    arguments_of,
    command_environment,
    refuse_unsafe_arguments,
    windows_program,
)
from towline.execution.trees import Process, members, parse_ps, parse_stat
from towline.testing import clause


def same(text: str) -> str:
    return text


@clause("CMD-01")
def test_arguments_are_texts_and_paths_and_nothing_else() -> None:
    """A number or a list is a mistake that a shell would hide."""
    assert arguments_of(("ls", Path("a"), "-l")) == ("ls", "a", "-l")
    with pytest.raises(TypeError, match="argument 1 is int"):
        arguments_of(("sleep", 3))
    with pytest.raises(ValueError, match="needs a program"):
        arguments_of(())


@clause("CMD-02")
def test_tokens_of_towline_do_not_reach_commands() -> None:
    """A build script must not be able to read the coordinator's token; what the caller names goes through."""
    node = {
        "PATH": "/bin",
        "TOWLINE_TOKEN": "t",
        "TOWLINE_HUB_PASSWORD": "p",
        "TOWLINE_COORDINATOR": "redis://:pw@host",
        "TOWLINE_STATE": "s3://bucket",
        "TOWLINE_SOMETHING": "https://user:pw@host",
        "TOWLINE_PARALLEL": "4",
        "MY_TOKEN": "mine",
        "GONE": "x",
    }

    environment = command_environment(node, {"GONE": None, "NEW": "1", "TOWLINE_TOKEN": "given"})

    assert environment == {
        "PATH": "/bin",
        "TOWLINE_PARALLEL": "4",
        "MY_TOKEN": "mine",
        "NEW": "1",
        "TOWLINE_TOKEN": "given",
    }


@clause("CMD-05")
def test_windows_programs_are_found_through_pathext() -> None:
    """``npm`` is ``npm.cmd`` there; asking for the bare name fails."""
    files = {r"C:\node\npm.CMD", r"C:\tools\git.EXE", r"D:\x\run.exe"}
    found = [
        windows_program(name, r"C:\node;C:\tools\;", ".COM;.EXE;.CMD", files.__contains__)
        for name in ("npm", "git", r"D:\x\run.exe", "git.EXE", "nothing")
    ]

    assert found == [r"C:\node\npm.CMD", r"C:\tools\git.EXE", r"D:\x\run.exe", r"C:\tools\git.EXE", None]


@clause("CMD-05")
@pytest.mark.parametrize("character", list('"%&|<>^!\r\n'))
def test_a_batch_file_gets_no_argument_that_cmd_would_interpret(character: str) -> None:
    """No quoting is safe there, so such a call is refused by name."""
    with pytest.raises(UnsafeArgumentError) as refused:
        refuse_unsafe_arguments("build.CMD", ["fine", f"a{character}b"])

    assert (refused.value.position, refused.value.character) == (2, character)
    refuse_unsafe_arguments("build.exe", [f"a{character}b"])


@clause("CMD-07", "CMD-11")
def test_lines_end_at_line_feeds_and_carriage_returns() -> None:
    """A progress bar is many lines, CRLF is one end wherever it is cut, bytes that are no text show."""
    splitter = LineSplitter("utf-8", same)

    lines = [
        *splitter.feed(b"one\r"),
        *splitter.feed(b"\ntwo\rthr"),
        *splitter.feed(b"ee\n\xff\nrest"),
        *splitter.end(),
    ]

    assert lines == ["one", "two", "three", "\\xff", "rest"]


@clause("CMD-07")
@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab\r\né", max_size=60), st.lists(st.integers(0, 80), max_size=6))
def test_lines_do_not_depend_on_how_the_stream_is_cut(text: str, cuts: list[int]) -> None:
    """Chunks come as the kernel likes."""
    data = text.encode()
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    whole, parts = LineSplitter("utf-8", same), LineSplitter("utf-8", same)

    cut = [line for a, b in pairwise(edges) for line in parts.feed(data[a:b])] + parts.end()

    assert cut == whole.feed(data) + whole.end()


@clause("CMD-07", "SEC-05")
def test_an_endless_line_is_split_without_cutting_a_secret() -> None:
    """A secret across the split would be shown in two halves."""
    secret = "s3cret" * 10
    splitter = LineSplitter("utf-8", lambda text: text.replace(secret, "***"))
    text = "x" * (LINE_LIMIT - 20) + secret + "y" * LINE_LIMIT * 2

    lines = [line for at in range(0, len(text), 1000) for line in splitter.feed(text[at : at + 1000].encode())]
    lines += splitter.end()

    assert "".join(lines) == text.replace(secret, "***")
    assert max(map(len, lines)) <= LINE_LIMIT


@clause("CMD-08")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_captured_output_keeps_the_first_and_the_last_half(chunks: list[bytes]) -> None:
    """The beginning says what was called, the end why it failed."""
    kept = CappedOutput(limit_bytes=20)
    for chunk in chunks:
        kept.feed(chunk)
    whole = b"".join(chunks)

    if len(whole) <= 20:
        assert (kept.value(), kept.truncated) == (whole, False)
    else:
        left_out = len(whole) - 20
        assert kept.value() == whole[:10] + b"\n[... %d bytes left out ...]\n" % left_out + whole[-10:]
        assert kept.truncated


def test_the_tail_is_the_last_40_lines() -> None:
    """Enough to see a traceback."""
    assert tail_of("\n".join(str(n) for n in range(100))).split("\n") == [str(n) for n in range(60, 100)]


@clause("CMD-06", "RUN-33")
def test_a_tree_is_its_session_and_all_that_descends_from_it() -> None:
    """Leaving the session does not help while an ancestor is known; another session is nobody's business."""
    table = [
        Process(10, 1, 10, "a"),
        Process(11, 10, 10, "a"),
        Process(12, 11, 12, "a"),
        Process(13, 12, 12, "a"),
        Process(14, 1, 10, "a"),
        Process(15, 7, 15, "a"),
        Process(16, 99, 99, "a"),
    ]

    assert {row.pid for row in members(10, table)} == {10, 11, 12, 13, 14}
    assert {row.pid for row in members(10, [*table, Process(7, 1, 7, "a")], known=[7])} == {7, 10, 11, 12, 13, 14, 15}


def test_process_tables_of_both_kinds_are_read() -> None:
    """Names with blanks and brackets must not shift the fields; zombies are dead."""
    stat = "7 (a) b (c)) S 1 2 3 0 -1 4 5 6 7 8 9 10 11 12 13 14 15 16 777 18"
    assert parse_stat(stat) == Process(7, 1, 3, "777")
    assert parse_stat(stat.replace(" S ", " Z ")) is None
    listed = "  7     1     3 S    Mon Nov 30 16:00:00 2026\n 8 7 3 Z+ Mon Nov 30 16:00:00 2026\n"
    assert parse_ps(listed) == [Process(7, 1, 3, "Mon Nov 30 16:00:00 2026")]


@pytest.mark.parametrize(
    "error",
    [
        CommandFailedError(("git", "push"), 128, "/w", "no remote"),
        CommandTimeoutError(("sleep", "9"), 1.5, "/w", ""),
        CommandNotFoundError("git", "program", "/bin"),
        CommandNotFoundError("git", "cwd", "/nowhere"),
        UnsafeArgumentError("a.bat", 2, "%"),
        ModuleTimeoutError("build", 3.0, 2, "abandoned", "a.py:3 in f"),
        ModuleTimeoutError("build", 3.0, 2, "killed"),
        TooManyAbandonedError(8, (("build", "a.py:3 in f"),)),
        ProcessDiedError("build", "SIGKILL, perhaps out of memory", "tail"),
        SchedulerStuckError((("a", "waits for b"),)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_say_what_happened_and_rebuild_from_their_args(error: Exception) -> None:
    """They cross processes as their arguments."""
    again = type(error)(*error.args)

    assert str(again) == str(error)
    first = error.args[0]
    while isinstance(first, tuple):
        first = first[0]
    assert str(first) in str(error)
