"""Running a command for a body: its own session, its output, its end (CMD-01 to 13)."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from towline.errors.commands import CommandFailedError, CommandNotFoundError, CommandTimeoutError
from towline.execution import started
from towline.execution.command_output import CappedOutput, tail_of
from towline.execution.command_rules import (
    arguments_of,
    command_environment,
    refuse_unsafe_arguments,
    windows_program,
)
from towline.execution.process_output import ProcessOutput, wait_until_set
from towline.execution.trees import LEFTOVERS_AFTER_S, POLL_S, ProcessTree
from towline.modules.commands import CommandResult
from towline.modules.durations import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from os import PathLike

    from towline.modules.durations import Duration

TIMEOUT_S: Final = 1800.0
GRACE_S: Final = 5.0
HELD_PIPE_S: Final = 2.0
"""How long output is still read after the command has ended, if something that it started holds it (CMD-09)."""

CANCEL_WAIT_S: Final = 0.8
"""How long a cancelled call waits for the tree to end. It then goes on being ended in the background: a body
must see its cancellation within the grace of its task (RUN-48), which is shorter than a command's."""


async def run_command(
    argv: Sequence[str | PathLike[str]],
    *,
    workdir: str | PathLike[str],
    on_line: Callable[[str, str], None],
    mask: Callable[[str], str],
    cwd: str | PathLike[str] | None = None,
    env: Mapping[str, str | None] | None = None,
    input: str | bytes | None = None,
    timeout: Duration = TIMEOUT_S,
    check: bool = True,
    ok_codes: Collection[int] = (0,),
    capture: bool = True,
    encoding: str | None = "utf-8",
    grace: Duration = GRACE_S,
    replacement: Callable[..., Any] | None = None,
    dry: bool = False,
    environ: Mapping[str, str] | None = None,
) -> CommandResult[Any]:
    """Run a program without a shell and wait for its end.

    Args:
        argv: Program and arguments.
        workdir: Where it runs; a relative ``cwd`` starts there.
        on_line: Takes (stream, masked line) as output comes: ``stdout``, ``stderr``, and ``command`` for
            what Towline has to say about it.
        mask: Hides secrets in a text.
        cwd, env, input, timeout, check, ok_codes, capture, encoding, grace: As users write them in ``ctx.run``.
        replacement: ``Options.commands``: takes argv, cwd and the names in ``env``; may answer instead (CMD-13).
        dry: Run nothing; code 0 and no output.
        environ: The node's environment; default ``os.environ``.

    Raises:
        CommandFailedError: A code outside ``ok_codes``, if ``check``.
        CommandTimeoutError: It did not end in time; its tree was killed.
        CommandNotFoundError: No such program, or no such folder.
        UnsafeArgumentError: Windows: an argument that a batch file would interpret.
    """
    arguments = arguments_of(argv)
    command = _Command(
        arguments,
        os.path.join(workdir, cwd or ""),
        mask=mask,
        on_line=on_line,
        encoding=encoding,
        capture=capture,
        grace_s=seconds_of(grace),
    )
    result = await _replaced(command, env, replacement, dry)
    if result is None:
        environment = command_environment(os.environ if environ is None else environ, env)
        data = input.encode(encoding or "utf-8") if isinstance(input, str) else input
        result = await command.run(environment, data, seconds_of(timeout))
    if result.timed_out:
        raise CommandTimeoutError(result.argv, seconds_of(timeout), mask(command.cwd), command.tail(result), result)
    if check and result.returncode not in ok_codes:
        raise CommandFailedError(result.argv, result.returncode, mask(command.cwd), command.tail(result), result)
    return result


async def _replaced(
    command: _Command, env: Mapping[str, str | None] | None, replacement: Callable[..., Any] | None, dry: bool
) -> CommandResult[Any] | None:
    if replacement is not None:
        answer = replacement(command.arguments, command.cwd, tuple(env or ()))
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not None:
            if not isinstance(answer, CommandResult):
                raise TypeError(f"Options(commands=...) gave {type(answer).__name__}; it gives a CommandResult or None")
            return answer
    if dry:
        command.say(f"not run (dry): {' '.join(command.shown)}")
        empty: Any = b"" if command.encoding is None else ""
        return CommandResult(argv=command.shown, returncode=0, stdout=empty, stderr=empty, dry=True)
    return None


class _Command:
    """One command: what it is, and how it is run."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        cwd: str,
        *,
        mask: Callable[[str], str],
        on_line: Callable[[str, str], None],
        encoding: str | None,
        capture: bool,
        grace_s: float,
    ) -> None:
        self.arguments, self.cwd, self.encoding = arguments, cwd, encoding
        self.shown = tuple(mask(argument) for argument in arguments)
        self._mask, self._on_line, self._capture, self._grace_s = mask, on_line, capture, grace_s

    def say(self, text: str) -> None:
        """Tell the task's log something about this command."""
        self._on_line("command", text)

    def tail(self, result: CommandResult[Any]) -> str:
        """Return the masked end of its stderr."""
        text = result.stderr if isinstance(result.stderr, str) else result.stderr.decode("utf-8", "backslashreplace")
        return tail_of(self._mask(text))

    async def run(self, environment: dict[str, str], data: bytes | None, timeout_s: float) -> CommandResult[Any]:
        """Start it, wait for it, and end what is left of it when time is up or the caller is cancelled."""
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        output = ProcessOutput(loop, self._mask, self._on_line, self.encoding)
        spawning = loop.create_task(self._spawn(loop, output, environment, data))
        try:
            transport, tree = await asyncio.shield(spawning)
        except asyncio.CancelledError:
            # asyncio would kill the program alone; what it has started by now is to end with it.
            started.end_in_background(self._end_spawned(spawning, output))
            raise
        if data is not None:
            _write(transport, data)
        try:
            timed_out = not await wait_until_set(output.exited, timeout_s or None)
            if timed_out:
                await self._end_tree(tree, output)
            _forget(tree)
            is_closed = await wait_until_set(output.closed, HELD_PIPE_S)
        except asyncio.CancelledError:
            ending = started.end_in_background(self._end_and_close(tree, output, transport))
            # A second cancel during this wait ends it, which is as good: the tree goes on being ended.
            await asyncio.wait((ending,), timeout=CANCEL_WAIT_S)
            raise
        if not is_closed:
            self.say(f"something that {self.shown[0]} started still holds its output; it is read no longer")
        output.finish()
        transport.close()
        return self._result(transport.get_returncode(), output, loop.time() - started_at, timed_out)

    def _result(
        self, returncode: int | None, output: ProcessOutput, duration_s: float, timed_out: bool
    ) -> CommandResult[Any]:
        out, err = output.kept[1], output.kept[2]
        if not self._capture:
            out, err = CappedOutput(), CappedOutput()
        stdout: Any = out.value() if self.encoding is None else out.text(self.encoding)
        stderr: Any = err.value() if self.encoding is None else err.text(self.encoding)
        return CommandResult(
            argv=self.shown,
            returncode=-signal.SIGKILL if returncode is None else returncode,
            stdout=stdout,
            stderr=stderr,
            stdout_truncated=out.truncated,
            stderr_truncated=err.truncated,
            duration_s=duration_s,
            timed_out=timed_out,
        )

    # -------------------------------------------------------------- starting

    async def _spawn(
        self, loop: asyncio.AbstractEventLoop, output: ProcessOutput, environment: dict[str, str], data: bytes | None
    ) -> tuple[asyncio.SubprocessTransport, ProcessTree]:
        program = self._program(environment)
        started.warden.open()
        try:
            with started.starting():
                transport, _ = await loop.subprocess_exec(
                    lambda: output,
                    program,
                    *self.arguments[1:],
                    stdin=asyncio.subprocess.PIPE if data is not None else asyncio.subprocess.DEVNULL,
                    cwd=self.cwd,
                    env=environment,
                    start_new_session=True,
                )
                tree = ProcessTree(transport.get_pid())
                started.watch(tree)
                started.warden.watch(tree.root)
        except FileNotFoundError as error:
            raise self._not_found(program, environment) from error
        except PermissionError as error:
            raise CommandNotFoundError(self.shown[0], "permission", self._mask(str(error.filename))) from error
        return transport, tree

    def _program(self, environment: dict[str, str]) -> str:
        """Check the folder, and on Windows find the program and check its arguments."""
        if not os.path.isdir(self.cwd):
            raise CommandNotFoundError(self.shown[0], "cwd", self._mask(self.cwd))
        program = self.arguments[0]
        if sys.platform != "win32":
            return program
        path, endings = environment.get("PATH", ""), environment.get("PATHEXT", ".EXE")
        found = windows_program(program, path, endings, os.path.isfile)
        if found is None:
            raise CommandNotFoundError(self.shown[0], "program", path)
        refuse_unsafe_arguments(found, self.arguments[1:])
        return found

    def _not_found(self, program: str, environment: dict[str, str]) -> CommandNotFoundError:
        """Tell a missing program from one whose first line names a missing interpreter."""
        if os.sep in program and Path(self.cwd, program).is_file():
            return CommandNotFoundError(self.shown[0], "permission", self._mask(program))
        return CommandNotFoundError(self.shown[0], "program", environment.get("PATH", os.defpath))

    # -------------------------------------------------------------- ending

    async def _end_spawned(
        self, spawning: asyncio.Task[tuple[asyncio.SubprocessTransport, ProcessTree]], output: ProcessOutput
    ) -> None:
        try:
            transport, tree = await spawning
        except CommandNotFoundError:
            return  # there is nothing to end, and nobody to tell
        await self._end_and_close(tree, output, transport)

    async def _end_and_close(
        self, tree: ProcessTree, output: ProcessOutput, transport: asyncio.SubprocessTransport
    ) -> None:
        try:
            await self._end_tree(tree, output)
        finally:
            transport.close()

    async def _end_tree(self, tree: ProcessTree, output: ProcessOutput) -> None:
        """Ask the tree to end, then kill it: all of it after the grace, the rest soon after the root (RUN-33)."""
        loop = asyncio.get_running_loop()
        try:
            tree.send(signal.SIGTERM)
            kill_at = loop.time() + self._grace_s
            is_dying = False
            while loop.time() < kill_at:
                await asyncio.sleep(POLL_S)
                if not tree.look():
                    return
                if output.exited.done() and not is_dying:
                    is_dying = True
                    kill_at = min(kill_at, loop.time() + LEFTOVERS_AFTER_S)
        finally:
            tree.kill()
            _forget(tree)
            await wait_until_set(output.exited, HELD_PIPE_S)


def _forget(tree: ProcessTree) -> None:
    started.forget(tree)
    started.warden.forget(tree.root)


def _write(transport: asyncio.SubprocessTransport, data: bytes) -> None:
    """Give the command its input; one that reads less of it simply ends earlier."""
    stdin: Any = transport.get_pipe_transport(0)
    stdin.write(data)
    stdin.write_eof()
