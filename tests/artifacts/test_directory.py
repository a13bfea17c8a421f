"""The directory store: the contract, several processes, crashes, and its bounds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from towline.artifacts.copying import copy
from towline.artifacts.directory import LITTER_AGE_S, DirectoryArtifactStore
from towline.artifacts.records import ArtifactRef
from towline.identity import digest_of
from towline.testing import TestClock, clause
from towline.testing.artifact_contract import ArtifactStoreCase, artifact_store_cases

pytestmark = pytest.mark.anyio


def printed_by(argv: list[str], *, times: int) -> set[str]:
    """Run a program several times at once; all have to succeed."""
    children = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(times)]
    printed = {child.communicate(timeout=60)[0].strip() for child in children}
    assert [child.returncode for child in children] == [0] * times
    return printed


def run_to_its_end(argv: list[str]) -> None:
    """Run a program however it ends."""
    subprocess.run(argv, timeout=60, check=False)


@clause("ART-13")
@pytest.mark.parametrize("case", artifact_store_cases(), ids=str)
async def test_the_directory_store_keeps_the_contract(case: ArtifactStoreCase, tmp_path: Path) -> None:
    """One contract for every back end: what works on a laptop works on a fleet."""
    await case.run(DirectoryArtifactStore(tmp_path / "store", durability="power"))


@clause("ART-14")
async def test_processes_that_write_one_digest_are_harmless(tmp_path: Path) -> None:
    """``--workers`` share one folder, and several of them may produce equal files at once."""
    program = (
        "import asyncio, sys\n"
        "from towline.artifacts.directory import DirectoryArtifactStore\n"
        "async def main():\n"
        "    store = DirectoryArtifactStore(sys.argv[1])\n"
        "    for _ in range(20):\n"
        "        stored = await store.put([bytes(50_000), b'end'], run_id='r')\n"
        "        data = b''.join([chunk async for chunk in store.open(stored.digest)])\n"
        "        assert data == bytes(50_000) + b'end'\n"
        "    print(stored.digest)\n"
        "asyncio.run(main())\n"
    )
    root = tmp_path / "store"
    digests = printed_by([sys.executable, "-c", program, str(root)], times=3)

    assert digests == {digest_of(bytes(50_000) + b"end")}
    assert sorted(path.name for path in root.iterdir() if path.is_file()) == [digests.pop().replace(":", "-")]
    assert await DirectoryArtifactStore(root).list_run("r") == [digest_of(bytes(50_000) + b"end")]


@clause("ART-08")
async def test_a_writer_that_is_killed_leaves_litter_and_no_artifact(tmp_path: Path) -> None:
    """What stands under a digest is whole; what does not goes away after a day."""
    program = (
        "import asyncio, os, sys\n"
        "from towline.artifacts.directory import DirectoryArtifactStore\n"
        "def chunks():\n"
        "    yield b'half'\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(DirectoryArtifactStore(sys.argv[1]).put(chunks()))\n"
    )
    root = tmp_path / "store"
    run_to_its_end([sys.executable, "-c", program, str(root)])
    [litter] = root.iterdir()
    clock = TestClock(wall_start=litter.stat().st_mtime)
    store = DirectoryArtifactStore(root, clock=clock)

    assert litter.name.startswith(".tmp-")
    assert await store.sweep() == 0
    clock.advance(LITTER_AGE_S + 1)
    assert await store.sweep() == 1
    assert list(root.iterdir()) == []


@clause("ART-18")
async def test_the_least_recently_used_go_first_and_named_ones_stay(tmp_path: Path) -> None:
    """A folder that grows for ever fills the disk of a build machine."""
    clock = TestClock(wall_start=1_000_000.0)
    store = DirectoryArtifactStore(tmp_path / "store", clock=clock)
    digests = []
    for name in "abcd":
        clock.advance(10)
        digests.append((await store.put([name.encode() * 100])).digest)
    clock.advance(10)
    async for _ in store.open(digests[0]):
        pass

    dropped = await store.trim({digests[1]}, limit_bytes=250)

    assert dropped == [digests[2], digests[3]]
    assert [await store.exists(digest) for digest in digests] == [True, True, False, False]
    assert await store.trim(set(digests), limit_bytes=0) == []


@clause("ART-14")
async def test_files_are_private(tmp_path: Path) -> None:
    """Artifacts may hold what only their owner should read."""
    store = DirectoryArtifactStore(tmp_path / "store")
    digest = (await store.put([b"x"])).digest
    path = await store.local_path(digest)

    assert path is not None
    assert (oct(path.stat().st_mode & 0o777), oct(store.root.stat().st_mode & 0o777)) == ("0o600", "0o700")


async def test_bytes_are_copied_between_stores_once(tmp_path: Path) -> None:
    """A cached artifact goes to the run's store, where its consumers look for it."""
    source, target = DirectoryArtifactStore(tmp_path / "a"), DirectoryArtifactStore(tmp_path / "b")
    stored = await source.put([b"bytes"])
    reference = ArtifactRef(task_id="t", name="n", digest=stored.digest, size_bytes=5, kind="file", file_name="n")

    await copy(reference, source, target)
    await source.delete(stored.digest)
    await copy(reference, source, target)

    assert await target.exists(stored.digest)
