"""Where results go: to standard output, which ``--json`` keeps clear of whatever else writes there (CTL-25, CLI-12).

Programs that a body starts, C code and a print at import write to descriptor 1, and no replaced ``sys.stdout`` catches
that. So while a program waits for JSON, descriptor 1 leads to standard error, and results go to a duplicate of what it
was.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

_STDOUT = 1
_apart: list[TextIO] = []
"""The duplicate, while there is one."""


def result_stream() -> TextIO:
    """Return the stream for results."""
    return _apart[-1] if _apart else sys.stdout


@contextmanager
def results_apart() -> Iterator[None]:
    """Keep standard output for results alone; where it is no descriptor of the system, as in a notebook, nothing changes."""
    stdout, stderr = sys.stdout, sys.stderr
    try:
        is_own, err = stdout.fileno() == _STDOUT, stderr.fileno()
    except (OSError, ValueError):
        is_own, err = False, -1
    if not is_own or _apart:
        yield
        return
    stdout.flush()
    kept = os.dup(_STDOUT)
    os.dup2(err, _STDOUT)
    _apart.append(_stream_on(kept, stdout))
    try:
        yield
    finally:
        _give_back(stdout, _apart.pop())


def _stream_on(descriptor: int, like: TextIO) -> TextIO:
    raw = io.FileIO(descriptor, "w")
    raw.name = like.name  # an error of it is named as one of standard output
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=like.encoding, errors=like.errors)


def _give_back(stdout: TextIO, duplicate: TextIO) -> None:
    """Let descriptor 1 be standard output again; each write to the duplicate has been flushed."""
    stdout.flush()
    os.dup2(duplicate.fileno(), _STDOUT)
    duplicate.close()
