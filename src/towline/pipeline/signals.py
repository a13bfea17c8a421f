"""SIGINT and SIGTERM under ``main()``: once to end in order, twice to end at once (RUN-42 to 44)."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

from towline.errors.configuration import ConfigurationError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Signals:
    """Handlers for the length of a run; what was installed before is restored.

    ``first(code)`` begins an orderly end, ``second(code)`` a quick one, ``third(code)`` leaves on the spot.

    Raises:
        ConfigurationError: Used outside the main thread, where no handler can be installed (RUN-44).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        first: Callable[[int], None],
        second: Callable[[int], None],
        third: Callable[[int], Any],
    ) -> None:
        self._loop, self._steps = loop, (first, second, third)
        self._count = 0
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Take the signals over."""
        refuse_other_thread()
        for number in _numbers():
            self._before[number] = signal.getsignal(number)
            signal.signal(number, self._on_signal)
        # A handler of Python's own runs between two bytecodes of this thread: wake the loop from its select.
        self._wake = self._loop.call_soon_threadsafe

    def restore(self) -> None:
        """Give the signals back; harmless twice."""
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._before.clear()

    def _on_signal(self, number: int, _frame: object) -> None:
        code = EXIT_CODES.get(signal.Signals(number), 130)
        step = self._steps[min(self._count, 2)]
        self._count += 1
        if self._count > 2:
            step(code)
            return
        try:
            self._wake(step, code)
        except RuntimeError:  # the loop is closed: the run is over already
            return


def refuse_other_thread() -> None:
    """Refuse to handle signals where Python cannot.

    Raises:
        ConfigurationError: This is not the main thread (RUN-44).
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigurationError("handle_signals", "True", "Options", "signals can be handled in the main thread alone")


def _numbers() -> list[int]:
    """The signals that stop a run; CTRL_BREAK counts as SIGINT on Windows."""
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    ctrl_break = getattr(signal, "SIGBREAK", None)
    return [*numbers, ctrl_break] if ctrl_break is not None else numbers
