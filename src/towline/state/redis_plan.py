"""Plan, journal and results on Redis: gathered in memory, sent in groups, each group fenced (PLAN-17 to 25)."""

from __future__ import annotations

import errno
import itertools
from typing import TYPE_CHECKING, Any, Final

from towline.errors.state import OwnershipLostError
from towline.state.keys import JOURNAL_KEY, PLAN_KEY, RESULTS_KEY
from towline.state.redis_scripts import COMMIT, PUBLISH, REMOVE, WRITE
from towline.state.results import LINE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from towline.access.redis_calls import Argument, RedisCalls, RedisScript
    from towline.access.redis_keys import PipelineKeys
    from towline.state.redis_ownership import RedisOwnership

PIECE_BYTES: Final = 4 * 1024 * 1024
"""A large document goes in pieces: each well within the reply timeout."""

DRAFT_LIFE_MS: Final = 600_000
"""A draft whose writer died is gone after ten minutes."""


class RedisPlanMedium:
    """The plan's files as keys. Every write is fenced by the owner's epoch, at the server.

    Journal and results say where they expect to end before each group: a server that came back without its tail is
    noticed at the next write, never continued (STATE-23).
    """

    durable_at_once = False

    def __init__(
        self, name: str, keys: PipelineKeys, calls: RedisCalls, ownership: RedisOwnership | None, life_ms: int
    ) -> None:
        self.name = name
        self._keys, self._calls, self._ownership, self._life_ms = keys, calls, ownership, life_ms
        self._drafts = itertools.count(1)
        self._journal: list[bytes] = []
        self._lines: list[bytes] = []
        self._documents: dict[str, bytes] = {}
        self._journal_size = self._results_size = 0
        """What the server has, as far as this owner knows: in bytes."""
        self._gathered_bytes = 0
        """Of results that wait for a sync."""

    async def read_plan(self) -> bytes | None:
        return await self._get(PLAN_KEY)

    async def read_journal(self) -> bytes | None:
        return await self._get(JOURNAL_KEY)

    def draft_plan(self) -> _Draft:
        return _Draft(self, PLAN_KEY)

    async def start_journal(self, header: bytes) -> None:
        await self._fenced(WRITE, JOURNAL_KEY, (JOURNAL_KEY, "*", header, "", 0))
        self._journal_size = len(header)
        self._results_size = await self._calls.command("STRLEN", self._keys.document(RESULTS_KEY))

    def append_journal(self, line: bytes) -> None:
        self._journal.append(line)

    def append_result(self, line: bytes) -> int:
        offset = self._results_size + self._gathered_bytes
        self._lines.append(line)
        self._gathered_bytes += len(line)
        return offset

    def write_result(self, key: str, data: bytes) -> None:
        self._documents[key] = data

    async def sync(self) -> None:
        """Send what was gathered: large results, then lines of results and journal in one step."""
        documents, self._documents = self._documents, {}
        for key, data in documents.items():
            await self.put(key, (data,))
        journal, self._journal = b"".join(self._journal), []
        lines, self._lines = b"".join(self._lines), []
        self._gathered_bytes -= len(lines)
        if not journal and not lines:
            return
        ownership, keys = self._owner(), self._keys
        asked_at = ownership.asked_at()
        names = (keys.document(RESULTS_KEY), keys.owner)
        lease_ms = round(ownership.lease_s * 1000)
        sizes = (self._journal_size, self._results_size)
        # Counted before the answer: results that are added meanwhile begin behind these.
        self._journal_size += len(journal)
        self._results_size += len(lines)
        await self._fenced(COMMIT, JOURNAL_KEY, (lease_ms, journal, sizes[0], lines, sizes[1]), names)
        ownership.renewed(asked_at)

    async def read_results(self) -> bytes:
        return await self._get(RESULTS_KEY) or b""

    async def read_result_at(self, offset: int) -> bytes | None:
        name = self._keys.document(RESULTS_KEY)
        data: bytes = await self._calls.command("GETRANGE", name, offset, offset + LINE_LIMIT_BYTES)
        line, newline, _ = data.partition(b"\n")
        return line if newline else None

    async def read_result(self, key: str) -> bytes | None:
        return await self._get(key)

    async def replace_results(self, lines: Iterable[bytes]) -> None:
        size = await self.put(RESULTS_KEY, lines)
        self._results_size = size

    async def list_results(self) -> list[str]:
        found = await self._calls.command("ZRANGEBYLEX", self._keys.index, "[results/", "(results0")
        return [name.decode() for name in found]

    async def remove_result(self, key: str) -> None:
        await self._fenced(REMOVE, key, (key, "*"))

    def close(self) -> None:
        """Nothing is open: the connections are the store's."""

    # ------------------------------------------------------------------ inside

    async def put(self, key: str, chunks: Iterable[bytes]) -> int:
        """Replace a document of any size: in pieces beside it, then by a rename; returns its size in bytes."""
        draft = self._keys.draft(f"{self._owner().epoch}-{next(self._drafts)}")
        size = 0
        for piece in _pieces(chunks):
            # Written at its place, not appended: a piece whose answer was lost may be sent again.
            await self._calls.command("SETRANGE", draft, size, piece)
            if size == 0:
                await self._calls.command("PEXPIRE", draft, DRAFT_LIFE_MS)
            size += len(piece)
        if size == 0:
            await self._fenced(WRITE, key, (key, "*", b"", "", 0))
        else:
            await self._fenced(PUBLISH, key, (key,), (self._keys.epoch, draft))
        return size

    async def _get(self, key: str) -> bytes | None:
        found: bytes | None = await self._calls.command("GET", self._keys.document(key))
        return found

    async def _fenced(
        self, script: RedisScript, key: str, arguments: Sequence[Argument], more_keys: Sequence[str] = ()
    ) -> Sequence[Any]:
        """Run a script as the owner.

        Raises:
            OwnershipLostError: Somebody else has acquired the plan.
            OSError: The server cannot be asked, or has lost what it had.
        """
        ownership, keys = self._owner(), self._keys
        names = (keys.document(key), keys.index, keys.epoch, *(more_keys or (keys.epoch,)))
        reply = await self._calls.run(script, names, ("owner", ownership.epoch, self._life_ms, *arguments))
        if reply[0] == b"owner" and int(reply[1]) > ownership.epoch:
            ownership.lose(int(reply[1]))
            raise OwnershipLostError(self.name, ownership.epoch, int(reply[1]))
        if reply[0] in (b"owner", b"lost"):
            raise OSError(errno.EIO, "the server came back without data that it had: it was restarted or restored")
        return reply

    def _owner(self) -> RedisOwnership:
        if self._ownership is None:
            raise OwnershipLostError(self.name, 0, 0)  # opened for reading: only the owner writes (PLAN-27)
        return self._ownership


class _Draft:
    """A snapshot that is gathered here and sent when it is published."""

    def __init__(self, medium: RedisPlanMedium, key: str) -> None:
        self._medium, self._key = medium, key
        self._chunks: list[bytes] = []

    def write(self, chunk: bytes) -> None:
        self._chunks.append(bytes(chunk))

    def sync(self) -> None:
        """The server has nothing of it yet."""

    async def publish(self) -> None:
        await self._medium.put(self._key, self._chunks)

    def discard(self) -> None:
        self._chunks.clear()


def _pieces(chunks: Iterable[bytes]) -> Iterable[bytes]:
    """Cut and join chunks into pieces of ``PIECE_BYTES``, the last one shorter."""
    gathered = bytearray()
    for chunk in chunks:
        gathered += chunk
        while len(gathered) >= PIECE_BYTES:
            yield bytes(gathered[:PIECE_BYTES])
            del gathered[:PIECE_BYTES]
    if gathered:
        yield bytes(gathered)
