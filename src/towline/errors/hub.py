"""Errors of the line between a worker and the master that hosts its run."""

from __future__ import annotations

from typing import ClassVar

from towline.errors.coordination import CoordinationError
from towline.errors.root import TowlineError


class HubRefusedError(CoordinationError):
    """The master refused a request for a reason that no other error stands for. ``code``: of COORD-H."""

    exit_code: ClassVar[int] = 4

    def __init__(self, code: str, text: str, operation: str = "") -> None:
        TowlineError.__init__(self, code, text, operation)
        self.code, self.text, self.operation = code, text, operation

    def __str__(self) -> str:
        what = f" {self.operation}" if self.operation else ""
        advice = _ADVICE.get(self.code, "Both sides must run the same version of Towline.")
        return f"the master refused{what} ({self.code}): {self.text}. {advice}"


_ADVICE = {
    "unauthorized": "Give the worker the token of the run in TOWLINE_TOKEN or TOWLINE_TOKEN_FILE.",
    "wrong_run": "Start the worker with the run id of this master.",
    "wrong_worker": "A connection speaks for the worker that it registered, and for no other.",
    "not_registered": "Register first.",
    "too_many": "Start fewer workers, or let each ask less at once.",
    "shutting_down": "The run has ended; nothing is to be done.",
}


class FrameTooLargeError(CoordinationError):
    """A message is larger than one frame may be; it was not sent (COORD-H19)."""

    exit_code: ClassVar[int] = 1

    def __init__(self, operation: str, size_bytes: int, limit_bytes: int) -> None:
        TowlineError.__init__(self, operation, size_bytes, limit_bytes)
        self.operation, self.size_bytes, self.limit_bytes = operation, size_bytes, limit_bytes

    def __str__(self) -> str:
        return (
            f"{self.operation} is a message of {self.size_bytes:,} bytes, the limit is {self.limit_bytes:,}. "
            "Keep large data in files, as artifacts."
        )
