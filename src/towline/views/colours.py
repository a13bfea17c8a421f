"""Colour for plain lines, where ``FORCE_COLOR`` asks for it (REP-09). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_RESET = "\x1b[0m"
_CODES = {
    "failed": "\x1b[1;31m",
    "timed out": "\x1b[1;31m",
    "FAILED": "\x1b[1;31m",
    "TIMED OUT": "\x1b[1;31m",
    "succeeded": "\x1b[32m",
    "ok": "\x1b[32m",
    "blocked": "\x1b[1;33m",
    "BLOCKED": "\x1b[1;33m",
    "skipped": "\x1b[33m",
    "cancelled": "\x1b[33m",
}
_TRANSITION = re.compile(r"(\d\d:\d\d:\d\d \S.*? )(failed|timed out|blocked|succeeded|skipped|cancelled)\b")
_TABLE = re.compile(r"(\S.*?  )(FAILED|TIMED OUT|BLOCKED|ok|skipped|cancelled)(?=  |$)")


def colour_wanted(environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """``NO_COLOR`` says no, ``FORCE_COLOR`` yes, both by being set at all; else a terminal decides."""
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or (is_terminal and environ.get("TERM") != "dumb")


def coloured(line: str) -> str:
    """Colour the state in a line of Towline's own; the words stay, so colour is never the only sign."""
    found = _TRANSITION.match(line) or _TABLE.match(line)
    if found is None:
        return line
    head, word = found.groups()
    return f"{head}{_CODES[word]}{word}{_RESET}{line[found.end() :]}"
