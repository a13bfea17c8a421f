"""From an error to the message that a tired operator reads, and to an exit code (CLI-06, CLI-12)."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

from towline.errors.root import TowlineError

if TYPE_CHECKING:
    import click

DEBUG_VARIABLE = "TOWLINE_DEBUG"


def exit_code_of(error: BaseException) -> int:
    """Write what went wrong to standard error and return the exit code.

    A user's mistake gets its text alone; with ``TOWLINE_DEBUG=1``, and for an internal error always, the
    traceback comes too.
    """
    if isinstance(error, KeyboardInterrupt):
        say("towline: interrupted.")
        return 130
    if isinstance(error, TowlineError):
        if os.environ.get(DEBUG_VARIABLE) == "1":
            traceback.print_exception(error, file=sys.stderr)
        say(f"towline: {error}")
        return error.exit_code
    traceback.print_exception(error, file=sys.stderr)
    say(
        f"towline: internal error: {type(error).__name__}: {error}. This is a bug of Towline: report it with the lines above."
    )
    return 70


def usage_text(error: click.ClickException) -> str:
    """Say what is wrong with a call, and where to read on."""
    message = error.format_message().rstrip(".")
    where = getattr(error, "ctx", None)
    path = where.command_path if where is not None else "towline"
    end = "" if message.endswith(("?", "?)")) else "."
    return f"towline: {message}{end} See '{path} --help'."


def say(text: str) -> None:
    """Write a line for people to standard error, whatever characters that can show."""
    from towline.views.streams import write_lines

    write_lines(sys.stderr, text.split("\n"))
