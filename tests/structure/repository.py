"""Where things lie in the repository, for the tests that read it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "src" / "towline"
SPEC = ROOT / "docs" / "spec"
TESTS = ROOT / "tests"


@cache
def tree_of(file: Path) -> ast.Module:
    """Parse a Python file once."""
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def python_files(folder: Path) -> list[Path]:
    """List the Python files below a folder, in order."""
    return sorted(folder.rglob("*.py"))
