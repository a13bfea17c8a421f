"""What ends a run before its tasks do (RUN-28, RUN-42, RUN-43, CTL-28).

A signal, a cancel that comes through the server which has the plan, or a body that blocks the loop past its timeout.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from towline.clock import SystemExitDoor
from towline.execution.started import kill_all
from towline.execution.watchdog import Watchdog
from towline.pipeline.signals import Signals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from towline.execution.engine import Engine
    from towline.execution.run_folder import RunFolder
    from towline.execution.run_request import RunRequest
    from towline.execution.taskrun import TaskRun
    from towline.pipeline.run_node import RunNode
    from towline.state.planfile import PlanFile
    from towline.state.store import Ownership

LAST_WRITE_S = 1.0
"""What a second signal waits for the journal (RUN-43)."""


class EarlyEnd:
    """Listens for the length of a run. ``exit_code``: of a cancelled run; a signal has its own.

    ``ownership``: of the plan; where that lies on a server, a cancel comes through it. ``warn`` tells the operator;
    ``spawn`` begins work that the end of the run waits for.
    """

    def __init__(
        self,
        node: RunNode,
        engine: Engine,
        *,
        plan_file: PlanFile,
        ownership: Ownership,
        folder: RunFolder,
        warn: Callable[[str], None],
        spawn: Callable[[Awaitable[None]], None],
    ) -> None:
        self._node, self._engine, self._plan_file, self._folder = node, engine, plan_file, folder
        self._warn, self._spawn, self._request = warn, spawn, node.facts.request
        self.exit_code = 130
        self._signals: Signals | None = None
        if wants_signals(self._request):
            self._signals = Signals(node.loop, self._first_signal, self._second_signal, SystemExitDoor())
        self._watchdog = self._watchdog_of(node)
        self._wait_for_cancel: Callable[[], Awaitable[str]] | None = getattr(ownership, "wait_for_cancel", None)
        self._hearing: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """Take the signals over and watch the loop.

        Raises:
            ConfigurationError: This is not the main thread (RUN-44).
        """
        if self._signals is not None:
            self._signals.install()
        self._watchdog.start()
        if self._wait_for_cancel is not None:
            self._hearing = self._node.loop.create_task(self._hear_cancel(self._wait_for_cancel))

    def stop(self) -> None:
        """Give the signals back, watch and hear no more; harmless twice."""
        if self._hearing is not None:
            self._hearing.cancel()
        self._watchdog.stop()
        if self._signals is not None:
            self._signals.restore()

    # -------------------------------------------------------------- signals

    def _first_signal(self, code: int) -> None:
        """End in order: no new task starts, running ones are cancelled (RUN-42)."""
        self.exit_code = code
        self._warn("interrupted: running tasks are ending; once more ends them at once")
        self._engine.ask_stop("interrupted", always_run_too=not self._request.options.always_run_on_interrupt)

    def _second_signal(self, code: int) -> None:
        """End at once: kill what was started; the journal is as the last turn wrote it (RUN-43)."""
        kill_all()
        self._spawn(self._leave(code))

    async def _leave(self, code: int) -> None:
        try:
            async with asyncio.timeout(LAST_WRITE_S):
                await self._plan_file.flush()
                await self._folder.flush()
        except TimeoutError:
            pass  # a second signal promises to leave within a second, whatever the disk does
        self._exit(code)

    def _exit(self, code: int) -> None:
        """Leave on the spot, once whoever shows the run has shown what it holds."""
        if self._request.before_exit is not None:
            self._request.before_exit()
        SystemExitDoor()(code)

    # -------------------------------------------------------------- a cancel from elsewhere

    async def _hear_cancel(self, wait_for_cancel: Callable[[], Awaitable[str]]) -> None:
        """End in order once somebody asks for it through the server that has the plan (CTL-28)."""
        by = await wait_for_cancel()
        self._warn(f"towline cancel was called by {by}: running tasks are ending")
        self._engine.ask_stop("interrupted", always_run_too=not self._request.options.always_run_on_interrupt)

    # -------------------------------------------------------------- a blocked loop

    def _watchdog_of(self, node: RunNode) -> Watchdog:
        options = self._request.options
        action = options.loop_block_action or ("exit" if self._request.by_main else "warn")
        is_real = type(node.loop).__module__.split(".")[0] in ("asyncio", "uvloop")
        return Watchdog(
            loop=node.loop,
            runs=node.runs,
            clock=node.facts.clock,
            warning_s=options.loop_block_warning_s if is_real else 0.0,
            grace_s=options.cancel_grace_s,
            warn=lambda text: node.output.log(None, "warning", text),
            expire=self._expire if action == "exit" else None,
        )

    def _expire(self, run: TaskRun, stack: str) -> None:
        """From the watchdog's thread, while the loop is blocked: record the timeout and leave (RUN-28)."""
        kill_all()
        asyncio.run(self._last_words(run, stack))
        self._exit(1)

    async def _last_words(self, run: TaskRun, stack: str) -> None:
        try:
            async with asyncio.timeout(LAST_WRITE_S):
                await self._engine.expire_blocking(run, stack)
                self._node.output.drain()
                await self._folder.flush()
        except TimeoutError:
            pass  # as after a second signal: it leaves, whatever the disk does


def wants_signals(request: RunRequest) -> bool:
    """Whether Ctrl-C and SIGTERM are this run's to handle (RUN-42)."""
    return request.by_main or bool(request.options.handle_signals)
