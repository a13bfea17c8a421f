"""Where the plan's files lie: what ``PlanFile`` and ``ResultFile`` need of a store.

The journal is the engine's hot path, so appending is a plain call here. A medium whose appends are
durable at once says so; any other gathers them until ``sync``, which is where a remote store sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


class PlanDraft(Protocol):
    """A snapshot on its way: nobody sees it before ``publish``."""

    def write(self, chunk: bytes) -> None: ...

    def sync(self) -> None:
        """Make the written bytes durable; blocks, and may be called in a thread."""
        ...

    async def publish(self) -> None:
        """Put the snapshot in the place of the old one."""
        ...

    def discard(self) -> None:
        """Forget it; after ``publish`` this does nothing."""
        ...


class PlanMedium(Protocol):
    """Plan, journal and results of one owner, or of a reader. Trouble is raised as ``OSError``."""

    @property
    def name(self) -> str:
        """What people call the place, for messages."""
        ...

    @property
    def durable_at_once(self) -> bool:
        """Whether an appended line is as durable as it will be when the call returns."""
        ...

    async def read_plan(self) -> bytes | None: ...

    async def read_journal(self) -> bytes | None: ...

    def draft_plan(self) -> PlanDraft: ...

    async def start_journal(self, header: bytes) -> None:
        """Put a journal that holds only this line in the place of the old one."""
        ...

    def append_journal(self, line: bytes) -> None:
        """Add one line. After an error the journal ends where it ended before."""
        ...

    def append_result(self, line: bytes) -> int:
        """Add one line to ``results.jsonl``; returns its offset in bytes. Offsets only grow within a file."""
        ...

    def write_result(self, key: str, data: bytes) -> None:
        """Store a result as a document of its own."""
        ...

    async def sync(self) -> None:
        """Make everything appended and written so far durable, results before journal."""
        ...

    async def read_results(self) -> bytes: ...

    async def read_result_at(self, offset: int) -> bytes | None:
        """Return the line at an offset without its LF; ``None`` if it is not whole."""
        ...

    async def read_result(self, key: str) -> bytes | None: ...

    async def replace_results(self, lines: Iterable[bytes]) -> None:
        """Put a new ``results.jsonl`` in the place of the old one."""
        ...

    async def list_results(self) -> list[str]:
        """Return the keys of results that are documents of their own."""
        ...

    async def remove_result(self, key: str) -> None: ...

    def close(self) -> None:
        """Close files; a second call does nothing."""
        ...
