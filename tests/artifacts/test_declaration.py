"""Names and patterns of artifacts are refused where they are written."""

from __future__ import annotations

import pytest

from towline.artifacts import check_into, check_name, check_pattern
from towline.artifacts.declaration import fixed_part, is_literal
from towline.testing import clause


@clause("ART-01")
@pytest.mark.parametrize("name", ["wheel", "a", "0.log", "x" * 64, "a-b_c.d"])
def test_good_names_are_taken(name: str) -> None:
    """A name becomes a key in every store."""
    check_name(name)


@clause("ART-01")
@pytest.mark.parametrize("name", ["", "Wheel", "-a", ".a", "a/b", "x" * 65, "a b", "é", "a\n", None])
def test_bad_names_are_refused(name: str) -> None:
    """A name that one file system cannot hold would fail after the work was done."""
    with pytest.raises(ValueError, match="artifact name"):
        check_name(name)


@clause("ART-01")
@pytest.mark.parametrize("pattern", ["dist", "dist/*.whl", "**/*.py", "a/**/b", "./out", "..x/y", "a/[0-9]?"])
def test_relative_patterns_are_taken(pattern: str) -> None:
    """``/`` means the same on every system."""
    check_pattern(pattern)


@clause("ART-01")
@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "relative"),
        ("/etc/passwd", "absolute"),
        ("C:/x", "absolute"),
        ("dist\\*.whl", "write '/'"),
        ("../secrets", "leaves the workdir"),
        ("a/../../b", "leaves the workdir"),
        ("a\0b", "NUL"),
        ("a**/b", "whole folders"),
        (None, "relative"),
    ],
)
def test_other_patterns_are_refused_with_the_reason(pattern: str, words: str) -> None:
    """What leaves the workdir is another task's, or nobody's."""
    with pytest.raises(ValueError, match=words):
        check_pattern(pattern)


@clause("ART-02")
def test_a_target_folder_stays_in_the_workdir() -> None:
    """A consumer writes where it works and nowhere else."""
    check_into("upload/here")
    check_into(".")
    for folder in ("../up", "/abs", "a\\b", ""):
        with pytest.raises(ValueError):
            check_into(folder)


@clause("ART-06")
def test_the_fixed_part_ends_at_the_first_wildcard() -> None:
    """Entries of a tree are relative to it, so that a consumer gets ``x.whl`` and not ``dist/x.whl``."""
    assert [fixed_part(p) for p in ("dist/*.whl", "*.txt", "dist", "a/b*/c", "./a//b/*")] == [
        "dist",
        ".",
        "dist",
        "a",
        "a/b",
    ]
    assert [is_literal(p) for p in ("dist", "dist/*", "a?", "[x]")] == [True, False, False, False]
