"""The doors of a context whose body runs in a process of its own: each call is the node's (RUN-32)."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from towline.artifacts.records import ArtifactRef
from towline.execution.isolation_messages import CommandAnswer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from os import PathLike

    from towline.execution.child_line import ChildLine
    from towline.masking import Secret
    from towline.modules.doors import Attempt
    from towline.modules.outcomes import Finding
    from towline.state.cursors import CursorProgress
    from towline.state.steps import StepStore
    from towline.state.store import StateStore

LOGGER = logging.getLogger("towline.task")


class ChildDoors:
    """What a context can ask for in a body's process; one object per process."""

    def __init__(self, line: ChildLine, plan_id: str) -> None:
        self._line, self._plan_id = line, plan_id
        self._steps: StepStore | None = None
        self._needs_loop = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_lock = threading.Lock()

    def listen_to_logging(self, level: int) -> None:
        """Send log records to the node: those of the task's logger all, others from ``level`` on."""
        root = logging.getLogger()
        root.addHandler(_LineHandler(self._line))
        root.setLevel(level)
        LOGGER.setLevel(logging.DEBUG)

    # -------------------------------------------------------------- saying

    def log(self, attempt: Attempt) -> logging.Logger:
        """The logger of bodies."""
        return LOGGER

    def progress(self, attempt: Attempt, done: int, total: int | None) -> None:
        """Show how far the body is."""
        self._check(attempt)
        self._line.say("progress", done=done, total=total)

    def finding(self, attempt: Attempt, finding: Finding) -> None:
        """Record a finding; the node judges it."""
        self._line.ask("finding", finding=finding)

    def secret(self, attempt: Attempt, name: str) -> Secret:
        """Get a secret of the node over the private line (SEC-07)."""
        from towline.masking import Secret

        return Secret(msgspec.json.decode(self._line.ask("secret", name=name), type=str))

    def mask(self, attempt: Attempt, value: str) -> None:
        """Mask a value; on return it is masked in what follows."""
        self._line.ask("mask", value=value)

    def _check(self, attempt: Attempt) -> None:
        if attempt.cancelled:
            from asyncio import CancelledError

            raise CancelledError(f"{attempt.task_id} was asked to end")

    # -------------------------------------------------------------- commands

    async def run(self, attempt: Attempt, argv: tuple[str | PathLike[str], ...], options: Mapping[str, Any]) -> Any:
        """Run a command on the node, which ends it with the task."""
        from towline.errors.commands import CommandFailedError, CommandTimeoutError
        from towline.modules.durations import seconds_of

        given = dict(options)
        for name in ("timeout", "grace"):
            if name in given:
                given[name] = seconds_of(given[name])
        if given.get("cwd") is not None:
            given["cwd"] = os.fspath(given["cwd"])
        if isinstance(given.get("input"), str):
            given["input"] = given["input"].encode(given.get("encoding") or "utf-8")
        if "ok_codes" in given:
            given["ok_codes"] = list(given["ok_codes"])
        arguments = [os.fspath(one) if isinstance(one, os.PathLike) else one for one in argv]
        answer = await self._line.ask_on_loop("run", argv=arguments, options=given)
        ended = msgspec.json.decode(answer, type=CommandAnswer)
        result = ended.result()
        if ended.error is None:
            return result
        error = ended.error.rebuild()
        if isinstance(error, CommandFailedError | CommandTimeoutError):
            error.result = result
        raise error

    # -------------------------------------------------------------- steps and cursors

    async def run_step(
        self, attempt: Attempt, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call once and remember (CUR-14)."""
        from towline.execution.step_values import step_codec
        from towline.modules.step_results import declared_result

        encode, decode = step_codec(declared_result(fn), attempt.workdir)
        return await self._step_store(attempt).once(name, lambda: fn(*args, **kwargs), encode=encode, decode=decode)

    def open_step(self, attempt: Attempt, name: str, result: Any) -> AbstractAsyncContextManager[Any]:
        """Open a step whose body the caller writes (CUR-15)."""
        self._needs_loop = True
        if result is None:
            return self._step_store(attempt).open(name)
        from towline.execution.step_values import step_codec

        encode, decode = step_codec(result, attempt.workdir)
        return self._step_store(attempt).open(name, encode=encode, decode=decode)

    def _step_store(self, attempt: Attempt) -> StepStore:
        if self._steps is None:
            from towline.clock import SystemClock
            from towline.execution.child_state import ChildState
            from towline.state.steps import StepStore

            self._steps = StepStore(
                cast("StateStore", ChildState(self._line)),
                attempt.task_id,
                attempt.epoch,
                self._plan_id,
                attempt=attempt.attempt,
                clock=SystemClock(),
                check=lambda: self._check(attempt),
                check_ended=lambda: None,
            )
        return self._steps

    def open_cursor(self, attempt: Attempt, options: Mapping[str, Any]) -> Awaitable[Any]:
        """Open the task's cursor over the node's state (CUR-01)."""
        from towline.execution.child_state import ChildState
        from towline.state.cursors import CursorStore

        self._needs_loop = True

        def notify(progress: CursorProgress) -> None:
            self._line.say("cursor_moved", progress=progress)

        return CursorStore(cast("StateStore", ChildState(self._line))).open(
            attempt.task_id,
            attempt.epoch,
            self._plan_id,
            notify=notify,
            check=lambda: self._check(attempt),
            check_ended=lambda: None,  # the node judges: after the end it takes no write
            **options,
        )

    def open_sync_cursor(self, attempt: Attempt, options: Mapping[str, Any]) -> Any:
        """Open the cursor of a sync body on its own thread."""
        from towline.state.cursors import SyncCursor

        cursor = self.blocking(attempt, lambda: self.open_cursor(attempt, options))
        return SyncCursor(cursor, lambda call: self._finish(call()))

    # -------------------------------------------------------------- artifacts, offload

    async def put_artifact(self, attempt: Attempt, name: str, path: str | PathLike[str]) -> ArtifactRef:
        """Store a file or folder through the node (ART-12)."""
        answer = await self._line.ask_on_loop("put_artifact", name=name, path=os.fspath(path))
        return msgspec.json.decode(answer, type=ArtifactRef)

    async def get_artifact(self, attempt: Attempt, reference: ArtifactRef, into: str | PathLike[str]) -> Path:
        """Restore an artifact through the node."""
        answer = await self._line.ask_on_loop("get_artifact", reference=reference, into=os.fspath(into))
        return Path(msgspec.json.decode(answer, type=str))

    def find_artifacts(self, attempt: Attempt, module: str, name: str) -> ArtifactRef | list[ArtifactRef]:
        """Find the references of a declared dependency."""
        answer = self._line.ask("find_artifacts", module=module, name=name)
        return msgspec.json.decode(answer, type=ArtifactRef | list[ArtifactRef])

    def offload(self, attempt: Attempt) -> NoReturn:
        """Offload buffers live in the node's memory: a body in a process of its own has none."""
        from towline.errors.offload import OffloadUnavailableError

        raise OffloadUnavailableError(f"{attempt.task_id} runs in a process of its own", 0.0, 0)

    # -------------------------------------------------------------- sync bodies

    def blocking(self, attempt: Attempt, call: Callable[[], Awaitable[Any]]) -> Any:
        """Finish a door for a sync body.

        Most doors wait on this very thread, so that their coroutine runs through without a loop; cursors and
        steps need one, which is made for the first of them.
        """
        self._check(attempt)
        return self._finish(call())

    def _finish(self, work: Any) -> Any:
        if not self._needs_loop:
            try:
                work.send(None)
            except StopIteration as ended:
                return ended.value
            raise AssertionError("a door of a sync body waited for a loop")
        import asyncio

        with self._loop_lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
            return self._loop.run_until_complete(work)


class _LineHandler(logging.Handler):
    """Sends the records of the body's process to the node."""

    def __init__(self, line: ChildLine) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            if record.exc_info:
                text += "\n" + logging.Formatter().formatException(record.exc_info)
        except Exception as error:  # noqa: BLE001 - a bad format string must not fail the body that logs
            text = f"{record.msg!r} (cannot be formatted: {error})"
        self._line.say("log", level=record.levelname.lower(), logger=record.name, text=text)
