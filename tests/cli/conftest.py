"""A folder to call the program in."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.shell import SMALL, Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """An empty folder."""
    return Shell(tmp_path)


@pytest.fixture
def small(shell: Shell) -> Shell:
    """A folder with ``small.py``."""
    shell.write("small.py", SMALL)
    return shell
