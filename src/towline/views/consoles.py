"""Choosing how a run is shown: live, plain, or as JSON lines (REP-09)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TextIO

import msgspec

from towline.views.ci_hosts import host_of, mask_commands
from towline.views.colours import colour_wanted
from towline.views.final import final_lines
from towline.views.plain import PlainConsole
from towline.views.streams import width_of, write_lines, write_raw

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from towline.events.records import Event
    from towline.execution.look import RunLook
    from towline.execution.report import RunReport
    from towline.views.ci_hosts import CiHost


class Console(Protocol):
    """Shows one run. Everything but ``mask`` is called in the loop's thread."""

    def greet(self, text: str) -> None:
        """Say what the start does with an earlier plan."""
        ...

    def look(self, look: RunLook) -> None:
        """Take the door through which the run can be asked how long it will take."""
        ...

    def take(self, batch: Sequence[Event]) -> None:
        """Show a batch of events."""
        ...

    def tick(self) -> None:
        """Show what changed by time alone; called about once a second."""
        ...

    def mask(self, value: str) -> None:
        """Tell the host's log viewer of a secret; called in any thread, before anything that holds it is shown."""
        ...

    def close(self) -> None:
        """Give the screen back and write what was held; harmless twice."""
        ...

    def finish(self, report: RunReport, next_steps: Sequence[str] = ()) -> None:
        """Write the end of the run, with lines that say how to go on."""
        ...


def console_for(
    out: TextIO,
    err: TextIO,
    environ: Mapping[str, str],
    *,
    as_json: bool = False,
    plain: bool = False,
    defuse: bool = True,
) -> Console:
    """Choose the console: JSON when asked, live on a capable terminal, plain everywhere else.

    ``defuse``: lines of bodies that look like commands of the CI host do not steer it (REP-11).
    """
    host = host_of(environ)
    if as_json:
        return JsonConsole(out, err, width_of(err, environ), host)
    is_terminal = out.isatty()
    if plain or host or environ.get("TERM") == "dumb" or not is_terminal:
        colour = bool(environ.get("FORCE_COLOR")) and colour_wanted(environ, is_terminal=is_terminal)
        return Plain(PlainConsole(out, host=host, defuse=defuse, colour=colour), width_of(out, environ))
    from towline.views.live import LiveConsole

    return LiveConsole(out, environ)


class Plain:
    """Lines as they come, then the final table."""

    def __init__(self, lines: PlainConsole, width: int) -> None:
        self._lines, self._width = lines, width
        self.take, self.tick, self.mask, self.close = lines, lines.tick, lines.mask, lines.flush

    def greet(self, text: str) -> None:
        """Write the first line of the run."""
        self._lines.write([text])

    def look(self, look: RunLook) -> None:
        """Plain lines show no forecast."""

    def finish(self, report: RunReport, next_steps: Sequence[str] = ()) -> None:
        """Write what is left, then the final table."""
        self._lines.flush()
        # On CI the failed task's output stands just above.
        self._lines.write(final_lines(report, self._width, with_log=self._lines.host is None, next_steps=next_steps))


class JsonConsole:
    """Each logged event as a line on standard output, and nothing else there (CTL-25)."""

    def __init__(self, out: TextIO, err: TextIO, width: int, host: CiHost | None = None) -> None:
        self._out, self._err, self._width, self._host = out, err, width, host
        self._encode = msgspec.json.Encoder().encode
        self._is_closed = False

    def greet(self, text: str) -> None:
        """Write the first line of the run for people."""
        write_lines(self._err, [text])

    def look(self, look: RunLook) -> None:
        """Programs forecast for themselves."""

    def take(self, batch: Sequence[Event]) -> None:
        """Write each event as one line."""
        if not self._is_closed:
            text = "".join(self._encode(event).decode() + "\n" for event in batch)
            self._is_closed = not write_raw(self._out, text)  # that ends the printing, not the run (REP-13)

    def tick(self) -> None:
        """Nothing changes by time alone."""

    def mask(self, value: str) -> None:
        """Write the host's mask command where text for people goes."""
        commands = mask_commands(self._host, value)
        if commands:
            write_raw(self._err, "\n".join(commands) + "\n")

    def close(self) -> None:
        """Nothing is held back."""

    def finish(self, report: RunReport, next_steps: Sequence[str] = ()) -> None:
        """Write the final table for people."""
        write_lines(self._err, final_lines(report, self._width, next_steps=next_steps))
