"""Fingerprints differ when something that counts differs, and only then."""

from __future__ import annotations

import sys
import types
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.execution.cache_files import digest_files
from towline.execution.fingerprints import UncacheableError, changed_parts, fingerprint_of, key_bytes
from towline.execution.program_code import code_digests, program_files, source_digest
from towline.testing import clause

PARTS = st.lists(st.tuples(st.text("ab", max_size=3), st.binary(max_size=3)), max_size=4)


@clause("CACHE-02")
@given(PARTS, PARTS)
def test_different_parts_have_different_fingerprints(
    one: list[tuple[str, bytes]], two: list[tuple[str, bytes]]
) -> None:
    """Lengths keep names and values apart: what moves from one part to the next is a change."""
    assert (fingerprint_of(one).digest == fingerprint_of(two).digest) == (one == two)


@clause("CACHE-09")
def test_a_miss_is_told_in_words() -> None:
    """A user who waits for a build wants to know which file it was."""
    before = fingerprint_of([("code a.py", b"1"), ("file b", b"2"), ("variable CI", b"unset")]).parts
    now = fingerprint_of([("code a.py", b"1"), ("file c", b"2"), ("variable CI", b"set 1")]).parts

    assert changed_parts(before, now) == ["file b is gone", "file c is new", "variable CI changed"]


@clause("CACHE-02")
def test_keys_without_json_form_are_refused() -> None:
    """Two objects that look the same must not share a result."""

    class Opaque:
        pass

    class Mode(Enum):
        FAST = "fast"

    assert key_bytes({"b": 1, "a": [Path("x"), Mode.FAST]}) == b'{"a":["x","fast"],"b":1}'
    with pytest.raises(UncacheableError, match="Opaque"):
        key_bytes([Opaque()])


SOURCE = '''
"""Module."""
LIMIT = 3

class Release:
    """Class."""
    def publish(self, dry: bool = False) -> int:
        """Function."""
        total = 1
        return total + LIMIT
'''


@clause("CACHE-03")
@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("total = 1", "total   =  1  # a comment", True),
        ('"""Function."""', '"""Another\n        text."""', True),
        ('        """Function."""\n', "", True),
        ('"""Module."""', "", True),
        ("\n        total", "\n\n\n        total", True),
        ("dry: bool = False", "dry: bool = (False)", True),
        ("LIMIT = 3", "LIMIT = 4", False),
        ("total = 1", "total = 1.0", False),
        ("total", "sum_", False),
        ("dry: bool = False", "dry: bool = True", False),
        ("total + LIMIT", "total - LIMIT", False),
    ],
)
def test_what_counts_of_the_source(old: str, new: str, same: bool) -> None:
    """Reformatting must not cost an hour of builds, and a changed constant must never be served from the cache."""
    assert (source_digest(SOURCE.encode()) == source_digest(SOURCE.replace(old, new).encode())) is same


@clause("CACHE-03")
def test_only_the_programs_own_files_count(tmp_path: Path) -> None:
    """Installed packages belong in ``key`` or in a lock file among the inputs."""
    inside = ["pipe.py", "tools/helper.py"]
    other = [".venv/lib/site-packages/dep.py", "tools/ext.so"]
    for name in inside + other:
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text("x = 1")
    (tmp_path / "outside.py").write_text("x = 1")
    files = [tmp_path / "root" / name for name in inside + other] + [tmp_path / "outside.py"]
    modules = {str(path): types.ModuleType("m") for path in files}
    for path, module in modules.items():
        module.__file__ = path
    modules["__main__"] = modules[str(files[0])]

    found = program_files(tmp_path / "root", modules)

    assert list(code_digests(tmp_path / "root", found)) == inside
    assert not any("towline" in file for file in program_files(Path(sys.modules["towline"].__path__[0]).parent))


@clause("CACHE-02")
def test_input_files_count_by_name_content_and_executable_bit(tmp_path: Path) -> None:
    """A checkout gives new times; that alone must not miss."""
    (tmp_path / "data").mkdir()
    file = tmp_path / "data/a.txt"
    file.write_text("one")

    def parts() -> dict[str, bytes]:
        return digest_files(tmp_path, ["data/*", "none/*"])

    before = parts()
    file.touch()
    assert parts() == before
    assert sorted(before) == ["file data/a.txt", "pattern data/*", "pattern none/*"]
    file.write_text("two")
    changed = parts()
    assert changed != before
    file.chmod(0o755)
    assert parts() != changed
    (tmp_path / "data/b.txt").touch()
    assert "file data/b.txt" in parts()
    with pytest.raises(UncacheableError, match="leaves the workdir"):
        digest_files(tmp_path / "data", ["../*"])


@clause("CACHE-02")
def test_a_linked_input_counts_by_what_it_leads_to(tmp_path: Path) -> None:
    """The body reads through the link."""
    (tmp_path / "real").write_text("one")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to("../real")
    before = digest_files(tmp_path, ["in/*"])
    (tmp_path / "real").write_text("two")

    assert digest_files(tmp_path, ["in/*"]) != before
