"""Errors of commands that a body runs. Their texts are masked where they are made (CMD-10)."""

from __future__ import annotations

import shlex
import signal
from typing import TYPE_CHECKING, Any

from towline.errors.root import TowlineError

if TYPE_CHECKING:
    from towline.modules.commands import CommandResult


def exit_words(returncode: int) -> str:
    """Say how a process ended: ``code 3``, or the signal's name for a negative code."""
    if returncode >= 0:
        return f"code {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


class CommandFailedError(TowlineError):
    """A command ended with a code that is not among ``ok_codes`` (CMD-03).

    ``tail``: the last 40 lines of stderr. ``result`` is the full result where the command ran, raw as the
    body would get it; it does not travel to other processes, where it is ``None``.
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        returncode: int,
        cwd: str,
        tail: str,
        result: CommandResult[Any] | None = None,
    ) -> None:
        super().__init__(argv, returncode, cwd, tail)
        self.argv, self.returncode, self.cwd, self.tail = tuple(argv), returncode, cwd, tail
        self.result = result

    def __str__(self) -> str:
        tail = f":\n{self.tail}" if self.tail else " and wrote nothing to stderr."
        return f"{shlex.join(self.argv)} ended with {exit_words(self.returncode)} in {self.cwd}{tail}"


class CommandTimeoutError(TowlineError):
    """A command did not end in time and was killed with all that it started (CMD-03, CMD-06).

    ``result``: the output so far, where the command ran.
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        timeout_s: float,
        cwd: str,
        tail: str,
        result: CommandResult[Any] | None = None,
    ) -> None:
        super().__init__(argv, timeout_s, cwd, tail)
        self.argv, self.timeout_s, self.cwd, self.tail = tuple(argv), timeout_s, cwd, tail
        self.result = result

    def __str__(self) -> str:
        tail = f" The end of its stderr:\n{self.tail}" if self.tail else ""
        return (
            f"{shlex.join(self.argv)} did not end within {self.timeout_s:g} s in {self.cwd} and was killed. "
            f"Raise timeout= if it needs longer.{tail}"
        )


class CommandNotFoundError(TowlineError):
    """There is no such program, or no such folder to run it in (CMD-04). ``missing``: which of both."""

    def __init__(self, program: str, missing: str, searched: str) -> None:
        super().__init__(program, missing, searched)
        self.program, self.missing, self.searched = program, missing, searched

    def __str__(self) -> str:
        if self.missing == "cwd":
            return f"cannot run {self.program} in {self.searched}: there is no such folder. Create it, or correct cwd=."
        if self.missing == "permission":
            return f"cannot run {self.program}: {self.searched} is no program that this user may execute. Correct its permissions or its first line."
        return (
            f"there is no program {self.program}; searched PATH: {self.searched}. Install it, or write its full path."
        )


class UnsafeArgumentError(TowlineError):
    """An argument cannot be given to a Windows batch file safely (CMD-05)."""

    def __init__(self, program: str, position: int, character: str) -> None:
        super().__init__(program, position, character)
        self.program, self.position, self.character = program, position, character

    def __str__(self) -> str:
        return (
            f"argument {self.position} of {self.program} holds {self.character!r}, which cmd.exe would interpret in a batch "
            f"file whatever the quoting. Call the program behind the batch file, or hand the text over by a file."
        )
