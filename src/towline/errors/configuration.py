"""A setting that cannot be used."""

from __future__ import annotations

from typing import ClassVar

from towline.errors.root import TowlineError


class ConfigurationError(TowlineError):
    """A setting has a value that cannot work, alone or together with another.

    ``source`` says where the value came from: a flag, a variable, a file, ``given`` for an argument.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, setting: str, value: object, source: str, advice: str) -> None:
        super().__init__(setting, value, source, advice)
        self.setting, self.value, self.source, self.advice = setting, value, source, advice

    def __str__(self) -> str:
        return f"{self.setting} is {self.value} ({self.source}), which cannot be used: {self.advice}."
