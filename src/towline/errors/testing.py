"""What the test kit for modules refuses, by name (TEST-03)."""

from __future__ import annotations

from towline.errors.root import TowlineError


class UnseededInputError(TowlineError):
    """A module under test needs a dependency that the test did not give, or was given one that it does not have."""

    def __init__(self, module: str, dependency: str, problem: str) -> None:
        super().__init__(module, dependency, problem)
        self.module, self.dependency, self.problem = module, dependency, problem

    def __str__(self) -> str:
        return f"the test of {self.module} and {self.dependency}: {self.problem}"


class UnscriptedCallError(TowlineError):
    """A body under test asked its context for something that the test gave no answer to."""

    def __init__(self, kind: str, asked: str, known: tuple[str, ...]) -> None:
        super().__init__(kind, asked, known)
        self.kind, self.asked, self.known = kind, asked, known

    def __str__(self) -> str:
        known = ", ".join(self.known) or "none"
        return f"the body asked for the {self.kind} {asked_text(self.asked)}, which the test does not give. Given: {known}."


def asked_text(asked: str) -> str:
    """Quote what was asked for, cut at 200 characters."""
    return repr(asked if len(asked) <= 200 else asked[:199] + "…")
