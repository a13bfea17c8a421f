"""Errors around secrets. None of them holds a value."""

from __future__ import annotations

from towline.errors.root import TowlineError


class SecretError(TowlineError):
    """A secret is missing, or cannot be masked."""


class SecretMissingError(SecretError):
    """No variable holds the secret (SEC-01)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"secret {self.name!r} is not set: set the variable {self.name} or TOWLINE_SECRET_{self.name} on this node."
        )


class SecretLimitError(SecretError):
    """More or larger secrets than can be masked (SEC-10)."""

    def __init__(self, what: str, actual: int, limit: int) -> None:
        super().__init__(what, actual, limit)
        self.what, self.actual, self.limit = what, actual, limit

    def __str__(self) -> str:
        return f"too much to mask: {self.what} is {self.actual:,}, at most {self.limit:,}. Register fewer or shorter values."


class SecretTravelError(SecretError):
    """A secret was about to leave its process (SEC-02)."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how

    def __str__(self) -> str:
        return f"a Secret cannot be {self.how}: it never leaves its process. Read it again where it is needed."


class SecretInResultError(SecretError):
    """The result of a task contains a registered secret (SEC-09)."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id

    def __str__(self) -> str:
        return (
            f"the result of {self.task_id} contains a registered secret, and results are stored as they are. "
            f"Return something else, and let the reader ask ctx.secret(...) itself."
        )
