"""Writing to a stream of the terminal or a pipe: no character fails, no control code passes, a closed end is no error."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_WIDTH = 160
"""Columns where there is no terminal to ask (REP-13)."""

LEAST_WIDTH = 40
"""Narrower terminals get lines of this width, which they wrap."""

ASCII_FORMS = {"…": "...", "→": "->"}
"""What Towline's own symbols become on a stream that cannot show them."""


def write_lines(stream: TextIO, lines: Sequence[str]) -> bool:
    """Write lines; control characters in them are shown as escapes.

    Returns:
        Whether the stream still takes text. A closed end (``| head``) or a full disk ends the printing, not the
        run (REP-13).
    """
    return write_raw(stream, "".join(harmless(line) + "\n" for line in lines))


def write_raw(stream: TextIO, text: str) -> bool:
    """Write a text as it is, control codes included; returns whether the stream still takes text.

    A device that is full ends the printing like a closed end does, and standard error says so: what is shown of
    a run never changes the run.
    """
    try:
        return write_or_fail(stream, text)
    except OSError as error:
        tell_unwritable(stream, error)
        return False


def write_or_fail(stream: TextIO, text: str) -> bool:
    """Write a text for which the caller must know whether it arrived; returns whether the other end still listens.

    Raises:
        OSError: It cannot be written, though somebody wants it: the device is full.
    """
    try:
        stream.write(fitted(text, getattr(stream, "encoding", None)))
        stream.flush()
    except (BrokenPipeError, ValueError):  # ValueError: the stream object was closed
        silence(stream)
        return False
    except OSError:
        silence(stream)
        raise
    return True


def tell_unwritable(stream: TextIO, error: OSError) -> None:
    """Say on standard error that a stream takes no more text; where that is the one that failed, nobody can."""
    told = sys.__stderr__  # not ``sys.stderr``, which may route to a task
    if told is None or stream in (told, sys.stderr):
        return
    name = getattr(stream, "name", "the output")
    write_raw(told, f"towline: {name} cannot be written any more: {error.strerror or error}. All else goes on.\n")


def fitted(text: str, encoding: str | None) -> str:
    """Replace what an encoding cannot hold: own symbols by their ASCII forms, all else by ``?``."""
    if text.isascii():
        return text
    name = encoding or "utf-8"
    try:
        text.encode(name)
    except UnicodeEncodeError:
        for symbol, form in ASCII_FORMS.items():
            text = text.replace(symbol, form)
        return text.encode(name, "replace").decode(name)
    return text


def harmless(line: str) -> str:
    """Show characters that would move the cursor, or the reading direction, as escapes; tabs stay."""
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() or one == "\t" else _escape(one) for one in line)


def _escape(one: str) -> str:
    return one.encode("unicode_escape", "surrogatepass").decode("ascii")


def silence(stream: TextIO) -> None:
    """Send what is still buffered for a closed stream nowhere, or the interpreter would complain at its end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return  # not a stream of the system: nothing complains about it


def width_of(stream: TextIO, environ: Mapping[str, str]) -> int:
    """Columns of ``COLUMNS``, or of the terminal, or 160."""
    if environ.get("COLUMNS", "").isdigit():
        return max(LEAST_WIDTH, int(environ["COLUMNS"]))
    try:
        if stream.isatty():
            return max(LEAST_WIDTH, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        return DEFAULT_WIDTH
    return DEFAULT_WIDTH
