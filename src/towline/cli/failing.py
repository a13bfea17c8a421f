"""From an error to the message that a tired operator reads, and to an exit code (CLI-06, CLI-12)."""

from __future__ import annotations

import os
import sys
import traceback

from towline.errors.root import TowlineError

DEBUG_VARIABLE = "TOWLINE_DEBUG"


def exit_code_of(error: BaseException) -> int:
    """Write what went wrong to standard error and return the exit code.

    A user's mistake gets its text alone; with ``TOWLINE_DEBUG=1``, and for an internal error always, the
    traceback comes too.
    """
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, TowlineError):
        if os.environ.get(DEBUG_VARIABLE) == "1":
            traceback.print_exception(error, file=sys.stderr)
        say(f"towline: {error}")
        return error.exit_code
    traceback.print_exception(error, file=sys.stderr)
    say(f"towline: internal error: {type(error).__name__}: {error}. This is a bug of Towline: report it with the lines above.")
    return 70


def say(text: str) -> None:
    """Write a line for people to standard error, whatever characters that can show."""
    encoding = sys.stderr.encoding or "utf-8"
    sys.stderr.write(text.encode(encoding, "replace").decode(encoding) + "\n")
    sys.stderr.flush()
