"""Artifacts come back whole or not at all, and hostile archives write nothing."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from towline.artifacts import ArtifactRef, ArtifactStore, Stored
from towline.artifacts.collecting import collect, collect_path
from towline.artifacts.directory import DirectoryArtifactStore
from towline.artifacts.entries import link_problem, path_problem
from towline.artifacts.restoring import restore
from towline.artifacts.unpacking import unpack
from towline.errors import ArtifactCorruptError, ArtifactMissingError, UnsafeArchiveError
from towline.identity import digest_of
from towline.testing import clause

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path) -> DirectoryArtifactStore:
    return DirectoryArtifactStore(tmp_path / "store")


class RemoteStore(ArtifactStore):
    """A store without local files, whose downloads can be held and counted."""

    def __init__(self, data: bytes) -> None:
        self.data, self.downloads = data, 0
        self.go_on = asyncio.Event()
        self.started = asyncio.Event()
        self.fails = False

    async def put(self, chunks: Iterable[bytes], *, run_id: str | None = None) -> Stored:
        raise AssertionError("nothing is put here")

    async def open(self, digest: str) -> AsyncIterator[bytes]:
        self.downloads += 1
        self.started.set()
        await self.go_on.wait()
        if self.fails:
            raise ConnectionError("cut")
        yield self.data[:3]
        yield self.data[3:]

    async def exists(self, digest: str) -> bool:
        return True

    async def delete(self, digest: str) -> None: ...
    async def list_run(self, run_id: str) -> list[str]:
        return []

    async def forget_run(self, run_id: str) -> None: ...


def reference_to(data: bytes, **fields: object) -> ArtifactRef:
    known = {"task_id": "build", "name": "out", "kind": "file", "file_name": "out.bin"}
    return ArtifactRef(digest=digest_of(data), size_bytes=len(data), **(known | fields))  # type: ignore[arg-type]


@clause("ART-09")
async def test_what_was_collected_comes_back(store: DirectoryArtifactStore, tmp_path: Path) -> None:
    """The consumer finds the producer's files, and keeps its own beside them."""
    work = tmp_path / "work"
    (work / "dist/sub/empty").mkdir(parents=True)
    (work / "dist/a").write_text("new")
    (work / "dist/sub/tool").write_text("#!")
    (work / "dist/sub/tool").chmod(0o755)
    (work / "dist/sub/link").symlink_to("../a")
    into = tmp_path / "into"
    (into / "sub").mkdir(parents=True)
    (into / "a").write_text("old")
    (into / "sub/mine").write_text("mine")

    reference = await collect(store, "build", "dist", "dist", work)
    assert reference is not None
    place = await restore(store, reference, into)

    assert (reference.kind, reference.entries, reference.file_name) == ("tree", 4, None)
    assert place == into
    found = {str(path.relative_to(into)) for path in into.rglob("*")}
    assert found == {"a", "sub", "sub/mine", "sub/empty", "sub/link", "sub/tool"}
    assert (into / "a").read_text() == "new"
    assert os.readlink(into / "sub/link") == "../a"
    assert os.access(into / "sub/tool", os.X_OK)


@clause("ART-12")
async def test_one_path_is_stored_and_restored_by_reference(store: DirectoryArtifactStore, tmp_path: Path) -> None:
    """``ctx.artifacts.put`` and ``get`` follow the rules of declared artifacts."""
    (tmp_path / "report.txt").write_text("all well")

    reference = await collect_path(store, "build", "report", tmp_path / "report.txt")
    place = await restore(store, reference, tmp_path / "into")

    assert place == tmp_path / "into/report.txt"
    assert place.read_text() == "all well"
    with pytest.raises(ArtifactMissingError, match="nothing at"):
        await collect_path(store, "build", "report", tmp_path / "other.txt")


@clause("ART-09")
async def test_damaged_bytes_write_nothing(store: DirectoryArtifactStore, tmp_path: Path) -> None:
    """A flipped bit on a disk is found before a file is replaced."""
    reference = reference_to(b"good bytes")
    await store.put([b"good bytes"])
    path = await store.local_path(reference.digest)
    assert path is not None

    for damaged, words in [(b"good bytez", "its digest is"), (b"good", "4 bytes, not 10")]:
        path.write_bytes(damaged)
        with pytest.raises(ArtifactCorruptError, match=words):
            await restore(store, reference, tmp_path / "into")
    assert not (tmp_path / "into").exists()


@clause("ART-09")
async def test_a_link_in_the_target_is_not_followed(store: DirectoryArtifactStore, tmp_path: Path) -> None:
    """A folder that someone replaced by a link must not lead the restore elsewhere."""
    (tmp_path / "work/out/sub").mkdir(parents=True)
    (tmp_path / "work/out/sub/file").write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "into").mkdir()
    (tmp_path / "into/sub").symlink_to(tmp_path / "elsewhere")
    reference = await collect(store, "build", "out", "out", tmp_path / "work")
    assert reference is not None

    await restore(store, reference, tmp_path / "into")

    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert (tmp_path / "into/sub/file").read_text() == "x"


@clause("ART-11")
async def test_concurrent_restores_share_one_download(tmp_path: Path) -> None:
    """Ten consumers that start at once must not pull ten gigabytes ten times."""
    store, reference = RemoteStore(b"payload"), reference_to(b"payload")
    waiters = [asyncio.ensure_future(restore(store, reference, tmp_path / "into")) for _ in range(5)]
    await store.started.wait()

    waiters[0].cancel()
    await asyncio.wait([waiters[0]])
    store.go_on.set()
    places = await asyncio.gather(*waiters[1:])

    assert waiters[0].cancelled()
    assert store.downloads == 1
    assert {place.read_bytes() for place in places} == {b"payload"}
    assert os.listdir(tmp_path / "into") == ["out.bin"]


@clause("ART-11")
async def test_a_failed_restore_is_not_remembered(tmp_path: Path) -> None:
    """The next attempt of a task asks the store again."""
    store, reference = RemoteStore(b"payload"), reference_to(b"payload")
    store.go_on.set()
    store.fails = True
    with pytest.raises(ConnectionError):
        await restore(store, reference, tmp_path / "into")

    store.fails = False
    place = await restore(store, reference, tmp_path / "into")

    assert (store.downloads, place.read_bytes()) == (2, b"payload")


@clause("ART-11")
async def test_the_last_waiter_takes_the_download_with_it(tmp_path: Path) -> None:
    """A cancelled task leaves no download behind that nobody waits for."""
    store, reference = RemoteStore(b"payload"), reference_to(b"payload")
    waiters = [asyncio.ensure_future(restore(store, reference, tmp_path / "into")) for _ in range(2)]
    await store.started.wait()

    for waiter in waiters:
        waiter.cancel()
    await asyncio.wait(waiters)
    store.go_on.set()
    await restore(store, reference, tmp_path / "into")

    assert store.downloads == 2
    assert os.listdir(tmp_path / "into") == ["out.bin"]


@clause("ART-09")
async def test_more_bytes_than_announced_are_refused_on_the_way(tmp_path: Path) -> None:
    """A store that sends without end fills no disk."""
    store = RemoteStore(b"payload and more")
    store.go_on.set()

    with pytest.raises(ArtifactCorruptError, match="more than 7 bytes"):
        await restore(store, reference_to(b"payload"), tmp_path / "into")
    assert os.listdir(tmp_path / "into") == []


# ------------------------------------------------------------- hostile archives


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


def archive(*entries: tarfile.TarInfo) -> bytes:
    data = b"".join(
        info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") + bytes(info.size + -info.size % 512)
        for info in entries
    )
    return data + bytes(1024)


HOSTILE = {
    "absolute": archive(entry("/etc/passwd")),
    "drive": archive(entry("C:/x")),
    "parent": archive(entry("a/../../x")),
    "dot": archive(entry("./x")),
    "empty name": archive(entry("a//x")),
    "backslash": archive(entry("a\\..\\x")),
    "long path": archive(entry("/".join(["x" * 50] * 30))),
    "link up": archive(entry("l", tarfile.SYMTYPE, "../x")),
    "link absolute": archive(entry("l", tarfile.SYMTYPE, "/etc")),
    "link wavy": archive(entry("a", tarfile.SYMTYPE, "b"), entry("l", tarfile.SYMTYPE, "a/../..")),
    "below a link": archive(entry("l", tarfile.SYMTYPE, "."), entry("l/x")),
    "below a file": archive(entry("f"), entry("f/x")),
    "hard link": archive(entry("f"), entry("h", tarfile.LNKTYPE, "f")),
    "device": archive(entry("d", tarfile.CHRTYPE)),
    "pipe": archive(entry("p", tarfile.FIFOTYPE)),
    "sparse": archive(entry("s", tarfile.GNUTYPE_SPARSE)),
    "twice": archive(entry("a"), entry("a")),
    "file over folder": archive(entry("a/b"), entry("a")),
    "link over file": archive(entry("a"), entry("a", tarfile.SYMTYPE, "b")),
    "too many": archive(*(entry(str(number)) for number in range(11))),
    "too large": archive(entry("a", size=600), entry("b", size=600)),
    "no archive": b"PK\x03\x04" + bytes(600),
    "cut off": archive(entry("a", size=900))[:700],
    "nothing": b"",
}


@clause("ART-10")
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_archive_is_refused(name: str, tmp_path: Path) -> None:
    """Archives come from other machines; none of them writes outside, or fills the disk."""
    inside = tmp_path / "a/b/inside"
    inside.mkdir(parents=True)

    with pytest.raises(UnsafeArchiveError):
        unpack(io.BytesIO(HOSTILE[name]), inside, entries_limit=10, size_limit_bytes=1000)

    assert (os.listdir(tmp_path), os.listdir(tmp_path / "a"), os.listdir(tmp_path / "a/b")) == (
        ["a"],
        ["b"],
        ["inside"],
    )


@clause("ART-10")
async def test_a_header_that_asks_for_all_memory_is_refused(tmp_path: Path) -> None:
    """Extended headers are read whole, before anything of their entry is known."""
    data = archive(entry("pax", tarfile.XHDTYPE, size=3 * 1024 * 1024), entry("a"))

    with pytest.raises(UnsafeArchiveError, match="a header of 3,14"):
        unpack(io.BytesIO(data), tmp_path)


@clause("ART-10")
async def test_a_refused_archive_writes_nothing_at_the_target(store: DirectoryArtifactStore, tmp_path: Path) -> None:
    """Good entries before the bad one are not left behind."""
    data = archive(entry("good", size=10), entry("../bad"))
    await store.put([data])
    (tmp_path / "into").mkdir()

    with pytest.raises(UnsafeArchiveError, match=r"\.\./bad"):
        await restore(store, reference_to(data, kind="tree", file_name=None), tmp_path / "into")

    assert os.listdir(tmp_path / "into") == []


@clause("ART-10")
async def test_a_reference_with_a_hostile_file_name_is_refused(store: DirectoryArtifactStore, tmp_path: Path) -> None:
    """References come from peers, like archives do."""
    await store.put([b"x"])
    for name in ("../x", "a/b", "/x", "a\0b", ".."):
        with pytest.raises(UnsafeArchiveError):
            await restore(store, reference_to(b"x", file_name=name), tmp_path / "into")
    assert os.listdir(tmp_path / "into") == []


@clause("ART-10")
async def test_windows_names_are_refused_on_windows_alone() -> None:
    """``aux.txt`` is a file on Linux and a device on Windows."""
    for name in ("aux", "con.txt", "a/LPT1", "nul .x", "a.", "b ", "xy:stream", "com¹"):
        assert path_problem(name, windows=True) is not None, name
        assert path_problem(name, windows=False) is None, name
    assert path_problem("a/console.txt", windows=True) is None


@clause("ART-10")
async def test_links_inside_the_tree_are_well() -> None:
    """Version links of shared libraries are everyday content."""
    for path, target in [("lib/a.so", "a.so.1"), ("a/b/c", "../../d"), ("x", "./y"), ("a/b", "..")]:
        assert link_problem(path, target) is None
    for path, target in [("x", ".."), ("a/b", "../.."), ("a/b", "../../a"), ("x", ""), ("x", "C:x")]:
        assert link_problem(path, target) is not None


@clause("ART-09")
async def test_an_archive_with_fewer_entries_than_referenced_is_refused(
    store: DirectoryArtifactStore, tmp_path: Path
) -> None:
    """tarfile takes a damaged header in the middle for the end."""
    good = archive(entry("a"), entry("b"))
    data = good[:512] + b"\xff" * 512 + good[1024:]
    await store.put([data])

    with pytest.raises((ArtifactCorruptError, UnsafeArchiveError)):
        await restore(store, reference_to(data, kind="tree", file_name=None, entries=2), tmp_path / "into")
    assert os.listdir(tmp_path / "into") == []
