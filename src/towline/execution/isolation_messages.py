"""What a node and the child process of a body say to each other: length-prefixed JSON (RUN-30, RUN-32)."""

from __future__ import annotations

from struct import Struct as Layout
from typing import Any, Final, Literal, TypeAlias

import msgspec

from towline.modules.commands import CommandResult
from towline.modules.target import TargetRef
from towline.serialization.errors_record import ErrorRecord

FRAME_LIMIT: Final = 96 * 1024 * 1024
"""Largest frame from a child, in bytes: an encoded value of 64 MiB and what is around it."""

NOTHING: Final = msgspec.Raw(b"null")
"""What stands in a message where there is no value; ``Raw | None`` cannot be decoded."""

HEADER: Final = Layout("<I")


class AttemptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one attempt as they travel; ``matrix`` holds the place of each axis value in its module."""

    task_id: str
    module: str
    key: str | None
    run_id: str
    attempt: int
    epoch: int
    worker_id: str
    workdir: str
    plan_id: str
    matrix: dict[str, int]


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """Load the program and run this body."""

    target: TargetRef
    attempt: AttemptFacts
    inputs: dict[str, msgspec.Raw]
    item: msgspec.Raw
    item_place: int | None
    params: msgspec.Raw
    log_level: int


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """The answer to a ``Call``: a value, or the error that its door raised, with the result of a command."""

    number: int
    value: msgspec.Raw = NOTHING
    error: ErrorRecord | None = None


class End(msgspec.Struct, frozen=True, tag="end"):
    """The attempt is to end: its context raises from now on."""


class Call(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """Ask a door of the node, and wait for the ``Answer`` of that number."""

    number: int
    door: str
    arguments: msgspec.Raw


class Said(msgspec.Struct, frozen=True, kw_only=True, tag="said"):
    """Tell the node something that needs no answer."""

    door: str
    arguments: msgspec.Raw


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """The body returned this value."""

    value: msgspec.Raw


class Raised(msgspec.Struct, frozen=True, kw_only=True, tag="raised"):
    """The body raised: an error, ``Skip``, ``KeyboardInterrupt`` or the cancellation that it was asked for."""

    kind: Literal["error", "skip", "interrupt", "cancelled"]
    error: ErrorRecord


class CommandOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The keywords of a command as they travel; absent ones have their defaults on the node."""

    cwd: str | None = None
    env: dict[str, str | None] | None = None
    input: bytes | None = None
    timeout: float | msgspec.UnsetType = msgspec.UNSET
    check: bool = True
    ok_codes: list[int] | msgspec.UnsetType = msgspec.UNSET
    capture: bool = True
    encoding: str | None = "utf-8"
    grace: float | msgspec.UnsetType = msgspec.UNSET

    def keywords(self) -> dict[str, Any]:
        """Give those that are set, for the door."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in given.items() if value is not msgspec.UNSET}


class CommandAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended: its result, the streams as bytes, and the error that it raised, if any."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes
    is_text: bool
    stdout_truncated: bool
    stderr_truncated: bool
    duration_s: float
    timed_out: bool
    dry: bool
    error: ErrorRecord | None = None

    @classmethod
    def of(cls, result: CommandResult[Any], error: ErrorRecord | None) -> CommandAnswer:
        """Write a result down."""
        is_text = isinstance(result.stdout, str)
        return cls(
            argv=result.argv,
            returncode=result.returncode,
            stdout=result.stdout.encode("utf-8", "surrogatepass") if is_text else result.stdout,
            stderr=result.stderr.encode("utf-8", "surrogatepass") if is_text else result.stderr,
            is_text=is_text,
            stdout_truncated=result.stdout_truncated,
            stderr_truncated=result.stderr_truncated,
            duration_s=result.duration_s,
            timed_out=result.timed_out,
            dry=result.dry,
            error=error,
        )

    def result(self) -> CommandResult[Any]:
        """Make the result that a body gets."""
        stdout: Any = self.stdout.decode("utf-8", "surrogatepass") if self.is_text else self.stdout
        stderr: Any = self.stderr.decode("utf-8", "surrogatepass") if self.is_text else self.stderr
        return CommandResult(
            argv=self.argv,
            returncode=self.returncode,
            stdout=stdout,
            stderr=stderr,
            stdout_truncated=self.stdout_truncated,
            stderr_truncated=self.stderr_truncated,
            duration_s=self.duration_s,
            timed_out=self.timed_out,
            dry=self.dry,
        )


FromNode: TypeAlias = Start | Answer | End
FromBody: TypeAlias = Call | Said | Returned | Raised

_encode = msgspec.json.Encoder().encode
decode_from_node: Any = msgspec.json.Decoder(FromNode).decode
decode_from_body: Any = msgspec.json.Decoder(FromBody).decode


def frame(message: FromNode | FromBody) -> bytes:
    """Encode one message with its length in front: 4 bytes, little-endian."""
    data = _encode(message)
    return HEADER.pack(len(data)) + data


def raw(value: object) -> msgspec.Raw:
    """Encode plain data to stand inside a message."""
    return msgspec.Raw(_encode(value))
