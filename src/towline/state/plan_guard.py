"""Stop all writing of the plan at the first failed write (PLAN-18)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, NoReturn

from towline.errors.state import OwnershipLostError, StateLostError

if TYPE_CHECKING:
    from towline.state.store import Ownership


class PlanGuard:
    """Asked before each write of plan, journal or results; once it said no it never says yes again."""

    def __init__(self, store: str, ownership: Ownership | None) -> None:
        self._store, self._ownership = store, ownership
        self._failure: StateLostError | OwnershipLostError | None = None
        self.last_record: Any = None
        """The last journal record that the store took; names the last success in an error."""

    @property
    def failure(self) -> StateLostError | OwnershipLostError | None:
        """Why nothing is written any more; ``None`` while all is well."""
        return self._failure

    def check(self) -> None:
        """Return while this process may write.

        Raises:
            StateLostError: An earlier write failed.
            OwnershipLostError: The plan is not ours (any more) (STATE-03).
        """
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)
        if self._ownership is None:
            raise OwnershipLostError(self._store, 0, 0)  # opened for reading: only the owner writes (PLAN-27)
        try:
            self._ownership.check()
        except OwnershipLostError as error:
            self._failure = error
            raise

    def lose(self, doing: str, error: OSError) -> NoReturn:
        """Remember a failed write and report it."""
        cause = f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, 'no errno')})"
        seq = getattr(self.last_record, "seq", None)
        last = "" if seq is None else f"journal record {seq}"
        self._failure = StateLostError(self._store, doing, cause, last)
        raise StateLostError(*self._failure.args) from error
