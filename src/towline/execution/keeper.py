"""The keeper of one body: holds the line to the node and lets nothing outlive it (RUN-33, RUN-34).

It is the child that the node starts. It forks the body before any program of the user is loaded, so that it
stays small and answers whatever the body does, C code that holds the interpreter included. On Linux it is the
subreaper of all that the body starts: orphans come back to it and are found.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, Final, NoReturn

from towline.execution.trees import LEFTOVERS_AFTER_S, members, process_table

if TYPE_CHECKING:
    from collections.abc import Callable

TERMINATE: Final = b"T"
"""From the node: send SIGTERM to everything below."""
KILL: Final = b"K"
"""From the node: kill everything below."""

ENDED: Final = Layout("<ci")
"""To the node: ``E`` and the exit code of the body, negative for a signal."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_KILL_ROUND_S: Final = 0.005


def keep(control: int, body: Callable[[], None]) -> NoReturn:
    """Fork, run ``body`` in the child, and leave when it and everything below it is gone.

    ``control``: a connected socket to the node. When it ends, for whatever reason, everything is killed.
    """
    prctl = _prctl()
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the node decides; its end is seen on the line
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(woken, False)
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)  # the keeper died before the line above
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
        os.close(control)
        os.close(woken)
        os.close(waker)
        body()
        os._exit(0)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    _Watch(control, woken, pid).run()
    os._exit(0)


def _prctl() -> Callable[[int, int], Any]:
    if sys.platform != "linux":
        return lambda option, value: None  # macOS has neither: what left the session is not found there
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    return lambda option, value: libc.prctl(option, value, 0, 0, 0)


class _Watch:
    """Waits for the node, and for the ends of children."""

    def __init__(self, control: int, woken: int, body: int) -> None:
        self._control, self._woken, self._body = control, woken, body
        self._kill_at: float | None = None

    def run(self) -> None:
        """Return when nothing is left below this process."""
        while True:
            timeout_s = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
            readable, _, _ = select.select([self._control, self._woken], [], [], timeout_s)
            if self._woken in readable:
                os.read(self._woken, 4096)
            if self._reap() == 0:
                return
            if self._control in readable and not self._obey():
                self._kill()
                return
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._kill()
                return

    def _obey(self) -> bool:
        """Take a word of the node; false when it is gone or wants the end."""
        try:
            word = os.read(self._control, 16)
        except OSError:  # the line broke: the node is gone
            word = b""
        if not word or KILL in word:
            return False
        for pid in _below():
            _send(pid, signal.SIGTERM)
        return True

    def _reap(self) -> int | None:
        """Take the ends of children; returns 0 when there are no more, ``None`` while some live."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 0
            if pid == 0:
                return None
            if pid == self._body:
                self._tell(os.waitstatus_to_exitcode(status))
                self._kill_at = time.monotonic() + LEFTOVERS_AFTER_S

    def _tell(self, code: int) -> None:
        try:
            os.write(self._control, ENDED.pack(b"E", code))
        except OSError:  # the node is gone; the next look at the line shows it
            return

    def _kill(self) -> None:
        """Kill until nothing is left: each round finds what forked during the last one."""
        while self._reap() is None:
            for pid in _below():
                _send(pid, signal.SIGKILL)
            time.sleep(_KILL_ROUND_S)


def _below() -> list[int]:
    own = os.getpid()
    return [row.pid for row in members(own, process_table()) if row.pid != own]


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):  # it ended meanwhile, or belongs to another user now
        return
