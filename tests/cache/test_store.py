"""The directory of cached results: damaged, full, and shared by processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from towline.artifacts.records import ArtifactRef
from towline.errors import SerializationError
from towline.execution.cache import CachedResult, DirectoryCacheStore, value_digest
from towline.testing import TestClock, clause

pytestmark = pytest.mark.anyio


def entry(name: str, value: bytes = b"1", **more: object) -> CachedResult:
    raw = msgspec.Raw(value)
    fields = {"parts": {"code": name}} | more
    return CachedResult(
        fingerprint=f"sha256:{name}",
        task_id="build",
        value=raw,
        value_digest=value_digest(raw),
        **fields,  # type: ignore[arg-type]
    )


@clause("CACHE-01")
async def test_an_entry_is_found_by_its_fingerprint_alone(tmp_path: Path) -> None:
    """What was saved comes back; what was not is not there."""
    store = DirectoryCacheStore(tmp_path / "cache")
    await store.save(entry("aa", b'{"a": 1}'))

    found = await store.lookup("sha256:aa")

    assert found is not None
    assert bytes(found.value) == b'{"a": 1}'
    assert await store.lookup("sha256:bb") is None
    assert await store.last_parts("build") == {"code": "aa"}
    assert await store.last_parts("other") == {}


@clause("CACHE-07")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.replace(b'"value":1', b'"value":2'), "damaged"),
        (lambda data: data.replace(b'"schema":1', b'"schema":9'), "schema 9"),
        (lambda data: data[:-20], "JSON"),
        (lambda data: data.replace(b"sha256:aa", b"sha256:bb"), "damaged"),
        (lambda data: b"", "JSON"),
    ],
)
async def test_a_damaged_entry_is_told_from_none(change: object, words: str, tmp_path: Path) -> None:
    """A flipped bit must not become a result; the run warns and does the work."""
    store = DirectoryCacheStore(tmp_path / "cache")
    await store.save(entry("aa"))
    path = tmp_path / "cache/entries/aa.json"
    data = path.read_bytes().replace(b'{"fingerprint"', b'{"schema":1,"fingerprint"')
    path.write_bytes(change(data))  # type: ignore[operator]

    with pytest.raises(SerializationError, match=words):
        await store.lookup("sha256:aa")


@clause("CACHE-10")
async def test_the_least_recently_used_go_first_with_their_artifacts(tmp_path: Path) -> None:
    """The cache is bounded, and what is used stays."""
    clock = TestClock(wall_start=1_000_000.0)
    store = DirectoryCacheStore(tmp_path / "cache", clock=clock)
    digests = {}
    for name in ("aa", "bb", "cc"):
        clock.advance(10)
        stored = await store.artifacts.put([name.encode() * 5000])
        digests[name] = stored.digest
        reference = ArtifactRef(
            task_id="build", name="out", digest=stored.digest, size_bytes=10_000, kind="file", file_name="out"
        )
        await store.save(entry(name, artifacts=(reference,)))
    clock.advance(7200)
    await store.lookup("sha256:aa")

    dropped = await store.trim(limit_bytes=22_000)

    assert dropped == 1
    assert [await store.lookup(f"sha256:{name}") is not None for name in ("aa", "bb", "cc")] == [True, False, True]
    assert [await store.artifacts.exists(digest) for digest in digests.values()] == [True, False, True]
    assert await store.trim(limit_bytes=22_000) == 0


WRITER = """
import asyncio, sys, msgspec
from towline.execution.cache import CachedResult, DirectoryCacheStore, value_digest
async def main():
    store = DirectoryCacheStore(sys.argv[1])
    value = msgspec.Raw(b'"' + b"x" * 100_000 + b'"')
    for turn in range(20):
        await store.save(CachedResult(fingerprint="sha256:aa", task_id="t", value=value, value_digest=value_digest(value)))
        found = await store.lookup("sha256:aa")
        assert found is not None and bytes(found.value) == bytes(value)
asyncio.run(main())
"""


def end_codes(argv: list[str], *, times: int) -> list[int]:
    """Run a program several times at once."""
    children = [subprocess.Popen(argv) for _ in range(times)]
    return [child.wait(timeout=60) for child in children]


@clause("CACHE-10")
async def test_processes_that_write_and_read_one_entry_never_see_half_of_it(tmp_path: Path) -> None:
    """Workers of one host share the cache."""
    root = tmp_path / "cache"

    assert end_codes([sys.executable, "-c", WRITER, str(root)], times=3) == [0, 0, 0]
    assert os.listdir(root / "entries") == ["aa.json"]
