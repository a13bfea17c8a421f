"""Worker processes that the master starts on its own machine, and starts again when they die (DIST-10, DIST-12).

They are started fresh, never forked, in sessions of their own: a Ctrl-C in the terminal reaches the master alone, which
tells them by the run's signal. Their standard input stays open for as long as the master lives; its end is their end.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from towline.distributed.restarts import Restarts
from towline.errors.commands import exit_words
from towline.execution import started
from towline.execution.trees import ProcessTree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from towline.distributed.child_start import ChildStart

LEAVING_S: Final = 5.0
"""How long a process may take to leave once the run is over, before it is killed."""
REST_S: Final = 0.2
"""How long the last lines of a process that has ended are waited for."""
LAST_LINES: Final = 8
"""How much of what a dead process wrote last its warning shows."""
LINE_LIMIT_BYTES: Final = 64 * 1024

_ROOT: Final = str(Path(__file__).parents[2])
"""Where this very library lies: the child shall not find another one."""
_BOOT: Final = "import sys; sys.path.append(sys.argv.pop(1)); from towline.pipeline.embedded_child import main; main()"


class EmbeddedHost(Protocol):
    """Who is told what becomes of the processes."""

    async def worker_died(self, worker_id: str) -> bool:
        """Its process is gone: what it held is to go to others at once (COORD-C11); says whether that was anything."""
        ...

    def worker_said(self, worker_id: str, line: str) -> None:
        """It wrote a line to its standard output or error that belongs to no task."""
        ...

    def is_not_started_again(self, worker_id: str) -> None:
        """It has died too often."""
        ...

    async def nobody_left(self) -> None:
        """All have died, and none is started again."""
        ...

    def is_over(self) -> bool:
        """Whether workers have been sent home: who leaves in order then has not died."""
        ...

    def warn(self, text: str) -> None:
        """Tell the operator."""
        ...


class EmbeddedWorkers:
    """The processes ``instance-1`` to ``instance-N`` of one run.

    Args:
        start_of: What a worker of this id is told when it starts.
        secrets: What its environment has beside that of this process, by variable: no other process sees it.
    """

    def __init__(
        self, count: int, start_of: Callable[[str], ChildStart], secrets: Mapping[str, str], host: EmbeddedHost
    ) -> None:
        self.names = tuple(f"instance-{number}" for number in range(1, count + 1))
        self._start_of, self._secrets, self._host = start_of, secrets, host
        self._restarts = Restarts()
        self._children: dict[str, _Child] = {}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._left = set(self.names)
        self._is_ending = False
        self.has_lost_one = asyncio.Event()
        """Set by the first death."""

    def start(self) -> None:
        """Start all; whatever happens to one later is handled here until :meth:`stop`."""
        loop = asyncio.get_running_loop()
        for name in self.names:
            self._keeping[name] = loop.create_task(self._keep(name), name=f"towline-{name}")

    async def _keep(self, name: str) -> None:
        while not self._is_ending:
            child = self._children[name] = _Child(name, self._host.worker_said)
            try:
                code = await child.run(self._start_of(name), self._secrets)
            except OSError as error:
                how = f"it could not be started: {error}"
            else:
                if code == 0 and self._host.is_over():
                    return
                how = f"process {child.pid}: {exit_words(code)}"
            self.has_lost_one.set()
            had_task = await self._host.worker_died(name)
            if self._is_ending:
                return
            pause_s = self._restarts.pause_s(name, had_task=had_task)
            again = "it is not started again" if pause_s is None else f"it is started again in {pause_s:g} s"
            self._host.warn(f"worker {name} died, {how}; {again}{child.last_words()}")
            if pause_s is None:
                break
            await asyncio.sleep(pause_s)
        self._host.is_not_started_again(name)
        self._left.discard(name)
        if not self._left and not self._is_ending:
            await self._host.nobody_left()

    def begin_end(self) -> None:
        """The run is over: who leaves now is not started again."""
        self._is_ending = True

    async def stop(self) -> None:
        """See every process gone; twice without harm, and before the start."""
        self.begin_end()
        keeping, self._keeping = list(self._keeping.values()), {}
        if not keeping:
            return
        for child in self._children.values():
            child.let_go()
        await asyncio.wait(keeping, timeout=LEAVING_S)
        for child in self._children.values():
            child.kill()
        for task in keeping:
            task.cancel()
        await asyncio.wait(keeping)


class _Child:
    """One process, from its start to its end."""

    def __init__(self, name: str, said: Callable[[str, str], None]) -> None:
        self._name, self._said = name, said
        self._process: asyncio.subprocess.Process | None = None
        self._tree: ProcessTree | None = None
        self._lines: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def pid(self) -> int | None:
        """Of the process, once it has started."""
        return None if self._process is None else self._process.pid

    async def run(self, start: ChildStart, secrets: Mapping[str, str]) -> int:
        """Start the process and wait for its end; returns its code, negative for a signal."""
        with started.starting():
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-c",
                _BOOT,
                _ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **secrets},
                start_new_session=True,
                limit=LINE_LIMIT_BYTES,
            )
            tree = self._tree = ProcessTree(process.pid)
            started.watch(tree)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(msgspec.json.encode(start) + b"\n")
            reading = asyncio.ensure_future(self._read(process.stdout))
            code = await process.wait()
            # What it started may hold the pipe for longer; what it wrote itself is there already.
            await asyncio.wait([reading], timeout=REST_S)
            reading.cancel()
            return code
        finally:
            started.forget(tree)
            if process.returncode is None:
                tree.kill()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        """Hand on its lines. A line without an end is cut into pieces."""
        while (line := await _line_of(stream)) is not None:
            self._lines.append(line)
            self._said(self._name, line)

    def last_words(self) -> str:
        """Return what it wrote last, as the end of a sentence."""
        return "".join(f"\n  {line}" for line in self._lines)

    def let_go(self) -> None:
        """Close its standard input: it leaves."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """Kill it with all that it started; without harm when it has ended."""
        if self._tree is not None and self._process is not None and self._process.returncode is None:
            self._tree.kill()


async def _line_of(stream: asyncio.StreamReader) -> str | None:
    try:
        data = await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        data = error.partial
    except asyncio.LimitOverrunError as error:
        data = await stream.readexactly(max(1, error.consumed))
    return data.decode("utf-8", "backslashreplace").rstrip("\r\n") if data else None
