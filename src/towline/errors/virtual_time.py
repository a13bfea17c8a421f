"""What the virtual-time loop of the test kit refuses (TEST-04, TEST-07)."""

from __future__ import annotations

from towline.errors.root import TowlineError


class VirtualDeadlockError(TowlineError):
    """Everything on a virtual loop waits, and neither a timer nor a registered thread can end it."""

    def __init__(self, now_s: float, waiters: tuple[str, ...]) -> None:
        super().__init__(now_s, waiters)
        self.now_s, self.waiters = now_s, waiters

    def __str__(self) -> str:
        lines = "".join(f"\n  {waiter}" for waiter in self.waiters) or "\n  (no task is left)"
        return (
            f"nothing can happen any more at virtual second {self.now_s:g}: no callback is ready and no timer is set. "
            f"Set what these wait for, or let the thread that will set it hold the clock (loop.hold_clock()):{lines}"
        )


class RealTimeError(TowlineError):
    """Code on a virtual loop reached for something that takes real time: a socket, a process, a thread."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return (
            f"{self.what} takes real time, which a virtual loop cannot wait for. Give the code under test a fake, "
            f"or run this test on a real loop; a thread may call in while it holds the clock (loop.hold_clock())."
        )


class SignalPointError(TowlineError):
    """A test named a point that the code does not have, or the code never came to one that the test named."""

    def __init__(self, point: str, problem: str) -> None:
        super().__init__(point, problem)
        self.point, self.problem = point, problem

    def __str__(self) -> str:
        return f"signal point {self.point!r} {self.problem}"
