"""What a stranger gets: the wheel, and a repository that names no machine."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

from structure.repository import ROOT


def test_wheel_holds_the_library_and_nothing_else(tmp_path: Path) -> None:
    """Tests, data or scratch files in a wheel are noise for every user; a missing py.typed loses the types."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith("METADATA"))
        entry_points = archive.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"towline"}
    assert "towline/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "towline = towline.cli:main" in entry_points
    strangers = [
        name for name in names if name.startswith("towline/") and not name.endswith((".py", ".lua", "py.typed"))
    ]
    assert not strangers


FOREIGN = re.compile(
    r"(?:^|[^\w.])/(?:work|farm|opt|root)/|/tmp/bash_jobs|https?://\S+\.(?:whl|tar\.gz|tgz|deb)\b"
    r"|--(?:extra-)?index-url|--find-links|--trusted-host"
)
QUOTES_ALLOWED = {"tests/structure/test_package.py"}


def tracked_files() -> list[Path]:
    """List what is in the repository, as git sees it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    return [ROOT / name for name in listed.stdout.split("\0") if name and name not in QUOTES_ALLOWED]


def test_no_file_names_a_machine_or_a_registry() -> None:
    """A path or host of one machine breaks the build on every other."""
    found = []
    for file in tracked_files():
        if file.is_file() and file.suffix not in {".png", ".gif"}:
            text = file.read_text(encoding="utf-8", errors="replace")
            found += [f"{file.relative_to(ROOT)}: {match.group()}" for match in FOREIGN.finditer(text)]
    assert not found


def test_requirements_are_hashed() -> None:
    """What is installed on another day must be what was tested."""
    for file in sorted((ROOT / "requirements").glob("*.txt")):
        packages = re.findall(r"^[A-Za-z0-9_.\-\[\]]+==.*$", file.read_text(encoding="utf-8"), re.MULTILINE)
        assert packages, file
        assert all(line.endswith("\\") for line in packages), f"{file.name} has a package without a hash"
