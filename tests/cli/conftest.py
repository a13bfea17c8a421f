"""A folder to call the program in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.shell import SMALL, Shell
from towline.testing.redis_server import RedisTestServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """An empty folder."""
    return Shell(tmp_path)


@pytest.fixture
def small(shell: Shell) -> Shell:
    """A folder with ``small.py``."""
    shell.write("small.py", SMALL)
    return shell


@pytest.fixture(scope="module")
def server() -> Iterator[RedisTestServer]:
    """One for all tests of a file."""
    with RedisTestServer() as running:
        yield running


@pytest.fixture
def url(server: RedisTestServer) -> Iterator[str]:
    """The URL of that server, which is emptied after each test."""
    yield server.url
    server.command("FLUSHALL")
