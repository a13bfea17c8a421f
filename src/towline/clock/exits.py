"""Leaving the process, as a door that a test can watch."""

from __future__ import annotations

import os
from typing import NoReturn, Protocol


class Exit(Protocol):
    """Ends the process at once, without waiting for threads."""

    def __call__(self, code: int, /) -> NoReturn:
        """Leave with this exit code."""
        ...


class SystemExitDoor:
    """``os._exit``: nothing is joined, flushed or cleaned; the caller has done that."""

    def __call__(self, code: int, /) -> NoReturn:
        os._exit(code)
