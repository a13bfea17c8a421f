"""Artifacts on a Redis server, in pieces, for machines that share nothing else (ART-15)."""

from __future__ import annotations

import asyncio
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from towline.access.redis_calls import RedisScript
from towline.artifacts.store import ArtifactStore, Stored, in_thread
from towline.errors.artifacts import ArtifactCorruptError, ArtifactMissingError, ArtifactTooLargeError
from towline.identity import digest_segment, is_digest, segment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from towline.access.redis_calls import RedisCalls
    from towline.access.redis_keys import PipelineKeys

CHUNK_BYTES: Final = 4 * 1024 * 1024
SIZE_LIMIT_BYTES: Final = 1024**3
LIFE_S: Final = 3600.0
"""As the keys of a run in the coordinator: this long after its last use."""

_RENEWALS_PER_LIFE: Final = 4


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of an artifact, last of all: without it, its chunks are litter that runs out."""

    generation: str
    size_bytes: int
    chunks: int


class RedisArtifactStore(ArtifactStore):
    """Chunks under a random generation, then the record that names it: readers see all of an artifact or nothing.

    Of two writers of one digest, the record of the first counts; the chunks of the other go.
    Everything lives for ``life_s`` after its last use, and while a run that named it is kept (:meth:`keep_run`).

    Args:
        calls: The connections, which belong to whoever made them.
        keys: Of the pipeline.
        life_s: More than any pause between two uses within a run.
        limit_bytes: Of one artifact.
    """

    def __init__(
        self, calls: RedisCalls, keys: PipelineKeys, *, life_s: float = LIFE_S, limit_bytes: int = SIZE_LIMIT_BYTES
    ) -> None:
        self._calls, self._keys = calls, keys
        self._life_ms, self._limit_bytes = round(life_s * 1000), limit_bytes

    async def put(self, chunks: Iterable[bytes], *, run_id: str | None = None) -> Stored:
        """Store bytes.

        Raises:
            ArtifactTooLargeError: They are more than the limit; nothing of them stays.
            OSError: The server cannot be asked.
        """
        generation, digest, size, count = secrets.token_hex(16), sha256(), 0, 0
        pieces = _pieces(chunks)
        try:
            while (piece := await in_thread(_next, pieces)) is not None:
                digest.update(piece)
                size += len(piece)
                if size > self._limit_bytes:
                    raise ArtifactTooLargeError(self._calls.server.shown, self._limit_bytes)
                await self._calls.command("SET", self._keys.chunk(generation, count), piece, "PX", self._life_ms)
                count += 1
        except BaseException:
            await self._drop(generation, count)
            raise
        stored = Stored(f"sha256:{digest.hexdigest()}", size)
        record = msgspec.json.encode(_Known(generation=generation, size_bytes=size, chunks=count))
        await self._publish(stored.digest, record, generation, count)
        if run_id is not None:
            await self._note_run(run_id, stored.digest)
        return stored

    async def open(self, digest: str) -> AsyncIterator[bytes]:
        """Iterate over the chunks.

        Raises:
            ArtifactMissingError: The store does not have it.
            ArtifactCorruptError: A chunk is gone, or the bytes are not as many as the record says.
            OSError: The server cannot be asked.
        """
        known = await self._known(digest)
        if known is None:
            raise ArtifactMissingError(digest, "", f"{self._calls.server.shown} does not have it (any more)")
        await self._touch(digest)
        size = 0
        for number in range(known.chunks):
            piece = await self._calls.command("GET", self._keys.chunk(known.generation, number))
            if piece is None:
                raise ArtifactCorruptError(digest, "", digest, f"chunk {number} of {known.chunks} is gone")
            size += len(piece)
            yield piece
        if size != known.size_bytes:
            raise ArtifactCorruptError(digest, "", digest, f"it has {size:,} bytes in place of {known.size_bytes:,}")

    async def exists(self, digest: str) -> bool:
        return await self._touch(digest)

    async def delete(self, digest: str) -> None:
        if is_digest(digest):
            name = self._keys.artifact(digest_segment(digest))
            known = await self._known(digest)
            await self._calls.command("DEL", name)
            if known is not None:
                await self._drop(known.generation, known.chunks)

    async def list_run(self, run_id: str) -> list[str]:
        found = await self._calls.command("SMEMBERS", self._keys.run_artifacts(segment(run_id)))
        return sorted(digest.decode() for digest in found)

    async def forget_run(self, run_id: str) -> None:
        """Drop the list of the run. Its bytes stay for other runs; they run out (ART-15)."""
        await self._calls.command("DEL", self._keys.run_artifacts(segment(run_id)))

    async def keep_run(self, run_id: str) -> None:
        """Prolong the life of what was put for a run, for as long as this call is not cancelled.

        A server that is away for a moment is asked again at the next turn.
        """
        while True:
            await asyncio.sleep(self._life_ms / 1000 / _RENEWALS_PER_LIFE)
            try:
                for digest in await self.list_run(run_id):
                    await self._touch(digest)
                await self._calls.command("PEXPIRE", self._keys.run_artifacts(segment(run_id)), self._life_ms)
            except OSError:
                continue

    # ------------------------------------------------------------------ inside

    async def _publish(self, digest: str, record: bytes, generation: str, count: int) -> None:
        """Name a generation, unless another whole one is there already."""
        name = self._keys.artifact(digest_segment(digest))
        if await self._calls.command("SET", name, record, "PX", self._life_ms, "NX") is not None:
            return
        # The answer to an earlier try may have been lost: then this record is our own.
        if await self._calls.command("GET", name) == record:
            return
        if await self._touch(digest):
            await self._drop(generation, count)
        else:
            await self._calls.command("SET", name, record, "PX", self._life_ms)

    async def _known(self, digest: str) -> _Known | None:
        if not is_digest(digest):
            return None
        record = await self._calls.command("GET", self._keys.artifact(digest_segment(digest)))
        return None if record is None else msgspec.json.decode(record, type=_Known)

    async def _touch(self, digest: str) -> bool:
        """Begin the life of an artifact anew; says whether all of it is there."""
        known = await self._known(digest)
        if known is None:
            return False
        names = [self._keys.chunk(known.generation, number) for number in range(known.chunks)]
        keys = (self._keys.artifact(digest_segment(digest)), *names)
        reply = await self._calls.run(_TOUCH, keys, (self._life_ms,))
        return bool(reply[0] == len(keys))

    async def _note_run(self, run_id: str, digest: str) -> None:
        name = self._keys.run_artifacts(segment(run_id))
        await self._calls.command("SADD", name, digest)
        await self._calls.command("PEXPIRE", name, self._life_ms)

    async def _drop(self, generation: str, count: int) -> None:
        if count:
            await self._calls.command("UNLINK", *(self._keys.chunk(generation, number) for number in range(count)))


_TOUCH: Final = RedisScript(
    """
local found = 0
for _, key in ipairs(KEYS) do
  found = found + redis.call('PEXPIRE', key, ARGV[1])
end
return { found }
"""
)


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut and join chunks into pieces of ``CHUNK_BYTES``, the last one shorter."""
    gathered = bytearray()
    for chunk in chunks:
        gathered += chunk
        while len(gathered) >= CHUNK_BYTES:
            yield bytes(gathered[:CHUNK_BYTES])
            del gathered[:CHUNK_BYTES]
    if gathered:
        yield bytes(gathered)
