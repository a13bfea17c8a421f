"""What an operator is told while a server does not answer (STATE-07, COORD-R20)."""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING

from towline.access.outages import outages

if TYPE_CHECKING:
    from collections.abc import Callable


RUN_ENDS = "the run ends, and can be resumed"
START_ENDS = "the start is given up, before anything has run"


def tell_outages(tell: Callable[[str], None], limit_s: float, then: str = RUN_ENDS) -> Callable[[], None]:
    """Tell of servers that are silent, once when it begins and once when it is over; returns what ends that.

    ``tell`` is called in any thread. ``limit_s``: how long a server is waited for; ``then``: what comes after that.
    """

    def say(text: str) -> None:
        # The call that met the silence may be a body's: in its context the line would go into the log of that task.
        Context().run(tell, text)

    def heard(server: str, silent_s: float, cause: str) -> None:
        if cause:
            say(
                f"no answer from {server} for {silent_s:.0f} s ({cause}). It is waited for until that has lasted "
                f"{limit_s:g} s; then {then}"
            )
        else:
            say(f"{server} answers again, after {silent_s:.0f} s")

    return outages.hear(heard)
