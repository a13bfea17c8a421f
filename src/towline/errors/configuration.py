"""A setting that cannot be used."""

from __future__ import annotations

from typing import ClassVar

from towline.errors.root import TowlineError


class ConfigurationError(TowlineError):
    """A setting has a value that cannot work, alone or together with another.

    ``source`` says where the value came from: a flag, a variable, a file, ``given`` for an argument. ``value`` is
    ``None`` where one is missing.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, setting: str, value: object, source: str, advice: str) -> None:
        super().__init__(setting, value, source, advice)
        self.setting, self.value, self.source, self.advice = setting, value, source, advice

    def __str__(self) -> str:
        end = "" if self.advice.endswith(("?", ".")) else "."
        if self.value is None:
            return f"{self.setting} is not given ({self.source}): {self.advice}{end}"
        return f"{self.setting} is {self.value} ({self.source}), which cannot be used: {self.advice}{end}"


class RunParamsError(TowlineError):
    """Parameters of a run that cannot be used: unknown, of the wrong form, or missing; all of them together."""

    exit_code: ClassVar[int] = 2

    def __init__(self, pipeline: str, problems: tuple[str, ...]) -> None:
        super().__init__(pipeline, problems)
        self.pipeline, self.problems = pipeline, problems

    def __str__(self) -> str:
        if len(self.problems) == 1:
            problem = self.problems[0]
            return f"{self.pipeline} cannot run with these parameters: {problem}{'' if problem.endswith(('?', '.')) else '.'}"
        lines = "".join(f"\n  {number}. {problem}" for number, problem in enumerate(self.problems, 1))
        return f"{self.pipeline} cannot run with these parameters; {len(self.problems)} things to repair:{lines}"


class UnknownNameError(TowlineError):
    """A name that was given stands for nothing there is: a task, a run, a parameter.

    ``place``: where it was looked for. ``hint``: the nearest name, or what to do; a whole sentence.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, kind: str, name: str, place: str, hint: str) -> None:
        super().__init__(kind, name, place, hint)
        self.kind, self.name, self.place, self.hint = kind, name, place, hint

    def __str__(self) -> str:
        return f"there is no {self.kind} {self.name!r} in {self.place}. {self.hint.strip()}".rstrip()


class AmbiguousNameError(TowlineError):
    """A name that was given stands for several things."""

    exit_code: ClassVar[int] = 2

    def __init__(self, kind: str, name: str, choices: tuple[str, ...]) -> None:
        super().__init__(kind, name, choices)
        self.kind, self.name, self.choices = kind, name, choices

    def __str__(self) -> str:
        return f"{self.name!r} stands for more than one {self.kind}: give one of {', '.join(self.choices)}."


class NothingHereError(TowlineError):
    """No state was found where it was looked for."""

    exit_code: ClassVar[int] = 2

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place

    def __str__(self) -> str:
        return (
            f"no run has left anything in {self.place}. Go to the folder where the run was started, or name its "
            f"state with --state .towline/<pipeline>."
        )


class CancelError(TowlineError):
    """A run could not be cancelled from here."""

    exit_code: ClassVar[int] = 2

    def __init__(self, state: str, detail: str) -> None:
        super().__init__(state, detail)
        self.state, self.detail = state, detail

    def __str__(self) -> str:
        return f"the run in {self.state} was not cancelled: {self.detail}."
