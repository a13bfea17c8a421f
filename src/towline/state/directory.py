"""The state store that is a folder: the default, shared by the processes of one host (STATE-13..18)."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from towline.clock import SystemClock
from towline.errors.state import StateLostError
from towline.state.directory_owner import DirectoryOwnership, take_ownership
from towline.state.directory_plan import DirectoryPlanMedium
from towline.state.documents import Documents
from towline.state.files import SystemFiles
from towline.state.store import RETRY_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from concurrent.futures import ThreadPoolExecutor

    from towline.clock import Clock
    from towline.state.files import Files
    from towline.state.store import Absent, Anything, Entry, Fence, Owner, Ownership, Version

T = TypeVar("T")

_TRANSIENT: Final = frozenset(
    getattr(errno, name) for name in ("EAGAIN", "EBUSY", "EINTR", "ESTALE", "ETIMEDOUT") if hasattr(errno, name)
)
_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.25


class DirectoryStore:
    """Documents, plan and locks below one folder.

    ``durability="process"``: a write is in the hands of the operating system when its call returns, and
    survives kill -9; it runs in the loop, since it takes microseconds. ``"power"``: it is fsynced too,
    in the store's one thread.

    Args:
        root: The folder; made, with mode 0700, by the first write. A link to it is followed once, here.
        files: The door to the file system.
        retry_limit_s: How long transient trouble, a busy lock among it, is retried (STATE-07).
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        durability: Literal["process", "power"] = "process",
        files: Files | None = None,
        clock: Clock | None = None,
        retry_limit_s: float = RETRY_LIMIT_S,
    ) -> None:
        self.root = os.path.realpath(root)
        self.name = self.root
        self._power = durability == "power"
        self._documents = Documents(self.root, files or SystemFiles(), power=self._power)
        self._clock = clock or SystemClock()
        self._retry_limit_s = retry_limit_s
        self._ownership: DirectoryOwnership | None = None
        self._media: list[DirectoryPlanMedium] = []
        self._thread: ThreadPoolExecutor | None = None

    async def read(self, key: str) -> Entry | None:
        return await self._call("reading " + key, lambda _: self._documents.read(key), blocks=False)

    async def write(
        self, key: str, data: bytes, expect: Version | Absent | Anything, fence: Fence | None = None
    ) -> Version:
        return await self._call(
            "writing " + key,
            lambda repeated: self._documents.write(key, data, expect, fence, repeated=repeated),
            blocks=self._power,
        )

    async def append(self, key: str, line: bytes, fence: Fence) -> None:
        await self._call("appending to " + key, lambda _: self._documents.append(key, line, fence), blocks=self._power)

    async def delete(self, key: str, expect: Version | Anything) -> None:
        await self._call("removing " + key, lambda _: self._documents.delete(key, expect), blocks=self._power)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        for key in await self._call("listing " + prefix, lambda _: self._documents.keys(prefix), blocks=False):
            yield key

    async def acquire(self, owner: Owner) -> Ownership:
        """Become the owner, and remove the temp files that killed writers left (STATE-13)."""

        def take(_: bool) -> DirectoryOwnership:
            documents = self._documents
            documents.make_root()
            return take_ownership(documents.root, documents.files, owner, power=self._power)

        self._ownership = await self._call("acquiring the plan", take, blocks=False)
        await self._call("removing temp files", lambda _: self._documents.remove_leftovers(), blocks=False)
        return self._ownership

    async def now(self) -> float:
        return self._clock.now()

    def plan_medium(self, ownership: Ownership | None) -> DirectoryPlanMedium:
        medium = DirectoryPlanMedium(self._documents, self._beside)
        self._media.append(medium)
        return medium

    async def close(self) -> None:
        """Close files, free the ownership and end the thread."""
        media, self._media = self._media, []
        for medium in media:
            medium.close()
        ownership, self._ownership = self._ownership, None
        if ownership is not None:
            ownership.free()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=True)

    # ------------------------------------------------------------------ inside

    async def _call(self, doing: str, work: Callable[[bool], T], *, blocks: bool) -> T:
        """Do one piece of blocking work; ``work(True)`` is a repetition after transient trouble."""
        loop = asyncio.get_running_loop()
        give_up_at, pause_s, repeated = loop.time() + self._retry_limit_s, _FIRST_PAUSE_S, False
        while True:
            try:
                return await self._in_thread(functools.partial(work, repeated)) if blocks else work(repeated)
            except OSError as error:
                if error.errno not in _TRANSIENT or loop.time() + pause_s > give_up_at:
                    raise StateLostError(self.name, doing, _cause(error)) from error
            await asyncio.sleep(pause_s)
            pause_s, repeated = min(pause_s * 2, _LONGEST_PAUSE_S), True

    async def _beside(self, work: Callable[[], None]) -> None:
        await self._in_thread(work)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            from concurrent.futures import ThreadPoolExecutor

            self._thread = ThreadPoolExecutor(1, "towline-state")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _cause(error: OSError) -> str:
    return f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, 'no errno')})"
