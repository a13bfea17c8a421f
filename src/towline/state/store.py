"""What every state store offers: documents with versions, fenced appends, one owner (``planning.md`` section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from towline.state.plan_medium import PlanMedium

Version: TypeAlias = str
"""Names the content of a document at one moment; compared for equality alone."""

DOCUMENT_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Largest document and longest line, the plan excepted (STATE-06)."""

RETRY_LIMIT_S: Final = 30.0
"""How long transient trouble is retried before the state counts as lost (STATE-07)."""


@final
class Absent:
    """Expect that there is no document."""

    def __repr__(self) -> str:
        return "ABSENT"


@final
class Anything:
    """Expect nothing: the write holds whatever is there."""

    def __repr__(self) -> str:
        return "ANYTHING"


ABSENT: Final = Absent()
ANYTHING: Final = Anything()


class Entry(msgspec.Struct, frozen=True):
    """A document as it was read."""

    data: bytes
    version: Version


class Fence(msgspec.Struct, frozen=True):
    """Whose write this is: the owner's (no ``task``), or that of one claim of one task.

    A write is refused when the store has seen a later fence: for an owner a higher ``epoch``, for a task a
    higher ``(plan_id, epoch)`` in its cursor document (STATE-03, CUR-05).
    """

    epoch: int
    task: str | None = None
    plan_id: str = ""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks to own the plan; ``since`` is UTC text for people."""

    id: str
    host: str
    pid: int
    run_id: str = ""
    since: str = ""


class Ownership(Protocol):
    """The right to write one plan. Its ``epoch`` is greater than that of any owner before (STATE-09)."""

    @property
    def epoch(self) -> int: ...

    def check(self) -> None:
        """Do nothing while the plan is ours; cheap enough to be called at each write.

        Raises:
            OwnershipLostError: It was released, or someone else has it.
        """
        ...

    async def renew(self) -> None:
        """Prolong the right where it is a lease. Raises ``OwnershipLostError`` when it is gone."""
        ...

    async def release(self) -> None:
        """Give the right back; a second call does nothing (STATE-11)."""
        ...

    async def wait_for_loss(self) -> None:
        """Return when the right is gone, for whatever reason."""
        ...


class StateStore(Protocol):
    """Durable documents of one pipeline, shared by its owner and its workers.

    Keys are the relative paths of the layout, the same on every store (STATE-04). ``name`` is shown to people.
    Each call raises ``StateLostError`` when the store cannot be reached in time.
    """

    @property
    def name(self) -> str: ...

    async def read(self, key: str) -> Entry | None:
        """Return a document as one write left it, or ``None`` (STATE-02)."""
        ...

    async def write(
        self, key: str, data: bytes, expect: Version | Absent | Anything, fence: Fence | None = None
    ) -> Version:
        """Replace a document if it is as expected and the fence still holds, in one step.

        Raises:
            VersionConflictError: It is not; nothing was written (STATE-01).
            LeaseLostError, OwnershipLostError: A later fence was seen.
            StateTooLargeError: More than 64 MiB.
        """
        ...

    async def append(self, key: str, line: bytes, fence: Fence) -> None:
        """Add one line, which ends with LF, to a file of lines. A torn line before it is dropped.

        Raises:
            LeaseLostError, OwnershipLostError: A later fence was seen.
        """
        ...

    async def delete(self, key: str, expect: Version | Anything) -> None:
        """Remove a document; removing one that is gone is no error. Raises ``VersionConflictError``."""
        ...

    def list(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys that start with a prefix, sorted."""
        ...

    async def acquire(self, owner: Owner) -> Ownership:
        """Become the owner. Raises ``PlanOwnedError`` while another one may be alive (STATE-08)."""
        ...

    async def now(self) -> float:
        """Return the back end's clock, in seconds since 1970."""
        ...

    def plan_medium(self, ownership: Ownership | None) -> PlanMedium:
        """Return where plan, journal and results lie; without an ownership it only reads."""
        ...

    async def close(self) -> None:
        """Free files, locks and threads; a second call does nothing (STATE-11)."""
        ...
