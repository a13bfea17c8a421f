"""Answers that a test gives beforehand, and a record of what a body asked for (TEST-02, TEST-03)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from towline.errors.commands import CommandFailedError
from towline.errors.testing import UnscriptedCallError
from towline.masking import Secret
from towline.modules.commands import CommandResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from towline.modules.outcomes import Finding


class Script:
    """What is given, and what was asked. One object serves all attempts of one test."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, ...], tuple[str, str, int]] = {}
        self.secrets: dict[str, str] = {}
        self.params: object = None
        self.commands: list[tuple[str, ...]] = []
        self.findings: list[Finding] = []

    def run(self, argv: Sequence[str | os.PathLike[str]], options: Mapping[str, Any]) -> CommandResult[Any]:
        """Answer a command as ``ctx.run`` would.

        Raises:
            UnscriptedCallError: The test gave no answer to this one.
            CommandFailedError: The answer is a code that the caller does not accept.
        """
        words = tuple(os.fspath(word) for word in argv)
        self.commands.append(words)
        if words not in self.answers:
            known = tuple(" ".join(one) for one in self.answers)
            raise UnscriptedCallError("command", " ".join(words), known)
        stdout, stderr, returncode = self.answers[words]
        encoding = options.get("encoding", "utf-8")
        result: CommandResult[Any] = CommandResult(
            argv=words,
            returncode=returncode,
            stdout=stdout.encode() if encoding is None else stdout,
            stderr=stderr.encode() if encoding is None else stderr,
        )
        if options.get("check", True) and returncode not in options.get("ok_codes", (0,)):
            raise CommandFailedError(words, returncode, ".", stderr or stdout, result)
        return result

    def secret(self, name: str) -> Secret:
        """Give a secret.

        Raises:
            UnscriptedCallError: The test gave no such secret.
        """
        if name not in self.secrets:
            raise UnscriptedCallError("secret", name, tuple(self.secrets))
        return Secret(self.secrets[name])


class Scripted:
    """The part of a fake or tester with which a test writes its script and reads the record."""

    _script: Script

    @property
    def commands(self) -> Sequence[tuple[str, ...]]:
        """The commands that the body ran, in order."""
        return tuple(self._script.commands)

    @property
    def findings(self) -> Sequence[Finding]:
        """The findings that the body recorded, in order."""
        return tuple(self._script.findings)

    def command(self, *argv: str, stdout: str = "", stderr: str = "", returncode: int = 0) -> Self:
        """Answer this command, however often it is run; one that was not named fails the test."""
        self._script.answers[argv] = (stdout, stderr, returncode)
        return self

    def with_params(self, params: object, /) -> Self:
        """Give the parameters of the run."""
        self._script.params = params
        return self

    def with_secret(self, name: str, value: str) -> Self:
        """Give a secret of the node."""
        self._script.secrets[name] = value
        return self
