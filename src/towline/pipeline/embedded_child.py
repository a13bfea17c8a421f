"""A worker process that its master started: from the line on standard input to the exit code (DIST-10, DIST-12).

Its standard input ends when the master does, however that ended; then this process ends too.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from towline.coordination.hub import HubCoordinators
from towline.distributed.child_start import SECRETS_VARIABLE, TOKEN_VARIABLE, ChildStart
from towline.distributed.options import DistributedOptions
from towline.errors.coordination import MasterLostError
from towline.errors.root import TowlineError
from towline.execution.own_loop import run_on_own_loop
from towline.execution.run_request import RunRequest
from towline.execution.started import kill_all
from towline.masking.secret import Secret
from towline.modules.target import load_target
from towline.pipeline.worker_run import WorkerRun

if TYPE_CHECKING:
    from towline.pipeline.pipeline import Pipeline

LEAVING_S: Final = 2.0
"""How long running bodies may take to end once the master is gone; then this process ends under them."""
MASTER_LOST: Final = 4


def main() -> None:
    """Work for the master at the other end of standard input; ends the process."""
    line = _MasterLine()
    try:
        code = run_on_own_loop(_work(line))
    except TowlineError as error:
        code = error.exit_code
        if not line.has_ended:  # else the master has sent this worker home, or is dead: nobody has lost anything here
            _say(f"{type(error).__name__}: {error}")
    _leave(code)


async def _work(line: _MasterLine) -> int:
    start = msgspec.json.decode(line.first(), type=ChildStart)
    token = os.environ.pop(TOKEN_VARIABLE, "")
    secrets = msgspec.json.decode(os.environ.pop(SECRETS_VARIABLE, "{}"), type=dict[str, str])
    pipeline: Pipeline[Any] = load_target(start.target)
    program = pipeline.program
    limits = DistributedOptions(
        coordinator=HubCoordinators(
            start.port, token=token, lost_after_s=start.distributed.get("master_timeout_s", 60.0)
        ),
        role="worker",
        **start.distributed,
    )
    request = RunRequest(
        params={name: Secret(value) for name, value in secrets.items()} or None,
        options=msgspec.structs.replace(program.options, **start.options),
        distributed=limits,
        run_id=start.run_id,
        workdir=Path(start.workdir),
        capabilities=start.capabilities,
        by_main=True,
    )
    run = WorkerRun(program, start.target, request, start.run_id, worker_id=start.worker_id)
    working = asyncio.ensure_future(run.run())

    def master_is_gone() -> None:
        if not run.lose(MasterLostError(start.run_id, 0.0, limits.master_timeout_s)):
            working.cancel()

    line.watch(asyncio.get_running_loop(), master_is_gone)
    try:
        return await working
    except asyncio.CancelledError:
        return MASTER_LOST


class _MasterLine:
    """Standard input, taken away from bodies and what they start: it belongs to the master."""

    def __init__(self) -> None:
        self._descriptor = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self.has_ended = False
        """The master has closed it, or died."""

    def first(self) -> bytes:
        """Read the first line."""
        data = b""
        while not data.endswith(b"\n"):
            part = os.read(self._descriptor, 64 * 1024)
            if not part:
                _leave(MASTER_LOST)
            data += part
        return data

    def watch(self, loop: asyncio.AbstractEventLoop, gone: Any) -> None:
        """Call ``gone`` in the loop once the master has ended; end the process when that does not do it."""

        def wait_for_end() -> None:
            while os.read(self._descriptor, 1024):
                pass
            self.has_ended = True
            try:
                loop.call_soon_threadsafe(gone)
            except RuntimeError:
                return  # the loop is closed: this process is leaving already
            threading.Event().wait(LEAVING_S)
            kill_all()
            _leave(MASTER_LOST)

        threading.Thread(target=wait_for_end, name="towline-master-line", daemon=True).start()


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        return  # the master reads it no more


def _leave(code: int) -> None:
    """End without joining bodies that will not end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            continue
    os._exit(code)
