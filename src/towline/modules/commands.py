"""What ``ctx.run`` takes and gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, AnyStr, Generic, TypedDict

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from os import PathLike

    from towline.modules.durations import Duration


class CommandOptions(TypedDict, total=False):
    """The keywords of ``ctx.run`` besides ``encoding`` (CMD-01).

    ``cwd``: default the task's workdir. ``env``: added to the node's environment; ``None`` removes a
    variable. ``input``: given to stdin, which is empty without. ``timeout``: default 1800 s. ``check``: a
    code outside ``ok_codes`` raises ``CommandFailedError``. ``capture``: keep the output for the result,
    1 MiB per stream. ``grace``: time between the request to end and the kill, default 5 s.
    """

    cwd: str | PathLike[str]
    env: Mapping[str, str | None]
    input: str | bytes
    timeout: Duration
    check: bool
    ok_codes: Collection[int]
    capture: bool
    grace: Duration


class CommandResult(msgspec.Struct, Generic[AnyStr], frozen=True, kw_only=True):
    """How a command ended. ``argv`` is masked; ``stdout`` and ``stderr`` are raw, being data for the body (CMD-10).

    ``*_truncated``: the stream was longer than what is kept, and its middle is missing. ``dry``: nothing was
    run, because of ``dry_commands``.
    """

    argv: tuple[str, ...]
    returncode: int
    stdout: AnyStr
    stderr: AnyStr
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    duration_s: float = 0.0
    timed_out: bool = False
    dry: bool = False
