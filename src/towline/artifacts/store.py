"""Where the bytes of artifacts lie: the seam that directory, Redis, S3 and hub implement (ART-13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

P = ParamSpec("P")
R = TypeVar("R")


class Stored(NamedTuple):
    """What a store says of bytes that it took."""

    digest: str
    size_bytes: int


class ArtifactStore(Protocol):
    """Keeps bytes under their digest.

    Every call may be repeated. Implementations derive from this class, so that members which are added
    later have a body.
    """

    async def put(self, chunks: Iterable[bytes], *, run_id: str | None = None) -> Stored:
        """Store bytes, all or nothing.

        Args:
            chunks: Blocking iterator; pulled in a thread, once. What it raises passes through.
            run_id: The run that ``list_run`` shall name them for.
        """
        ...

    def open(self, digest: str) -> AsyncIterator[bytes]:
        """Iterate over stored bytes.

        Raises:
            ArtifactMissingError: At the first step, when the store does not have them.
        """
        ...

    async def exists(self, digest: str) -> bool:
        """Say whether the bytes are there, whole."""
        ...

    async def delete(self, digest: str) -> None:
        """Drop bytes; nothing happens when they are not there."""
        ...

    async def list_run(self, run_id: str) -> list[str]:
        """Return the digests that were put for a run, sorted."""
        ...

    async def forget_run(self, run_id: str) -> None:
        """Drop what only this run needs; shared bytes stay."""
        ...

    async def keep_run(self, run_id: str) -> None:
        """Keep what was put for a run until this call is cancelled; returns at once where nothing is ever forgotten."""
        return

    async def local_path(self, digest: str) -> Path | None:
        """Return a file of this host that holds the bytes, to be read only; ``None`` if there is no such file."""
        return None


async def in_thread(call: Callable[..., R], *args: object) -> R:
    """Run blocking file work beside the event loop.

    A cancelled caller goes on at once while the thread comes to its end, so what runs here cleans up
    after itself and holds nothing of the caller.
    """
    from anyio import to_thread

    return await to_thread.run_sync(call, *args)
