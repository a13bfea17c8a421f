"""Equal content gives equal bytes, and nothing is left out silently."""

from __future__ import annotations

import io
import os
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from towline.artifacts.matching import find
from towline.artifacts.packing import CHUNK_BYTES, packed
from towline.artifacts.unpacking import unpack
from towline.errors import ArtifactPackError
from towline.identity import digest_of
from towline.testing import clause


def tree_at(folder: Path, *, reverse: bool = False) -> Path:
    """Make the same tree, in one or the other order."""
    files = {"b.txt": b"b", "a.txt": b"a", "sub/deep/ü.bin": bytes(700), "sub/tool": b"#!"}
    folder.mkdir(parents=True)
    for name in sorted(files, reverse=reverse):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(files[name])
    (folder / "sub/tool").chmod(0o755)
    (folder / "empty").mkdir()
    (folder / "sub/link").symlink_to("../a.txt")
    return folder


def bytes_of(workdir: Path, pattern: str) -> bytes:
    match = find(workdir, pattern, "out")
    assert match is not None
    return b"".join(packed(match, "out"))


@clause("ART-06")
def test_equal_content_gives_one_digest(tmp_path: Path) -> None:
    """Digests decide what is stored, sent and cached; times, owners and order must not change them."""
    one, two = tree_at(tmp_path / "one/out"), tree_at(tmp_path / "two/out", reverse=True)
    os.utime(one / "a.txt", (1, 1))
    (one / "b.txt").chmod(0o600)

    digests = {digest_of(bytes_of(folder.parent, "out")) for folder in (one, two)}

    assert digests == {"sha256:4d7c3a4a280bacbcf8e3fb4412d3aaf43938fff753dd8ec9ebe18000e9e4fa83"}


@clause("ART-06")
def test_a_tree_is_a_normalised_pax_tar(tmp_path: Path) -> None:
    """Anyone can open a stored artifact with tar."""
    tree_at(tmp_path / "out")

    with tarfile.open(fileobj=io.BytesIO(bytes_of(tmp_path, "out"))) as archive:
        entries = {info.name: info for info in archive}

    assert list(entries) == ["a.txt", "b.txt", "empty", "sub/deep/ü.bin", "sub/link", "sub/tool"]
    assert {(info.uid, info.gid, info.uname, info.mtime) for info in entries.values()} == {(0, 0, "", 0)}
    assert [oct(entries[name].mode) for name in ("a.txt", "sub/tool", "empty")] == ["0o644", "0o755", "0o755"]
    assert (entries["sub/link"].linkname, entries["empty"].isdir()) == ("../a.txt", True)


@clause("ART-06")
def test_one_literal_file_travels_as_its_bytes(tmp_path: Path) -> None:
    """A wheel stays a wheel under its own digest."""
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/x.whl").write_bytes(b"wheel")

    match = find(tmp_path, "dist/x.whl", "wheel")

    assert match is not None
    assert (match.kind, match.entries[0].path) == ("file", "x.whl")
    assert bytes_of(tmp_path, "dist/x.whl") == b"wheel"


@clause("ART-01")
def test_patterns_find_what_they_say(tmp_path: Path) -> None:
    """A pattern that finds too little fails a consumer; one that finds too much fails a store."""
    for name in ("a/x.py", "a/b/y.py", "a/b/.hidden.py", "a/b/z.txt", "top.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)

    def found(pattern: str) -> list[str] | None:
        match = find(tmp_path, pattern, "out")
        return None if match is None else [entry.path for entry in match.entries]

    assert found("**/*.py") == ["a/b/.hidden.py", "a/b/y.py", "a/x.py", "top.py"]
    assert found("a/**/*.py") == ["b/.hidden.py", "b/y.py", "x.py"]
    assert found("a/*") == ["b/.hidden.py", "b/y.py", "b/z.txt", "x.py"]
    assert found("a/**") == found("a") == found("a/*")
    assert found("?op.py") == ["top.py"]
    assert found("a/*/y.py") == ["b/y.py"]
    assert found("*.rs") is None
    assert found("nowhere/*") is None
    assert found("nowhere") is None


@clause("ART-07")
def test_packing_streams(tmp_path: Path) -> None:
    """A file of many gigabytes passes through in pieces."""
    with open(tmp_path / "big", "wb") as file:
        file.truncate(64 * CHUNK_BYTES)
    for name in range(200):
        (tmp_path / f"small-{name}").write_bytes(b"x" * 100)
    match = find(tmp_path, "*", "out")
    assert match is not None

    sizes = [len(chunk) for chunk in packed(match, "out")]

    assert max(sizes) <= 2 * CHUNK_BYTES
    assert len(sizes) < 100


@clause("ART-07")
def test_a_file_that_changes_meanwhile_fails_with_its_path(tmp_path: Path) -> None:
    """Half of an old and half of a new file is a file that never was."""
    path = tmp_path / "log"

    def while_reading(change: bytes, size: int) -> Iterator[bytes]:
        path.write_bytes(bytes(size))
        match = find(tmp_path, "log", "out")
        assert match is not None
        chunks = packed(match, "out")
        yield next(chunks)
        with open(path, "wb" if not change else "ab") as file:
            file.write(change)
        yield from chunks

    for change in (b"more", b""):
        with pytest.raises(ArtifactPackError, match="log' changed while it was packed"):
            list(while_reading(change, 3 * CHUNK_BYTES))


@clause("ART-07")
def test_what_cannot_be_packed_fails_with_its_path(tmp_path: Path) -> None:
    """A socket or a link out of the tree would be missing at the consumer, without a word."""

    def failing(name: str, words: str) -> None:
        with pytest.raises(ArtifactPackError, match=words) as caught:
            bytes_of(tmp_path, name)
        assert name in str(caught.value)

    for name, target in [("up", "../../x"), ("abs", "/etc"), ("wavy", "a/../b"), ("back", "a\\b")]:
        (tmp_path / name / "in").mkdir(parents=True)
        (tmp_path / name / "in/link").symlink_to(target)
        failing(name, "link")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe/fifo")
    failing("pipe", "named pipe")
    (tmp_path / "s").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.relpath(tmp_path / "s/socket"))
    listener.close()
    failing("s", "socket")
    (tmp_path / "name").mkdir()
    (tmp_path / "name/a\\b").touch()
    failing("name", "backslash")
    (tmp_path / "out").symlink_to(tmp_path.parent)
    failing("out", "leaves the workdir")


@clause("ART-06")
def test_names_that_are_no_utf8_survive(tmp_path: Path) -> None:
    """Unpacked archives and foreign tools leave such names."""
    name = os.fsencode(tmp_path / "in") + b"/\xff\xfe"
    (tmp_path / "in").mkdir()
    with open(name, "wb") as file:
        file.write(b"raw")
    (tmp_path / "out").mkdir()

    unpack(io.BytesIO(bytes_of(tmp_path, "in")), tmp_path / "out")

    assert os.listdir(os.fsencode(tmp_path / "out")) == [b"\xff\xfe"]
