"""How a running kernel learns that nobody waits for it any more (OFF-115)."""

from __future__ import annotations

import threading

_running = threading.local()


class CancelFlag:
    """One flag per running kernel; set from another thread or a signal handler."""

    __slots__ = ("is_set",)

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        """Tell the kernel; it need not look."""
        self.is_set = True


def enter(flag: CancelFlag | None) -> None:
    """Make ``flag`` the one that ``cancelled`` reads in this thread; None when no kernel runs."""
    _running.flag = flag


def cancelled() -> bool:
    """Tell a running kernel whether its call was cancelled. Asking is optional; outside a kernel: False."""
    flag: CancelFlag | None = getattr(_running, "flag", None)
    return flag is not None and flag.is_set
