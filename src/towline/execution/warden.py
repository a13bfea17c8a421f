"""The node's side of its warden: who it is told about (CMD-06, RUN-34)."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import subprocess

_ROOT: Final = str(Path(__file__).parents[2])
_BOOT: Final = "import sys; sys.path.append(sys.argv.pop(1)); from towline.execution.warden_child import main; main()"


class Warden:
    """Has one small process that outlives this one by the moment it takes to kill running commands.

    The process is started by the first command and let go when a run ends and no command is left. It has no
    output, a session of its own, and ``/`` as its folder, so that it holds nothing of the node.

    Limits: a node that is killed between the start of a program and the next line of its own leaves that
    program. Bodies in processes of their own have a keeper instead. Windows has Job Objects for this; there
    is no warden there, and commands outlive a killed node.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leaders: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return self._process.pid if self._process is not None else None

    def open(self) -> None:
        """See that the process is there; before a command starts, so that nothing happens in between."""
        with self._lock:
            if self._process is None:
                self._start()

    def watch(self, leader: int) -> None:
        """Count the session of this process as to be ended with the node."""
        with self._lock:
            self._leaders.add(leader)
            self._tell(f"+{leader}\n")

    def forget(self, leader: int) -> None:
        """Count it as ended; harmless for one that was never watched."""
        with self._lock:
            if leader in self._leaders:
                self._leaders.discard(leader)
                self._tell(f"-{leader}\n")

    def close(self) -> None:
        """Let the process go if no command runs; the next one starts another."""
        with self._lock:
            if self._process is not None and not self._leaders:
                self._drop(self._process)

    def _start(self) -> None:
        if sys.platform == "win32":
            return
        import subprocess

        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, _ROOT, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        os.set_blocking(_line_to(process), False)
        self._process = process

    def _tell(self, words: str) -> None:
        if self._process is None:
            return
        try:
            os.write(_line_to(self._process), words.encode())
        except OSError:  # someone killed or stopped it: another one takes over, and is told of all
            self._drop(self._process)
            self._start()
            self._tell("".join(f"+{pid}\n" for pid in self._leaders))

    def _drop(self, process: subprocess.Popen[bytes]) -> None:
        """End a process that has nothing to do, or does nothing; SIGKILL, so that waiting for it is short."""
        self._process = None
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def _line_to(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    return process.stdin.fileno()
