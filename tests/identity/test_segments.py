"""A task id becomes one file name, wherever it becomes one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.identity import segment
from towline.testing import clause

SAFE = re.compile(r"[A-Za-z0-9._\-\[\]%~]{1,150}\Z")
DEVICES = ("con", "prn", "aux", "nul", "com1", "lpt9")

ids = st.text(min_size=1, max_size=200)


@clause("MOD-07")
@given(ids)
def test_segment_is_safe_on_every_system(name: str) -> None:
    """A name from a user's data must not leave its folder, hide, or be a device on Windows."""
    text = segment(name)

    assert SAFE.match(text)
    assert not text.startswith(".")
    assert not text.endswith(".")
    assert text.partition(".")[0].casefold() not in DEVICES


@clause("MOD-07")
@given(ids, ids)
def test_distinct_names_give_distinct_segments(left: str, right: str) -> None:
    """Two tasks that shared a file would overwrite each other's log and result."""
    assert (segment(left) == segment(right)) == (left == right)


@clause("MOD-07")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test[3.12]", "test[3.12]"),
        ("Deploy(eu)", "Deploy%28eu%29"),
        ("a/b", "a%2Fb"),
        ("..", "%2E%2E"),
        ("nul.txt", "%6Eul.txt"),
        ("ä", "%C3%A4"),
    ],
)
def test_segments_stay_as_they_are(name: str, expected: str) -> None:
    """They are names on disk: a resume has to find what an older version wrote."""
    assert segment(name) == expected


@clause("MOD-07")
def test_long_name_is_cut_with_a_digest() -> None:
    """File systems end at 255 bytes; the digest keeps two long names apart."""
    left, right = segment("x" * 300 + "a"), segment("x" * 300 + "b")

    assert left != right
    assert left.startswith("x" * 100 + "~")
    assert len(left) == 117
