"""Errors of what is written down before anything runs: modules, settings, dependencies, targets."""

from __future__ import annotations

import reprlib
from typing import ClassVar

from towline.errors.root import TowlineError

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 120
_SHOWN.maxlist = _SHOWN.maxtuple = _SHOWN.maxdict = _SHOWN.maxset = 8


class DeclarationError(TowlineError):
    """Something was declared that cannot be meant: a wrong value, an unknown name, a contradiction (MOD-08, MOD-09).

    ``module`` is who declares it, ``setting`` what it declares, ``allowed`` what could stand there instead and,
    for a misspelt name, the nearest known one. ``where`` is ``file:line`` when known.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, module: str, setting: str, value: object, allowed: str, where: str | None = None) -> None:
        super().__init__(module, setting, value, allowed, where)
        self.module, self.setting, self.value, self.allowed, self.where = module, setting, value, allowed, where

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        end = "" if self.allowed.endswith(("?", ".")) else "."
        return f"{self.module}{place}: {self.setting}={_SHOWN.repr(self.value)} cannot be used: {self.allowed}{end}"


class UndeclaredDependencyError(TowlineError):
    """A body reached for a module, or its result, without declaring it (MOD-15).

    ``reader`` is the task, or the code, that reaches; ``read`` names the module. ``param`` is the parameter that
    was left without a value when a body was called as a plain function.
    """

    def __init__(self, reader: str, read: str, param: str | None = None) -> None:
        super().__init__(reader, read, param)
        self.reader, self.read, self.param = reader, read, param

    def __str__(self) -> str:
        if self.param is not None:
            return (
                f"{self.reader} gives no value for {self.param}, which stands for what {self.read} gives. "
                f"A run fills it in; outside of one, pass {self.param}=... as a unit test does."
            )
        return (
            f"{self.reader} reaches for {self.read}, which it was not given. Declare it where it is used, as the "
            f"default of a parameter or field: result_of({self.read}); in a unit test, pass the value."
        )


class TargetLoadError(TowlineError):
    """The file or package that declares a pipeline cannot be loaded (MOD-24 to MOD-28).

    ``detail`` may have several lines: of an import that raised it holds the traceback of the user's own frames.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, target: str, cause: str, hint: str, detail: str = "") -> None:
        super().__init__(target, cause, hint, detail)
        self.target, self.cause, self.hint, self.detail = target, cause, hint, detail

    def __str__(self) -> str:
        text = f"{self.target} cannot be loaded: {self.cause}. {self.hint}"
        return f"{text}\n{self.detail}" if self.detail else text
