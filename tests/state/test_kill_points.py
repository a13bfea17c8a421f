"""The kill points themselves: a helper that never kills would prove nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from towline.state.files import SystemFiles
from towline.testing import clause
from towline.testing.killpoints import Killed, KillingFiles, KillPoints


def _write(root: Path, files: SystemFiles) -> None:
    fd = files.create(str(root / "a.tmp"))
    files.write(fd, b"0123456789")
    files.rename(str(root / "a.tmp"), str(root / "a"))


@clause("TEST-08")
def test_every_point_is_visited_once_and_cuts_writes_at_the_named_bytes(tmp_path: Path) -> None:
    """Before and after each step, and inside a write after 0, 1, half and all but one of its bytes."""
    left: list[tuple[str, str]] = []
    for point in KillPoints():
        root = tmp_path / str(point.number)
        root.mkdir()
        with point.watching():
            _write(root, point.files)
        found = next(iter(root.iterdir()), None)
        left.append(("", "") if found is None else (found.name, found.read_text()))
    temp = [("a.tmp", text) for text in ("", "", "0", "01234", "012345678", "0123456789", "0123456789")]
    assert left == [("", ""), *temp, ("a", "0123456789"), ("a", "0123456789")]


@clause("TEST-08")
def test_the_dead_change_nothing_in_their_finally_blocks(tmp_path: Path) -> None:
    """A real kill runs no clean-up; a simulated one that did would hide leftovers."""
    files = KillingFiles(at=3)
    with pytest.raises(Killed):
        _write(tmp_path, files)
    for call in (lambda: files.remove(str(tmp_path / "a.tmp")), lambda: files.open_append(str(tmp_path / "b"))):
        with pytest.raises(Killed):
            call()
    assert [path.name for path in tmp_path.iterdir()] == ["a.tmp"]


@clause("TEST-08")
def test_a_scenario_without_the_files_is_refused(tmp_path: Path) -> None:
    """Else it would pass at its first turn without a single kill."""
    with pytest.raises(RuntimeError, match="no durable write"):  # noqa: PT012 - raised by the loop itself
        for point in KillPoints():
            with point.watching():
                _write(tmp_path, SystemFiles())
