"""The claim that a worker stands with: known to the server while it finds nothing, served with a wake-up (COORD-R11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.coordination.redis.replies import granted

if TYPE_CHECKING:
    from towline.coordination.records import Lease, SessionRef
    from towline.coordination.redis.subscriber import RedisWatch


class StandingClaim:
    """One session's claim while it finds nothing. Its watch stays entered, so that no wake-up falls between two calls.

    ``token``: of the claim that the server may know as waiting; empty when there is none.
    ``asked_at``: when it was last asked, in seconds of the loop: a lease that comes with a wake-up is not older.
    """

    def __init__(self, worker: SessionRef, watch: RedisWatch) -> None:
        self.watch = watch
        self.token = ""
        self.asked_at = 0.0
        self._worker = worker
        self._goes_on = False

    def ask(self, token: str, now: float) -> None:
        """The server is asked now: what it said before was of an earlier claim, or is in its answer."""
        self.token, self.asked_at, self._goes_on = token, now, False
        self.watch.forget()

    def go_on(self) -> None:
        """The claim rode on an outcome and found nothing: the next call with its token need not ask again."""
        self._goes_on = True

    def goes_on(self) -> bool:
        """Whether the server has just said that there is nothing for this claim; once."""
        goes_on, self._goes_on = self._goes_on, False
        return goes_on

    def end(self) -> None:
        """The claim was answered, or withdrawn."""
        self.token, self._goes_on = "", False

    def take_granted(self) -> Lease | None:
        """Return the lease that came with a wake-up of this claim, if one did."""
        said = self.watch.take_said()
        return granted(said, self._worker, self.token) if said else None
