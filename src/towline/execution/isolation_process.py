"""The process of one body, seen from the node: its start, its line, its output, and its end (RUN-30, RUN-33 to 36)."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from towline.errors.commands import exit_words
from towline.errors.running import ProcessDiedError
from towline.execution import keeper, started
from towline.execution.isolation_messages import (
    FRAME_LIMIT,
    HEADER,
    Answer,
    Call,
    End,
    Raised,
    Returned,
    Said,
    Start,
    decode_from_body,
    frame,
)
from towline.execution.process_output import ProcessOutput, wait_until_set
from towline.execution.trees import ProcessTree
from towline.serialization.exceptions import record_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.execution.isolation_calls import BodyCalls
    from towline.execution.taskrun import TaskRun

STDERR_TAIL_BYTES: Final = 4 * 1024
"""How much of a dead process's stderr its error shows (RUN-35)."""

LEAVING_S: Final = 2.0
"""How long a process may take to leave once its body has ended."""

_ROOT: Final = str(Path(__file__).parents[2])
"""Where this very library lies: the child shall not find another one."""

_BOOT: Final = "import sys; sys.path.append(sys.argv.pop(1)); from towline.execution.child import main; main()"


class BodyProcess:
    """One child: its line, its output, and its end."""

    def __init__(self, run: TaskRun, calls: BodyCalls, graces_s: tuple[float, float]) -> None:
        self._run, self._calls, self._graces_s = run, calls, graces_s
        self._loop = asyncio.get_running_loop()
        self._body_code: int | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._answering: set[asyncio.Task[None]] = set()
        self._recording: set[asyncio.Task[None]] = set()
        self._transport: asyncio.SubprocessTransport
        self._output: ProcessOutput
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._control: socket.socket
        self._tree: ProcessTree

    # -------------------------------------------------------------- starting

    async def open(self, mask: Callable[[str], str], on_line: Callable[[str, str], None]) -> None:
        """Start the keeper, which starts the body."""
        frames, far_frames = socket.socketpair()
        self._control, far_control = socket.socketpair()
        self._control.setblocking(False)
        self._output = ProcessOutput(self._loop, mask, on_line, None, 2 * STDERR_TAIL_BYTES)
        try:
            transport, _ = await self._loop.subprocess_exec(
                lambda: self._output,
                sys.executable,
                "-P",
                "-c",
                _BOOT,
                _ROOT,
                str(far_frames.fileno()),
                str(far_control.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                cwd=self._run.attempt.workdir,
                env=os.environ.copy(),
                pass_fds=(far_frames.fileno(), far_control.fileno()),
                start_new_session=True,
            )
        except BaseException:
            frames.close()
            self._control.close()
            raise
        finally:
            far_frames.close()
            far_control.close()
        self._transport = transport
        self._tree = ProcessTree(transport.get_pid())
        started.watch(self._tree)
        self._reader, self._writer = await asyncio.open_connection(sock=frames)
        self._loop.add_reader(self._control, self._hear_keeper)

    def _hear_keeper(self) -> None:
        try:
            words = self._control.recv(4096)
        except OSError:
            words = b""
        if not words:
            self._loop.remove_reader(self._control)
        elif len(words) >= keeper.ENDED.size:
            self._body_code = keeper.ENDED.unpack(words[: keeper.ENDED.size])[1]

    # -------------------------------------------------------------- talking

    async def converse(self, start: Start) -> Returned | Raised:
        """Send the start, answer what the body asks, and return how it ended."""
        self._writer.write(frame(start))
        while True:
            try:
                message = await self._receive()
            except (asyncio.IncompleteReadError, ConnectionError):
                raise await self._died() from None
            except (msgspec.DecodeError, msgspec.ValidationError, _OversizeError) as error:
                self._kill()
                raise ProcessDiedError(self._run.kind.spec.name, f"it sent a malformed message ({error})") from error
            if isinstance(message, Returned | Raised):
                return message
            if isinstance(message, Call):
                self._answer(message)
            else:
                self._take(message)

    async def _receive(self) -> Call | Said | Returned | Raised:
        size = HEADER.unpack(await self._reader.readexactly(HEADER.size))[0]
        if size > FRAME_LIMIT:
            raise _OversizeError(f"a frame of {size} bytes")
        message: Call | Said | Returned | Raised = decode_from_body(await self._reader.readexactly(size))
        return message

    def _take(self, said: Said) -> None:
        try:
            self._calls.said(said.door, said.arguments)
        except asyncio.CancelledError:
            return  # the attempt is being ended: what it says now is dropped
        except KeyError as error:
            raise msgspec.ValidationError(f"unknown door {error}") from error

    def _answer(self, call: Call) -> None:
        answering = self._loop.create_task(self._answered(call))
        # What the body has done is recorded even while it is being ended (CUR-08).
        kept = self._recording if call.door.startswith("state_") else self._answering
        kept.add(answering)
        answering.add_done_callback(kept.discard)

    async def _answered(self, call: Call) -> None:
        try:
            answer = Answer(number=call.number, value=await self._calls.answer(call.door, call.arguments))
        except asyncio.CancelledError:
            return  # the body hears of its end by itself
        except Exception as error:  # noqa: BLE001 - what a door raises is the body's to handle
            answer = Answer(number=call.number, error=record_of(error))
        if not self._writer.is_closing():
            self._writer.write(frame(answer))

    async def _died(self) -> BaseException:
        """Say why the process ended without a result."""
        await wait_until_set(self._output.closed, LEAVING_S)
        if self._run.stop is not None:
            return asyncio.CancelledError("the process of the body was ended")
        code = self._body_code if self._body_code is not None else self._transport.get_returncode()
        how = exit_words(code) if code is not None else "it closed its line"
        if code == -9:
            how += ", perhaps out of memory"
        tail = self._output.kept[2].value()[-STDERR_TAIL_BYTES:].decode("utf-8", "backslashreplace")
        return ProcessDiedError(self._run.kind.spec.name, how, tail)

    # -------------------------------------------------------------- ending

    def ask_to_end(self) -> None:
        """Ask the body to end; then SIGTERM to its tree, then SIGKILL (RUN-33)."""
        self._send(End())
        for answering in self._answering:
            answering.cancel()
        cancel_s, terminate_s = self._graces_s
        self._timers.append(self._loop.call_later(cancel_s, self._tell_keeper, keeper.TERMINATE))
        self._timers.append(self._loop.call_later(cancel_s + terminate_s, self._kill))

    def _send(self, message: End) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame(message))

    def _tell_keeper(self, word: bytes) -> None:
        try:
            self._control.send(word)
        except OSError:  # the keeper has left: nothing is below it any more
            return

    def _kill(self) -> None:
        self._tell_keeper(keeper.KILL)

    async def close(self) -> None:
        """See the process and everything below it gone, and free the line; bounded."""
        for answering in (*self._answering, *self._recording):
            answering.cancel()
        try:
            if not await wait_until_set(self._output.exited, LEAVING_S):
                self._kill()
                await wait_until_set(self._output.exited, LEAVING_S)
        finally:
            for timer in self._timers:
                timer.cancel()
            self._loop.remove_reader(self._control)
            self._writer.close()
            self._control.close()  # should the keeper still live, this is its order to kill
            if not self._output.exited.done():
                self._tree.kill()
            started.forget(self._tree)
            await wait_until_set(self._output.closed, 0.1)
            self._output.finish()
            self._transport.close()


class _OversizeError(Exception):
    """A frame is longer than the limit."""
