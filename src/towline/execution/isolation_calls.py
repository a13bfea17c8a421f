"""Answering what the process of a body asks: each call goes through the doors of the node (RUN-32)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from towline.artifacts.records import ArtifactRef
from towline.errors.commands import CommandFailedError, CommandTimeoutError
from towline.execution.isolation_messages import NOTHING, CommandAnswer, CommandOptions, raw
from towline.modules.outcomes import Finding
from towline.serialization.exceptions import record_of
from towline.state.cursor import CursorProgress
from towline.state.keys import cursor_key, skips_key, step_prefix
from towline.state.store import ABSENT, ANYTHING, Fence

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.execution.taskrun import TaskRun
    from towline.modules.doors import Doors
    from towline.state.store import Absent, Anything, StateStore


class TaskLog(Protocol):
    """Where the lines of a body go (``execution.output.Output``)."""

    def log(self, attempt: Any, level: str, text: str, logger: str = "") -> None: ...

    def printed(self, attempt: Any, stream: str, text: str) -> None: ...


class _Log(msgspec.Struct):
    level: str
    logger: str
    text: str


class _Progress(msgspec.Struct):
    done: int
    total: int | None


class _Moved(msgspec.Struct):
    progress: CursorProgress


class _Named(msgspec.Struct):
    name: str


class _Value(msgspec.Struct):
    value: str


class _Found(msgspec.Struct):
    finding: Finding


class _Command(msgspec.Struct):
    argv: list[str]
    options: CommandOptions


class _Put(msgspec.Struct):
    name: str
    path: str


class _Get(msgspec.Struct):
    reference: ArtifactRef
    into: str


class _Find(msgspec.Struct):
    module: str
    name: str


class _Key(msgspec.Struct):
    key: str


class _Write(msgspec.Struct):
    key: str
    data: bytes
    expect: Any


class _Append(msgspec.Struct):
    key: str
    line: bytes


class _Delete(msgspec.Struct):
    key: str
    expect: Any


class _List(msgspec.Struct):
    prefix: str


_ARGUMENTS: dict[str, type[msgspec.Struct]] = {
    "log": _Log,
    "progress": _Progress,
    "cursor_moved": _Moved,
    "secret": _Named,
    "mask": _Value,
    "finding": _Found,
    "run": _Command,
    "put_artifact": _Put,
    "get_artifact": _Get,
    "find_artifacts": _Find,
    "state_read": _Key,
    "state_write": _Write,
    "state_append": _Append,
    "state_delete": _Delete,
    "state_list": _List,
}


class BodyCalls:
    """The doors of one attempt, as its process may use them.

    Only state of this task is within reach, and every write carries the epoch of its claim, whatever the
    process says.
    """

    def __init__(
        self,
        run: TaskRun,
        doors: Doors,
        log: TaskLog,
        state: StateStore,
        plan_id: str,
        cursor_moved: Callable[[TaskRun, CursorProgress], None],
    ) -> None:
        self._run, self._attempt, self._doors, self._log, self._state = run, run.attempt, doors, log, state
        self._cursor_moved = cursor_moved
        task = run.attempt.task_id
        self._fence = Fence(run.attempt.epoch, task, plan_id)
        self._documents = (cursor_key(task), skips_key(task))
        self._folder = step_prefix(task)

    def said(self, door: str, arguments: msgspec.Raw) -> None:
        """Take a message that needs no answer.

        Raises:
            msgspec.ValidationError, KeyError: It is malformed.
        """
        said: Any = msgspec.json.decode(arguments, type=_ARGUMENTS[door])
        if door == "log":
            for line in said.text.split("\n"):
                self._log.log(self._attempt, said.level, line, said.logger)
        elif door == "progress":
            self._doors.progress(self._attempt, said.done, said.total)
        elif door == "cursor_moved":
            self._cursor_moved(self._run, said.progress)
        else:
            raise KeyError(door)

    async def answer(self, door: str, arguments: msgspec.Raw) -> msgspec.Raw:
        """Do what a call asks and return the answer; what the door raises is raised.

        Raises:
            msgspec.ValidationError, KeyError: It is malformed.
        """
        asked: Any = msgspec.json.decode(arguments, type=_ARGUMENTS[door])
        doors, attempt = self._doors, self._attempt
        match door:
            case "secret":
                return raw(doors.secret(attempt, asked.name).reveal())
            case "mask":
                doors.mask(attempt, asked.value)
                return NOTHING
            case "finding":
                doors.finding(attempt, asked.finding)
                return NOTHING
            case "run":
                return raw(await self._command(asked))
            case "put_artifact":
                return raw(await doors.put_artifact(attempt, asked.name, asked.path))
            case "get_artifact":
                return raw(str(await doors.get_artifact(attempt, asked.reference, asked.into)))
            case "find_artifacts":
                return raw(doors.find_artifacts(attempt, asked.module, asked.name))
            case _:
                return raw(await self._on_state(door, asked))

    async def _command(self, asked: _Command) -> CommandAnswer:
        try:
            result = await self._doors.run(self._attempt, tuple(asked.argv), asked.options.keywords())
        except (CommandFailedError, CommandTimeoutError) as error:
            if error.result is None:
                raise
            return CommandAnswer.of(error.result, record_of(error))
        return CommandAnswer.of(result, None)

    async def _on_state(self, door: str, asked: Any) -> Any:
        if door == "state_list":
            self._allow(asked.prefix)
            return [key async for key in self._state.list(asked.prefix)]
        self._allow(asked.key)
        match door:
            case "state_read":
                return await self._state.read(asked.key)
            case "state_write":
                return await self._state.write(asked.key, asked.data, _expected(asked.expect), self._fence)
            case "state_append":
                return await self._state.append(asked.key, asked.line, self._fence)
            case "state_delete":
                expect = _expected(asked.expect)
                return await self._state.delete(asked.key, ANYTHING if expect is ABSENT else expect)  # type: ignore[arg-type]
        raise KeyError(door)

    def _allow(self, key: str) -> None:
        if key not in self._documents and not key.startswith(self._folder):
            raise PermissionError(f"{key!r} is no state of {self._attempt.task_id}")


def _expected(expect: Any) -> str | Absent | Anything:
    if isinstance(expect, dict):
        return str(expect["version"])
    return ABSENT if expect == "absent" else ANYTHING
