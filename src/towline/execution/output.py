"""What bodies say: log records, printed lines and command output, routed to their task (RUN-37 to 39)."""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, TextIO

from towline.clock import moment
from towline.modules.current import current_attempt

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from towline.clock import Clock
    from towline.events.log import EventLog
    from towline.execution.run_folder import RunFolder
    from towline.modules.doors import Attempt

TEXT_LIMIT = 16 * 1024
"""Longest text of one log or output event (``planning.md`` section 2)."""

LOGGER = logging.getLogger("towline.task")
"""What ``ctx.log`` is. Its records reach the run whatever the root logger's level is."""


class Output:
    """Collects what bodies say, from any thread, and hands it on in the loop's thread.

    ``drain`` runs before each turn of the engine, so that what a task said precedes its end (EVT-05).
    ``echo``: write printed text through to the stream that was found, for runs without a console.
    """

    def __init__(
        self,
        *,
        events: EventLog,
        folder: RunFolder,
        mask: Callable[[str], str],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        run_id: str,
        echo: bool,
    ) -> None:
        self._events, self._folder, self._mask, self._clock, self._loop = events, folder, mask, clock, loop
        self._run_id, self.echo = run_id, echo
        self.said: deque[tuple[Attempt | None, float, str, str, str]] = deque()
        self._drain_due = False
        self._handler = _RunHandler(self)

    # -------------------------------------------------------------- any thread

    def log(self, attempt: Attempt | None, level: str, text: str, logger: str = "") -> None:
        """Take a log record of a task, or of the run."""
        self._take((attempt, self._clock.now(), level, logger or "towline.task", text))

    def printed(self, attempt: Attempt | None, stream: str, text: str) -> None:
        """Take one line that a body, or a command of it, wrote to a stream."""
        self._take((attempt, self._clock.now(), "", stream, text))

    def _take(self, said: tuple[Attempt | None, float, str, str, str]) -> None:
        self.said.append(said)
        if not self._drain_due:
            self._drain_due = True
            try:
                self._loop.call_soon_threadsafe(self.drain)
            except RuntimeError:  # the loop is closed: an abandoned thread still talks, and nobody listens
                self._drain_due = False

    # -------------------------------------------------------------- the loop's thread

    def drain(self) -> None:
        """Write everything said so far to the logs of the tasks, and show it."""
        self._drain_due = False
        if not self.said:
            return
        batch = []
        while self.said:
            attempt, now, level, name, text = self.said.popleft()
            text = self._mask(text)
            at = moment(now)
            self._folder.log_line(
                None if attempt is None else attempt.task_id,
                f"{at} {attempt.attempt if attempt else 0} {level or name} {text}\n",
            )
            shown = text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + "…"
            data: dict[str, Any] = (
                {"level": level, "logger": name, "text": shown} if level else {"stream": name, "text": shown}
            )
            kind = "log" if level else "output"
            if attempt is None:
                batch.append(self._events.event(kind, at, data))
            else:
                batch.append(self._events.event(kind, at, data, attempt.task_id, attempt.epoch, attempt.attempt))
        self._events.emit(batch)

    def task_ended(self, attempt: Attempt) -> None:
        """Flush the unfinished lines of a task whose body has ended."""
        if _open_lines:  # as a rule there are none, and this is asked after every body
            for router in tuple(_routers.values()):
                router.flush_task(attempt)

    # -------------------------------------------------------------- installing

    def install(self, *, streams: bool = True) -> None:
        """Listen to logging, and to the standard streams, until :meth:`uninstall`."""
        LOGGER.setLevel(logging.DEBUG)
        LOGGER.propagate = False
        LOGGER.addHandler(self._handler)
        logging.getLogger().addHandler(self._handler)
        for name in ("stdout", "stderr") if streams else ():
            router = _routers.get(name)
            if router is None or getattr(sys, name) is not router:
                router = _routers[name] = _Router(name, getattr(sys, name))
                setattr(sys, name, router)
            router.outputs.append(self)

    def uninstall(self) -> None:
        """Stop listening; harmless twice. The last run of the process restores the streams that were found.

        A stream that someone replaced meanwhile is left alone.
        """
        LOGGER.removeHandler(self._handler)
        logging.getLogger().removeHandler(self._handler)
        for name, router in tuple(_routers.items()):
            if self in router.outputs:
                router.outputs.remove(self)
            if not router.outputs:
                if getattr(sys, name) is router:
                    setattr(sys, name, router.found)
                del _routers[name]

    def is_of_this_run(self, attempt: Attempt | None) -> bool:
        """Whether text of this attempt belongs here; several runs may share one process."""
        return attempt is not None and attempt.run_id == self._run_id


class _RunHandler(logging.Handler):
    """Sends the records of bodies of one run to its output."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        attempt = current_attempt.get()
        if not self._output.is_of_this_run(attempt):
            return
        try:
            text = record.getMessage()
            if record.exc_info:
                text += "\n" + logging.Formatter().formatException(record.exc_info)
        except Exception as error:  # noqa: BLE001 - a bad format string must not fail the body that logs
            text = f"{record.msg!r} (cannot be formatted: {error})"
        for line in text.split("\n"):
            self._output.log(attempt, record.levelname.lower(), line, record.name)


class _Router(io.TextIOBase):
    """Stands for ``sys.stdout`` or ``sys.stderr``: text of bodies goes to their task, the rest through.

    One serves all runs of the process: they may overlap, and end in another order than they began.
    """

    def __init__(self, name: str, found: TextIO) -> None:
        self._name, self.found = name, found
        self.outputs: list[Output] = []
        """The runs that listen, the latest last."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self.found, "encoding", None) or "utf-8"

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return getattr(self.found, "errors", None)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.found.isatty()

    def fileno(self) -> int:
        return self.found.fileno()

    @property
    def buffer(self) -> Any:
        """The bytes beneath: not routed, as raw descriptors are not (RUN-38)."""
        return self.found.buffer

    def write(self, text: str) -> int:
        attempt = current_attempt.get()
        output = self._output_of(attempt)
        if attempt is None or output is None:
            return self.found.write(text)
        if output.echo:
            self.found.write(text)
        place = (self._name, attempt.run_id, attempt.task_id)
        with _open_lines_lock:
            *lines, rest = (_open_lines.pop(place, "") + text).split("\n")
            if rest:
                _open_lines[place] = rest
        for line in lines:
            output.printed(attempt, self._name, line)
        return len(text)

    def flush(self) -> None:
        self.found.flush()

    def _output_of(self, attempt: Attempt | None) -> Output | None:
        return next((output for output in reversed(self.outputs) if output.is_of_this_run(attempt)), None)

    def flush_task(self, attempt: Attempt) -> None:
        with _open_lines_lock:
            open_line = _open_lines.pop((self._name, attempt.run_id, attempt.task_id), None)
        output = self._output_of(attempt)
        if open_line is not None and output is not None:
            output.printed(attempt, self._name, open_line)


_routers: dict[str, _Router] = {}
"""Those that stand in ``sys`` now, by the name of their stream."""

_open_lines: dict[tuple[str, str, str], str] = {}
"""Text without a line end yet, by stream, run and task."""

_open_lines_lock = threading.Lock()
