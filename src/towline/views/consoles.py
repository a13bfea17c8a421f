"""Choosing how a run is shown: live, plain, or as JSON lines (REP-09)."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Protocol, TextIO

import msgspec

from towline.views.final import final_lines
from towline.views.plain import PlainConsole, write_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from towline.events.records import Event
    from towline.execution.report import RunReport

DEFAULT_WIDTH = 160
"""Columns where there is no terminal to ask (REP-13)."""

CI_VARIABLES = ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "TF_BUILD", "TEAMCITY_VERSION", "BUILDKITE", "TRAVIS")


class Console(Protocol):
    """Shows one run."""

    def greet(self, text: str) -> None:
        """Say what the start does with an earlier plan."""
        ...

    def take(self, batch: Sequence[Event]) -> None:
        """Show a batch of events; called in the loop's thread."""
        ...

    def close(self) -> None:
        """Give the screen back; harmless twice."""
        ...

    def finish(self, report: RunReport) -> None:
        """Write the end of the run."""
        ...


def console_for(
    out: TextIO, err: TextIO, environ: Mapping[str, str], *, as_json: bool = False, plain: bool = False
) -> Console:
    """Choose the console: JSON when asked, live on a capable terminal, plain everywhere else."""
    if as_json:
        return JsonConsole(out, err, width_of(err, environ))
    width = width_of(out, environ)
    forced = environ.get("FORCE_COLOR") and not environ.get("NO_COLOR")
    on_ci = any(environ.get(name) for name in CI_VARIABLES)
    if plain or on_ci or environ.get("TERM") == "dumb" or not (out.isatty() or forced):
        return Plain(out, width, grouped=on_ci)
    from towline.views.live import LiveConsole

    return LiveConsole(out, environ)


def width_of(stream: TextIO, environ: Mapping[str, str]) -> int:
    """Columns of a terminal, of ``COLUMNS``, or 160."""
    if environ.get("COLUMNS", "").isdigit():
        return max(40, int(environ["COLUMNS"]))
    try:
        if stream.isatty():
            return max(40, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        return DEFAULT_WIDTH
    return DEFAULT_WIDTH


class Plain:
    """Lines as they come, then the final table."""

    def __init__(self, out: TextIO, width: int, *, grouped: bool = False) -> None:
        self._out, self._width = out, width
        self._lines = PlainConsole(out, grouped=grouped)
        self.take = self._lines

    def greet(self, text: str) -> None:
        self._lines.write([text])

    def close(self) -> None:
        self._lines.flush()

    def finish(self, report: RunReport) -> None:
        self._lines.write(final_lines(report, self._width))


class JsonConsole:
    """Each logged event as a line on standard output, and nothing else there (CTL-25)."""

    def __init__(self, out: TextIO, err: TextIO, width: int) -> None:
        self._out, self._err, self._width = out, err, width
        self._encode = msgspec.json.Encoder().encode
        self._is_closed = False

    def greet(self, text: str) -> None:
        write_lines(self._err, [text])

    def take(self, batch: Sequence[Event]) -> None:
        if self._is_closed:
            return
        try:
            self._out.write("".join(self._encode(event).decode() + "\n" for event in batch))
            self._out.flush()
        except (BrokenPipeError, ValueError):
            self._is_closed = True  # a closed stdout ends the printing, not the run (REP-13)

    def close(self) -> None:
        """Nothing is held back."""

    def finish(self, report: RunReport) -> None:
        write_lines(self._err, final_lines(report, self._width))


def terminal_height() -> int:
    """Rows of the terminal, 24 when it does not say."""
    return shutil.get_terminal_size().lines
