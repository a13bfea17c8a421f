"""The state of one task as its process sees it: each read and write is the node's (RUN-32)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.state.store import ABSENT, Entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from towline.execution.child_line import ChildLine
    from towline.state.store import Absent, Anything, Fence, Version


class ChildState:
    """The part of a state store that cursors and steps use.

    The node sets the fence itself and lets only this task's cursor and steps through, so a process that
    outlives its claim can write nothing.
    """

    def __init__(self, line: ChildLine) -> None:
        self._line = line

    async def read(self, key: str) -> Entry | None:
        """Return a document, or ``None``."""
        return msgspec.json.decode(
            await self._line.ask_on_loop("state_read", shielded=True, key=key), type=Entry | None
        )

    async def write(
        self,
        key: str,
        data: bytes,
        expect: Version | Absent | Anything,
        fence: Fence | None = None,
    ) -> Version:
        """Replace a document if it is as expected."""
        answer = await self._line.ask_on_loop(
            "state_write", shielded=True, key=key, data=data, expect=_expectation(expect)
        )
        return msgspec.json.decode(answer, type=str)

    async def append(self, key: str, line: bytes, fence: Fence) -> None:
        """Add one line to a file of lines."""
        await self._line.ask_on_loop("state_append", shielded=True, key=key, line=line)

    async def delete(self, key: str, expect: Version | Anything) -> None:
        """Remove a document."""
        await self._line.ask_on_loop("state_delete", shielded=True, key=key, expect=_expectation(expect))

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys of this task that start with a prefix."""
        for key in msgspec.json.decode(
            await self._line.ask_on_loop("state_list", shielded=True, prefix=prefix), type=list[str]
        ):
            yield key


def _expectation(expect: Version | Absent | Anything) -> Any:
    if isinstance(expect, str):
        return {"version": expect}
    return "absent" if expect is ABSENT else "anything"
