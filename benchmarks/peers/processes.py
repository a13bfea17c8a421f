"""Worker processes of a peer that the measuring program starts and ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

END_LIMIT_S = 5.0


@contextlib.contextmanager
def running(*commands: list[str]) -> Iterator[None]:
    """Run commands for the time of a block; then ask them to end, and after a while end them with their children."""
    quiet = subprocess.DEVNULL
    started = [subprocess.Popen(one, stdout=quiet, stderr=quiet, start_new_session=True) for one in commands]
    try:
        yield
    finally:
        for one in started:
            one.terminate()
        for one in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(END_LIMIT_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
