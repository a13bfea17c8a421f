"""What a shape says of a value or document that is not of its type; the codec makes an error of it."""

from __future__ import annotations


class MisfitError(Exception):
    """A value or a read document is not of its declared type; gathers its path on the way up.

    ``actual`` names the class of a value that is of another one; it is empty where the class is right and
    ``detail`` says what is wrong.
    """

    def __init__(self, detail: str, *, declared: str = "", actual: str = "") -> None:
        super().__init__(detail)
        self.detail, self.declared, self.actual = detail, declared, actual
        self.steps: list[str] = []

    def within(self, step: str) -> MisfitError:
        """Add the step that led here: ``.name`` or ``[index]``."""
        self.steps.append(step)
        return self

    @property
    def path(self) -> str:
        """Where it is, from the outside in: ``.files[3].size``."""
        return "".join(reversed(self.steps))
