"""The contract kit for artifact stores: what any implementation of ``ArtifactStore`` has to do (ART-13, TEST-10).

Run every case on a fresh store of your back end:

    @pytest.mark.parametrize("case", artifact_store_cases(), ids=str)
    def test_contract(case, tmp_path): asyncio.run(case.run(MyStore(tmp_path)))

No test framework is needed; a case fails with ``AssertionError``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from towline.artifacts.store import ArtifactStore
from towline.errors.artifacts import ArtifactMissingError
from towline.identity import digest_of

_ABSENT = digest_of(b"never stored")


class ArtifactStoreCase(msgspec.Struct, frozen=True):
    """One behaviour that every store shares."""

    name: str
    body: Callable[[ArtifactStore], Awaitable[None]]

    async def run(self, store: ArtifactStore) -> None:
        """Run the case on a fresh, empty store.

        Raises:
            AssertionError: The store breaks the contract.
        """
        await self.body(store)

    def __str__(self) -> str:
        return self.name


def artifact_store_cases() -> list[ArtifactStoreCase]:
    """Return every case."""
    cases = [
        stored_bytes_come_back_under_their_digest,
        nothing_at_all_is_an_artifact_too,
        storing_twice_is_storing_once,
        what_is_not_there_is_missing,
        deleting_may_be_repeated,
        a_failed_upload_leaves_nothing,
        runs_list_what_was_put_for_them,
        forgetting_a_run_keeps_what_others_share,
        writers_and_readers_of_one_digest_do_not_meet,
    ]
    return [ArtifactStoreCase(case.__name__.replace("_", " "), case) for case in cases]


async def _read(store: ArtifactStore, digest: str) -> bytes:
    return b"".join([chunk async for chunk in store.open(digest)])


async def stored_bytes_come_back_under_their_digest(store: ArtifactStore) -> None:
    """Chunks of any size, in order, more than any buffer holds."""
    chunks = [b"first", b"", bytes(range(256)) * 9000, b"last"]

    stored = await store.put(iter(chunks))

    assert stored.digest == digest_of(b"".join(chunks))
    assert stored.size_bytes == sum(map(len, chunks))
    assert await store.exists(stored.digest)
    assert await _read(store, stored.digest) == b"".join(chunks)


async def nothing_at_all_is_an_artifact_too(store: ArtifactStore) -> None:
    """An empty file is a file."""
    stored = await store.put(iter(()))

    assert stored.size_bytes == 0
    assert await store.exists(stored.digest)
    assert await _read(store, stored.digest) == b""


async def storing_twice_is_storing_once(store: ArtifactStore) -> None:
    """A producer that runs again stores the same bytes again."""
    first = await store.put([b"same"], run_id="r-1")
    second = await store.put([b"sa", b"me"], run_id="r-1")

    assert first == second
    assert await store.list_run("r-1") == [first.digest]


async def what_is_not_there_is_missing(store: ArtifactStore) -> None:
    """Also when the digest is no digest: it never becomes a path or a key of its own."""
    for digest in (_ABSENT, "sha256:../../etc/passwd", "../x", ""):
        assert not await store.exists(digest)
        try:
            await _read(store, digest)
        except ArtifactMissingError:
            continue
        raise AssertionError(f"opening {digest!r} did not raise ArtifactMissingError")


async def deleting_may_be_repeated(store: ArtifactStore) -> None:
    """Clean-up after a crash does not know how far the last one came."""
    stored = await store.put([b"short lived"])

    for _ in range(2):
        await store.delete(stored.digest)
    await store.delete("../x")

    assert not await store.exists(stored.digest)


async def a_failed_upload_leaves_nothing(store: ArtifactStore) -> None:
    """The producer's error passes through, and no half of the bytes is ever found."""

    def breaking() -> Iterator[bytes]:
        yield b"half"
        raise OSError("the disk is gone")

    try:
        await store.put(breaking(), run_id="r-1")
    except OSError as error:
        passed = str(error)
    else:
        passed = "nothing"
    assert passed == "the disk is gone"
    assert not await store.exists(digest_of(b"half"))
    assert await store.list_run("r-1") == []


async def runs_list_what_was_put_for_them(store: ArtifactStore) -> None:
    """A run that is unknown, or put nothing, lists nothing."""
    one = await store.put([b"one"], run_id="r-1")
    two = await store.put([b"two"], run_id="r-1")
    await store.put([b"three"], run_id="r-2")
    await store.put([b"four"])

    assert await store.list_run("r-1") == sorted([one.digest, two.digest])
    assert await store.list_run("r-3") == []


async def forgetting_a_run_keeps_what_others_share(store: ArtifactStore) -> None:
    """Two runs that produced the same bytes share them."""
    shared = await store.put([b"shared"], run_id="r-1")
    await store.put([b"shared"], run_id="r-2")

    for _ in range(2):
        await store.forget_run("r-1")
    await store.forget_run("never was")

    assert await store.list_run("r-1") == []
    assert await store.list_run("r-2") == [shared.digest]
    assert await _read(store, shared.digest) == b"shared"


async def writers_and_readers_of_one_digest_do_not_meet(store: ArtifactStore) -> None:
    """Whoever reads sees all of the bytes, however many write them at that moment."""
    data = bytes(100_000)
    digest = (await store.put([data])).digest

    async def write() -> None:
        assert (await store.put([data[:70_000], data[70_000:]])).digest == digest

    async def read() -> None:
        assert await _read(store, digest) == data

    await asyncio.gather(*(call() for _ in range(8) for call in (write, read)))
